"""What an update of a pod may not do.

Only what changes is judged: pods that were stored before a rule existed must still be able to lose a finalizer or get
a label.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from protocol.faults import Fault
from protocol.names import RESOURCES
from protocol.pods import Json
from webhook.pod import Pod, spec_of
from webhook.privilege import is_privileged, sees_all
from webhook.reserved import changed_reserved_faults
from webhook.review import User
from webhook.selection import changed_selection_faults
from webhook.settings import WebhookSettings

RESIZE_EXPECTATION: Final = "must not be changed: a container gets its GPUs before it starts"
EPHEMERAL_EXPECTATION: Final = "must not be set: an ephemeral container cannot get a GPU"

_KINDS: Final = ("limits", "requests")


def update_faults(old: Json, new: Json, user: User, settings: WebhookSettings) -> list[Fault]:
    """Return what is wrong with the changes of an update of a pod, or of one of its sub-resources."""
    before, after = Pod.of(old), Pod.of(new)
    faults = [] if user.name in settings.trusted_users else changed_reserved_faults(before, after)
    if after.gpu_containers:
        faults.extend(changed_selection_faults(before, after))
    faults.extend(_resized(before, after))
    faults.extend(_ephemeral_faults(old, new))
    return faults


def update_warnings(old: Json, new: Json) -> list[str]:
    """Return warnings about the containers that an update adds to a GPU pod, as `kubectl debug` does."""
    if not Pod.of(new).gpu_containers:
        return []
    return [sees_all(f"{field}.securityContext.privileged") for field, body in _added(old, new) if is_privileged(body)]


def _resized(before: Pod, after: Pod) -> Iterator[Fault]:
    stored = {container.path: container.body for container in before.containers}
    for container in after.containers:
        old = stored.get(container.path, {})
        for kind in _KINDS:
            was, is_now = _quantities(old, kind), _quantities(container.body, kind)
            for name in RESOURCES:
                if was.get(name) != is_now.get(name):
                    field = f"{container.path}.resources.{kind}[{name}]"
                    yield Fault(field, is_now.get(name), RESIZE_EXPECTATION, kind="Forbidden")


def _ephemeral_faults(old: Json, new: Json) -> Iterator[Fault]:
    for field, body in _added(old, new):
        for kind in _KINDS:
            for name in RESOURCES:
                if name in _quantities(body, kind):
                    yield Fault(f"{field}.resources.{kind}[{name}]", "", EPHEMERAL_EXPECTATION, kind="Forbidden")


def _added(old: Json, new: Json) -> Iterator[tuple[str, Json]]:
    """Yield the ephemeral containers that are new; those that exist can neither change nor go."""
    known = {body.get("name") for body in spec_of(old).get("ephemeralContainers") or ()}
    for index, body in enumerate(spec_of(new).get("ephemeralContainers") or ()):
        if body.get("name") not in known:
            yield f"spec.ephemeralContainers[{index}]", body


def _quantities(body: Json, kind: str) -> Mapping[str, Any]:
    return (body.get("resources") or {}).get(kind) or {}
