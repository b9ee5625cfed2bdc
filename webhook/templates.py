"""Pod templates of workloads, so that `kubectl apply` of a Deployment is refused and not only, later, its pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.faults import Fault
from protocol.pods import Json
from webhook.review import Kind

_TEMPLATE: Final = ("spec", "template")
_JOB_TEMPLATE: Final = ("spec", "jobTemplate", "spec", "template")

# By group and kind: every version of one kind has its template at the same place.
_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): _JOB_TEMPLATE,
}


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template and where it stands: `prefix` is what comes before its `metadata` and `spec`."""

    pod: Json
    prefix: str


class TemplateError(ValueError):
    """Something on the way to the template is no object; `fault` says what."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def is_workload(kind: Kind) -> bool:
    """Return whether objects of a kind make pods from a template."""
    return (kind.group, kind.name) in _PATHS


def template_of(kind: Kind, item: Json) -> Template:
    """Return the template of a workload, an empty one when it has none.

    Raises:
        TemplateError: a field on the way to it has the wrong type.
    """
    path = _PATHS[kind.group, kind.name]
    found: Any = item
    for depth, key in enumerate(path, start=1):
        found = found.get(key)
        if found is None:
            found = {}
        if not isinstance(found, dict):
            raise TemplateError(Fault(".".join(path[:depth]), found, "must be an object"))
    return Template(found, ".".join(path) + ".")
