"""The extender's JSON, as kube-scheduler writes and reads it (`k8s.io/kube-scheduler/extender/v1`).

The Go structs carry no JSON tags, so keys are `Pod`, `NodeNames`, `PodUID`; Go reads keys in any case, and so do we.
Every answer is HTTP 200: kube-scheduler shows nothing of the body of any other status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]

MAX_SCORE: Final = 10
"""`extenderv1.MaxExtenderPriority`."""


class WireError(ValueError):
    """The body is not what kube-scheduler sends to this verb."""


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """A pod and the nodes that kube-scheduler still considers.

    Attributes:
        pod: the pod object.
        names: of the candidate nodes.
        nodes: the node objects, when kube-scheduler sends these (`nodeCacheCapable: false`); else None.
    """

    pod: Json
    names: tuple[str, ...]
    nodes: tuple[Json, ...] | None


@dataclass(frozen=True, slots=True)
class BindArgs:
    """Which pod to bind where."""

    namespace: str
    name: str
    uid: str
    node: str


def read_filter_args(body: object) -> FilterArgs:
    """Return the arguments of `filter` and `prioritize`.

    Raises:
        WireError: no pod, or neither nodes nor names.
    """
    fields = _fields(body)
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise WireError("Pod: must be a pod object")
    nodes = fields.get("nodes")
    if isinstance(nodes, dict):
        items = tuple(item for item in nodes.get("items") or () if isinstance(item, dict))
        return FilterArgs(pod, tuple(str((item.get("metadata") or {}).get("name", "")) for item in items), items)
    names = fields.get("nodenames")
    if not isinstance(names, list):
        raise WireError("NodeNames: must be a list of names when Nodes is not set")
    return FilterArgs(pod, tuple(str(name) for name in names), None)


def read_bind_args(body: object) -> BindArgs:
    """Return the arguments of `bind`.

    Raises:
        WireError: a field is missing or empty.
    """
    fields = _fields(body)
    values = []
    for key in ("PodNamespace", "PodName", "PodUID", "Node"):
        value = fields.get(key.lower())
        if not isinstance(value, str) or not value:
            raise WireError(f"{key}: must be a non-empty string")
        values.append(value)
    return BindArgs(*values)


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods of one node that would have to go.

    Attributes:
        uids: of the pods.
        pdb_violations: how many of them a PodDisruptionBudget wants to keep.
    """

    uids: tuple[str, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """A pod, and for each node on which it could get room the victims that kube-scheduler's own filters need."""

    pod: Json
    victims: Mapping[str, Victims]


def read_preempt_args(body: object) -> PreemptArgs:
    """Return the arguments of `preempt`: uids, or whole pods where kube-scheduler sends those.

    Raises:
        WireError: no pod, or neither kind of victims.
    """
    fields = _fields(body)
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise WireError("Pod: must be a pod object")
    by_node = fields.get("nodenametometavictims") or fields.get("nodenametovictims") or {}
    if not isinstance(by_node, dict):
        raise WireError("NodeNameToMetaVictims: must be an object by node name")
    return PreemptArgs(pod, {str(node): _read_victims(victims) for node, victims in by_node.items()})


def _read_victims(body: object) -> Victims:
    fields = _fields(body or {})
    pods = fields.get("pods") or []
    violations = fields.get("numpdbviolations") or 0
    if not isinstance(pods, list) or not isinstance(violations, int):
        raise WireError("NodeNameToMetaVictims: must have Pods, a list, and NumPDBViolations, a number")
    return Victims(tuple(_read_uid(pod) for pod in pods), violations)


def _read_uid(pod: object) -> str:
    fields = _fields(pod)
    uid = (fields.get("metadata") or {}).get("uid") if "metadata" in fields else fields.get("uid")
    if not isinstance(uid, str) or not uid:
        raise WireError("NodeNameToMetaVictims: a pod must have a UID, a non-empty string")
    return uid


def preempt_result(victims: Mapping[str, Victims]) -> dict[str, object]:
    """Return the answer of `preempt`: victims by node, by their uids in either mode. A node left out is none."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in chosen.uids], "NumPDBViolations": chosen.pdb_violations}
            for node, chosen in victims.items()
        }
    }


def filter_result(
    args: FilterArgs, fitting: Sequence[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> dict[str, object]:
    """Return the answer of `filter`: nodes in the form in which they were asked, and a reason for each other node.

    Args:
        args: what was asked.
        fitting: names of the nodes that have room.
        failed: reason by node, where the end of another pod could make room.
        unresolvable: reason by node, where it could not, so that preemption need not try. They are named as failed too:
            kube-scheduler before 1.21 does not know the other field, and newer ones let that field win.
    """
    chosen = set(fitting)
    nodes = None
    if args.nodes is not None:
        items = [node for node, name in zip(args.nodes, args.names, strict=True) if name in chosen]
        nodes = {"metadata": {}, "items": items}
    return {
        "Nodes": nodes,
        "NodeNames": list(fitting) if args.nodes is None else None,
        "FailedNodes": {**failed, **unresolvable},
        "FailedAndUnresolvableNodes": dict(unresolvable),
        "Error": "",
    }


def outcome_of(answer: object) -> str:
    """Return how an answer ends for the pod: `ok`, `error`, or `nowhere` when `filter` found no node."""
    if not isinstance(answer, dict):
        return "ok"
    if answer.get("Error"):
        return "error"
    if "FailedNodes" not in answer:
        return "ok"
    fitting = answer["NodeNames"] if answer["Nodes"] is None else answer["Nodes"]["items"]
    return "ok" if fitting else "nowhere"


def filter_error(message: str) -> dict[str, object]:
    """Return the answer of `filter` when the pod itself cannot be judged."""
    return {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": message,
    }


def _fields(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise WireError("body: must be a JSON object")
    return {str(key).lower(): value for key, value in body.items()}
