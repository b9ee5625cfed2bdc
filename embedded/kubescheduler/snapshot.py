"""What the scheduler knows of nodes and pods, and which nodes have room for what it counts itself."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.demand import Role, containers
from protocol.pods import Json, PodRef, is_finished, node_name
from protocol.quantity import QuantityError, parse_quantity

Amounts = Mapping[str, float]

_PODS: Final = "pods"
_MOST_PODS: Final = 110.0


@dataclass(slots=True)
class NodeInfo:
    """A node and what its pods take of it."""

    node: Json
    allocatable: Amounts
    used: Counter[str] = field(default_factory=Counter)

    def obstacles(self, wanted: Amounts) -> Iterator[str]:
        """Yield why a pod that wants so much cannot come here, in kube-scheduler's words."""
        spec = self.node.get("spec") or {}
        if spec.get("unschedulable"):
            yield "node(s) were unschedulable"
        for taint in spec.get("taints") or ():
            if taint.get("effect") in {"NoSchedule", "NoExecute"}:
                yield f"node(s) had taint {{{taint['key']}: {taint.get('value', '')}}}, that the pod didn't tolerate"
        if self.used[_PODS] + 1 > self.allocatable.get(_PODS, _MOST_PODS):
            yield "Too many pods"
        for name, amount in wanted.items():
            if amount > self.allocatable.get(name, 0.0) - self.used[name]:
                yield f"Insufficient {name}"


class Snapshot:
    """Nodes, and the pods on them; pods that are being bound count as if they were.

    Args:
        ignored: resources that are not counted.
    """

    def __init__(self, ignored: frozenset[str]) -> None:
        self._ignored = ignored
        self._nodes: dict[str, NodeInfo] = {}
        self._pods: dict[str, tuple[str, Counter[str]]] = {}
        self._orphans: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Nodes by name."""
        return self._nodes

    def set_nodes(self, items: Iterable[Json]) -> None:
        """Take in all nodes."""
        wanted = {item["metadata"]["name"]: item for item in items}
        for name in self._nodes.keys() - wanted.keys():
            self.remove_node(name)
        for item in wanted.values():
            self.set_node(item)

    def set_node(self, item: Json) -> bool:
        """Take in one node, and return whether anything changed that may make room for a pod."""
        name = item["metadata"]["name"]
        before = self._nodes.get(name)
        if before is not None and _properties(before.node) == _properties(item):
            before.node = item
            return False
        allocatable = _amounts((item.get("status") or {}).get("allocatable") or {})
        self._nodes[name] = NodeInfo(item, allocatable, self._used(name))
        return True

    def remove_node(self, name: str) -> None:
        """Forget a node; what its pods take is kept for when it comes back."""
        info = self._nodes.pop(name, None)
        if info is not None:
            self._orphans[name] = info.used

    def set_pod(self, pod: Json) -> None:
        """Take in a pod; one that has ended, or is on no node, takes nothing."""
        uid, node = PodRef.of(pod).uid, node_name(pod)
        if is_finished(pod) or not node:
            self.remove_pod(uid)
        elif self._pods.get(uid, ("", None))[0] != node:
            self.assume(pod, node)

    def assume(self, pod: Json, node: str) -> None:
        """Count a pod on a node."""
        uid = PodRef.of(pod).uid
        self.remove_pod(uid)
        amounts = Counter({_PODS: 1.0, **self.wanted(pod)})
        self._pods[uid] = (node, amounts)
        self._used(node).update(amounts)

    def remove_pod(self, uid: str) -> None:
        """Count a pod no more."""
        node, amounts = self._pods.pop(uid, ("", Counter()))
        if node:
            self._used(node).subtract(amounts)

    def has_pod(self, uid: str) -> bool:
        """Return whether a pod is counted."""
        return uid in self._pods

    def keep_pods(self, uids: Collection[str]) -> None:
        """Count no other pods any more than these."""
        for uid in self._pods.keys() - set(uids):
            self.remove_pod(uid)

    def wanted(self, pod: Json) -> dict[str, float]:
        """Return what a pod asks for and is counted."""
        running: Counter[str] = Counter()
        init: dict[str, float] = {}
        for one in containers(pod.get("spec") or {}):
            amounts = _amounts((one.body.get("resources") or {}).get("requests") or {})
            if one.role is Role.INIT:
                init |= {name: max(amount, init.get(name, 0.0)) for name, amount in amounts.items()}
            else:
                running.update(amounts)
        names = (running.keys() | init.keys()) - self._ignored
        return {name: max(running[name], init.get(name, 0.0)) for name in sorted(names)}

    def _used(self, node: str) -> Counter[str]:
        info = self._nodes.get(node)
        return info.used if info is not None else self._orphans[node]


def _properties(node: Json) -> tuple[object, ...]:
    """Return what of a node scheduling depends on; annotations are not of it, so a node lock moves no pod."""
    spec, status, metadata = (node.get(key) or {} for key in ("spec", "status", "metadata"))
    wanted = ((spec, "unschedulable"), (spec, "taints"), (status, "allocatable"), (metadata, "labels"))
    return tuple(part.get(key) for part, key in wanted)


def _amounts(quantities: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for name, quantity in quantities.items():
        try:
            found[name] = float(parse_quantity(quantity))
        except QuantityError:
            continue
    return found
