"""Ways around the limits that a pod's own settings open."""

from collections.abc import Iterator
from typing import Final

from protocol.demand import ContainerField
from protocol.faults import Fault
from protocol.pods import Json
from webhook.pod import Pod
from webhook.settings import WebhookSettings

PRIVILEGED_LABEL: Final = "amd-vgpu.io/allow-privileged"
EXPECTATION: Final = (
    "must not be true with amd.com resources, the container would see every GPU of its node: "
    f"allowed only in namespaces labelled {PRIVILEGED_LABEL}=true"
)


def privilege_faults(pod: Pod, settings: WebhookSettings) -> list[Fault]:
    """Return a fault for every privileged GPU container, unless the namespace allows them."""
    if settings.allow_privileged:
        return []
    return [
        Fault(_field(container), "true", EXPECTATION, kind="Forbidden")
        for container in pod.gpu_containers
        if is_privileged(container.body)
    ]


def privilege_warnings(pod: Pod) -> list[str]:
    """Return warnings about what an allowed GPU pod can see or escape."""
    return list(_warnings(pod))


def is_privileged(body: Json) -> bool:
    """Return whether a container is privileged."""
    return (body.get("securityContext") or {}).get("privileged") is True


def sees_all(field: str) -> str:
    """Return the warning about a privileged container at a field."""
    return f"{field}: a privileged container sees every GPU of its node, whatever the pod asks for"


def _warnings(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        if is_privileged(container.body):
            yield sees_all(_field(container))
    # The library reads back a variable that a program drops from /proc/1/environ, which is then another process's.
    for key, whose in (("hostPID", "the host's"), ("shareProcessNamespace", "the pod's pause")):
        if pod.spec.get(key) is True:
            yield (
                f"{pod.spec_path}.{key}: process 1 is then {whose} process, from whose environment GPU limits cannot "
                "be restored: a program that clears its environment runs without them"
            )


def _field(container: ContainerField) -> str:
    return f"{container.path}.securityContext.privileged"
