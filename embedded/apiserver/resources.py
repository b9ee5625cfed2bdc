"""Which resources there are, and which of them a URL path means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

SUBRESOURCES: Final = frozenset({"status", "binding"})


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API.

    Attributes:
        group: API group, empty for the core group.
        version: of the group.
        plural: as in paths.
        kind: of its objects.
        namespaced: whether its objects live in namespaces.
        has_status: whether `/status` is a sub-resource, so that the resource itself leaves the status alone.
        counts_generations: whether `metadata.generation` counts changes of anything but metadata and status.
        needs_version: whether PUT must name the resource version.
        creates_on_put: whether PUT of an object that is not there creates it.
        returns_deleted: whether DELETE answers with the object instead of a Status.
        fields: paths that field selectors may name, beside `metadata.name` and `metadata.namespace`.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    counts_generations: bool = False
    needs_version: bool = False
    creates_on_put: bool = False
    returns_deleted: bool = False
    fields: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Group and version as objects name them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_ADMISSION: Final = "admissionregistration.k8s.io"
_OBJECT_FIELDS: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

PODS: Final = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    has_status=True,
    returns_deleted=True,
    fields=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, has_status=True, fields=("spec.unschedulable",))
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False, has_status=True)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", fields=("type",))
QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", has_status=True, returns_deleted=True)
EVENTS: Final = Resource(
    "",
    "v1",
    "events",
    "Event",
    creates_on_put=True,
    fields=(*(f"involvedObject.{name}" for name in _OBJECT_FIELDS), "reason", "source", "type"),
)
EVENTS_V1: Final = Resource("events.k8s.io", "v1", "events", "Event", fields=("reason", "type"))
"""What newer components write. Unlike in a real API server these are not the events of the core group."""
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", needs_version=True, creates_on_put=True)
PRIORITIES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
MUTATING: Final = Resource(
    _ADMISSION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
    counts_generations=True,
    needs_version=True,
)
VALIDATING: Final = Resource(
    _ADMISSION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    counts_generations=True,
    needs_version=True,
)

RESOURCES: Final = (
    PODS,
    NODES,
    NAMESPACES,
    SECRETS,
    QUOTAS,
    EVENTS,
    EVENTS_V1,
    LEASES,
    PRIORITIES,
    MUTATING,
    VALIDATING,
)
_BY_PATH: Final[Mapping[tuple[str, str, str], Resource]] = {
    (one.group, one.version, one.plural): one for one in RESOURCES
}
_GROUP_VERSIONS: Final = frozenset((one.group, one.version) for one in RESOURCES)


class UnknownPathError(Exception):
    """No path of this API: not even its group and version exist."""


class UnknownResourceError(Exception):
    """The group and version exist, the resource does not."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a path means.

    Attributes:
        resource: whose.
        namespace: empty for all of them, or for a resource that has none.
        name: empty for the collection.
        subresource: `status`, `binding`, or empty.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def named(self, name: str) -> "Target":
        """Return the target of one object of a collection."""
        return Target(self.resource, self.namespace, name)


def parse_path(path: str) -> Target:
    """Return what a URL path, still quoted, means.

    Raises:
        UnknownPathError: the group or its version does not exist.
        UnknownResourceError: they do, the resource or sub-resource does not.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise UnknownPathError(path)
    if (group, version) not in _GROUP_VERSIONS:
        raise UnknownPathError(path)
    match rest:
        # `namespaces/<name>` and `namespaces/<name>/status` are the namespace itself.
        case ["namespaces", namespace, plural, *names] if plural not in SUBRESOURCES:
            pass
        case [plural, *names]:
            namespace = ""
        case _:
            raise UnknownResourceError(path)
    return _target(path, (group, version, plural), namespace, names)


def _target(path: str, kind: tuple[str, str, str], namespace: str, names: list[str]) -> Target:
    resource = _BY_PATH.get(kind)
    match names:
        case []:
            name, subresource = "", ""
        case [name]:
            subresource = ""
        case [name, subresource]:
            pass
        case _:
            raise UnknownResourceError(path)
    if resource is None or not _has(resource, namespace, name, subresource):
        raise UnknownResourceError(path)
    return Target(resource, namespace, name, subresource)


def _has(resource: Resource, namespace: str, name: str, subresource: str) -> bool:
    if bool(namespace) > resource.namespaced or (name and resource.namespaced and not namespace):
        return False
    return (
        not subresource
        or (subresource == "status" and resource.has_status)
        or (subresource == "binding" and resource is PODS)
    )
