"""What a namespace's quotas have left: what its running pods hold and its promised pods will hold, counted when asked.

As with the GPUs themselves there is no counter that could drift. What one pod costs is remembered as long as its object
is the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.placement import Refusal
from protocol.pods import Json, is_finished, node_name
from protocol.selection import ANY, Selection
from scheduler.quota import NOTHING, Cost, Quota, ScopeFacts, cost_asked, cost_of_pod
from scheduler.request import Request
from scheduler.reservations import Reservations
from scheduler.state import ClusterState


@dataclass(frozen=True, slots=True)
class _Counted:
    pod: Json
    facts: ScopeFacts
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Held:
    """What pods on nodes took of a quota when the namespace's pods were last counted."""

    quota: Quota
    at: int
    cost: Cost


class Budget:
    """Says which pods a namespace's quotas do not admit."""

    def __init__(self, state: ClusterState, reservations: Reservations) -> None:
        self._state = state
        self._reservations = reservations
        self._counted: dict[str, dict[str, _Counted]] = {}
        self._held: dict[tuple[str, str], _Held] = {}

    def refusals(self, request: Request, nodes: Sequence[str]) -> dict[str, Refusal]:
        """Return why a quota does not admit the pod, for each of these nodes on which it does not.

        A pod that names its memory costs the same everywhere. One that takes all of it costs what the node's largest
        GPU has, among those that it accepts.

        No eviction helps: as with the API server's own quotas a pod's priority gives it no room in its namespace.
        """
        quotas = [quota for quota in self._state.quotas(request.pod.namespace) if quota.counts(request.facts)]
        if not quotas:
            return {}
        used = [self._used(quota, request.pod.uid) for quota in quotas]
        refusals: dict[str, Refusal] = {}
        for size, alike in self._by_whole_mib(request, nodes).items():
            cost = cost_asked(request.demands, size)
            reasons = (quota.excess(taken, cost) for quota, taken in zip(quotas, used, strict=True))
            reason = next(filter(None, reasons), "")
            if reason:
                refusals.update(dict.fromkeys(alike, Refusal(reason, permanent=True)))
        return refusals

    def cost(self, request: Request, nodes: Iterable[str]) -> Cost:
        """Return what a pod costs at most that may end on any of these nodes; nothing in a namespace without quotas."""
        if not self._state.quotas(request.pod.namespace):
            return NOTHING
        if _names_its_memory(request):
            return cost_asked(request.demands, 0)
        largest = max((self._largest_mib(node, request.selection) for node in nodes), default=0)
        return cost_asked(request.demands, largest)

    def _by_whole_mib(self, request: Request, nodes: Sequence[str]) -> dict[int, Sequence[str]]:
        """Return the nodes by the MiB of a whole GPU there; all together if the pod takes none whole."""
        if _names_its_memory(request):
            return {0: nodes}
        by_size: defaultdict[int, list[str]] = defaultdict(list)
        for node in nodes:
            by_size[self._largest_mib(node, request.selection)].append(node)
        return dict(by_size)

    def _used(self, quota: Quota, but: str) -> Cost:
        """Return what is used of a quota, one pod left out."""
        promises = self._reservations.promised(quota.namespace, but=but)
        taken = [promise.cost for promise in promises if quota.counts(promise.request.facts)]
        total = _sum([self._held_of(quota), *taken])
        own = self._counted[quota.namespace].get(but)
        if own is None or not quota.counts(own.facts):
            return total
        return Cost(total.memory_mib - own.cost.memory_mib, total.cores_percent - own.cost.cores_percent)

    def _held_of(self, quota: Quota) -> Cost:
        """Return what the pods on nodes take of a quota; added up again when they or the quota have changed."""
        at = self._state.changed_at(quota.namespace)
        before = self._held.get((quota.namespace, quota.name))
        if before is not None and before.quota is quota and before.at == at:
            return before.cost
        total = _sum([one.cost for one in self._recount(quota.namespace).values() if quota.counts(one.facts)])
        self._held[quota.namespace, quota.name] = _Held(quota, at, total)
        return total

    def _recount(self, namespace: str) -> dict[str, _Counted]:
        before, pods = self._counted.get(namespace, {}), self._state.pods_of(namespace)
        counted = self._counted[namespace] = {
            uid: known if (known := before.get(uid)) is not None and known.pod is pod else self._count(pod)
            for uid, pod in pods.items()
        }
        return counted

    def _count(self, pod: Json) -> _Counted:
        cost = NOTHING if is_finished(pod) else cost_of_pod(pod, self._largest_mib(node_name(pod), ANY))
        return _Counted(pod, ScopeFacts.of(pod), cost)

    def _largest_mib(self, node: str, selection: Selection) -> int:
        devices = (usage.device for usage in self._state.usages(node).values())
        return max((device.memory_mib for device in devices if not selection.obstacle(device)), default=0)


def _names_its_memory(request: Request) -> bool:
    return all(demand.memory_mib is not None for demand in request.demands if demand.gpus)


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(sum(cost.memory_mib for cost in costs), sum(cost.cores_percent for cost in costs))
