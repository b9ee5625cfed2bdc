"""Whom a pod of higher priority displaces: the fewest pods, of the lowest priority, whose end gives it its GPUs.

kube-scheduler tries which pods must go for its own filters, and asks here about every node where that would do. It
knows nothing of the GPUs behind a node's slots, so it may name nobody, or pods that share another GPU. For each node:

1. With all pods of lower priority gone, and those that kube-scheduler named, the pod must fit; else the node is out.
2. The others come back one by one, the most important first, as long as the pod fits.
3. Then those that kube-scheduler named, under the same condition, and if what its filters need them for is given by
   the remaining victims too. That can be told of resources only. A pod stays named that the extender does not know, as
   it has no GPU, and all do where ports, volumes, affinity or spreading may be the reason.

More important is, as to kube-scheduler, a pod of higher priority, then one that has run for longer. A pod that is
ending anyway is the least important.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Final

from protocol.claim import peak
from protocol.demand import Role, containers
from protocol.names import RESOURCE_CORES, RESOURCE_MEMORY
from protocol.pods import Json, is_ending, is_finished, priority
from protocol.quantity import QuantityError, parse_quantity
from protocol.usage import GpuUsage, charge_pod
from scheduler.fit import JUDGE_SECONDS
from scheduler.nominations import Nominations
from scheduler.request import Request
from scheduler.reservations import Reservations, Room
from scheduler.state import ClusterState
from scheduler.wire import PreemptArgs, Victims

_PODS: Final = "pods"
"""kube-scheduler counts pods as it counts resources."""
# Nobody but the extender counts these.
_UNCOUNTED: Final = frozenset({RESOURCE_MEMORY, RESOURCE_CORES})
# Volumes of these kinds no other pod can stand in the way of.
_OWN_VOLUMES: Final = frozenset({"name", "configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath"})
_UNKNOWN_START: Final = "~"  # after every time

Usages = Mapping[str, GpuUsage]


class Preemption:
    """Answers kube-scheduler's question whom to evict."""

    def __init__(
        self,
        state: ClusterState,
        reservations: Reservations,
        nominations: Nominations,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._state = state
        self._reservations = reservations
        self._nominations = nominations

    def victims(self, request: Request, args: PreemptArgs) -> dict[str, Victims]:
        """Return the victims by node; a node is left out if no eviction there helps.

        When one of the nodes has room by now without any victim, none is named at all: the pod only has to be
        scheduled again. Nodes that are not come to within JUDGE_SECONDS are left out.

        Args:
            request: of the pod, which asks for GPUs.
            args: what kube-scheduler asks.
        """
        room = self._reservations.room(but=request.pod.uid, beside=self._nominations.ahead_of(request))
        chosen, end = {}, self._clock() + JUDGE_SECONDS
        for node, named in args.victims.items():
            if self._clock() > end:
                break
            uids = self._on_node(request, args.pod, node, named.uids, room)
            if uids is None:
                continue
            if not uids:
                return {}
            chosen[node] = Victims(uids, min(named.pdb_violations, len(set(uids) & set(named.uids))))
        return chosen

    def _on_node(
        self, request: Request, pod: Json, node: str, named: Collection[str], room: Room
    ) -> tuple[str, ...] | None:
        tenants = self._state.pods_on(node)
        lower = [
            uid
            for uid, tenant in tenants.items()
            if not is_finished(tenant) and (uid in named or priority(tenant) < request.priority)
        ]
        trial = _Trial(request, node, room, self._state.usages_without(node, lower))
        if not trial.fits():
            return None
        lower.sort(key=lambda uid: _importance(tenants[uid]))
        gone = {uid: tenants[uid] for uid in lower}
        for uid in [uid for uid in lower if uid not in named]:
            if trial.fits_with(gone[uid]):
                del gone[uid]
        needs = _Needs.of(pod, [tenants[uid] for uid in named if uid in tenants])
        for uid in [uid for uid in lower if uid in named]:
            rest = [body for other, body in gone.items() if other != uid]
            if needs.are_met(gone[uid], rest) and trial.fits_with(gone[uid]):
                del gone[uid]
        # kube-scheduler wants them by decreasing priority.
        return (*gone, *(uid for uid in named if uid not in tenants))


class _Trial:
    """A node's usage to which pods come back, as long as the one that waits still fits."""

    def __init__(self, request: Request, node: str, room: Room, usages: Usages) -> None:
        self._request = request
        self._node = node
        self._room = room
        self._usages = usages

    def fits(self) -> bool:
        return self._has_room(self._usages)

    def fits_with(self, pod: Json) -> bool:
        """Let a pod come back if there is room for both; return whether it did."""
        usages = {device_id: usage.copy() for device_id, usage in self._usages.items()}
        charge_pod(usages, pod)
        if self._has_room(usages):
            self._usages = usages
            return True
        return False

    def _has_room(self, usages: Usages) -> bool:
        return self._request.obstacle(self._room.likely_on(self._node, usages)) is None


@dataclass(frozen=True, slots=True)
class _Needs:
    """What kube-scheduler named its victims for.

    Attributes:
        amounts: of each resource that must become free: what its victims have, and never more than the pod asks.
        by_amounts: whether resources are surely all that it named them for.
    """

    amounts: Mapping[str, int]
    by_amounts: bool

    @classmethod
    def of(cls, pod: Json, named: Collection[Json]) -> "_Needs":
        freed = _total(named)
        amounts = {name: min(amount, freed.get(name, 0)) for name, amount in _requests(pod, up=True).items()}
        return cls(amounts, _asks_for_resources_only(pod))

    def are_met(self, spared: Json, victims: Collection[Json]) -> bool:
        """Return whether a pod need not go if these go."""
        freed = _total(victims)
        enough = all(freed.get(name, 0) >= amount for name, amount in self.amounts.items())
        return self.by_amounts and enough and not _affinity(spared)


def _importance(pod: Json) -> tuple[bool, int, str]:
    """Return the key by which the most important pod comes first."""
    return is_ending(pod), -priority(pod), str((pod.get("status") or {}).get("startTime") or _UNKNOWN_START)


def _total(pods: Collection[Json]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in _requests(pod, up=False).items():
            total[name] = total.get(name, 0) + amount
    return total


def _requests(pod: Json, *, up: bool) -> dict[str, int]:
    """Return what kube-scheduler counts of a pod, in thousandths, rounded."""
    spec = pod.get("spec") or {}
    by_name: dict[str, dict[Role, list[int]]] = {}
    for container in containers(spec):
        resources = container.body.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name in amounts.keys() - _UNCOUNTED:
            by_role = by_name.setdefault(name, {role: [] for role in Role})
            by_role[container.role].append(_thousandths(amounts[name], up=up))
    total = {name: peak(by_role) for name, by_role in by_name.items()}
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + _thousandths(amount, up=up)
    return {**total, _PODS: 1}


def _thousandths(amount: object, *, up: bool) -> int:
    try:
        exact = parse_quantity(amount) * 1000
    except QuantityError:
        return 0
    return ceil(exact) if up else floor(exact)


def _asks_for_resources_only(pod: Json) -> bool:
    """Return whether no other filter of kube-scheduler that looks at pods can have to do with this one."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    ports = (port for container in containers(spec) for port in container.body.get("ports") or ())
    return not (
        _affinity(pod)
        or spec.get("topologySpreadConstraints")
        or any(port.get("hostPort") for port in ports)
        or any(volume.keys() - _OWN_VOLUMES for volume in spec.get("volumes") or ())
    )


def _affinity(pod: Json) -> bool:
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))
