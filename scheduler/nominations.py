"""Pods for which others are evicted: their room is theirs until they are bound.

Victims take their time to end, and somebody makes new ones of them, which may be tried before the pod that they gave
way to. kube-scheduler has its own filters count that pod on the node that it is nominated for, against every pod that
is not of higher priority. Of the extender's room it knows nothing, so the same is done here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protocol.demand import DemandError
from protocol.placement import Refusal
from protocol.pods import Json, PodRef, is_ending, nominated_node, priority
from protocol.usage import GpuUsage, charge
from scheduler.quota import NOTHING
from scheduler.request import Policies, Request
from scheduler.reservations import Promise
from scheduler.state import ClusterState


@dataclass(frozen=True, slots=True)
class _Known:
    pod: Json
    usages: Mapping[str, GpuUsage]
    ahead: tuple[Promise, ...]
    promise: Promise | None


class Nominations:
    """The pods that wait for victims to end.

    Args:
        state: the watched cluster.
        policies: preferences, for pods that do not name their own.
    """

    def __init__(self, state: ClusterState, policies: Policies) -> None:
        self._state = state
        self._policies = policies
        self._known: dict[str, _Known] = {}

    def ahead_of(self, request: Request) -> tuple[Promise, ...]:
        """Return the room of the others that a pod may not take: those of its own priority or a higher one.

        Of two that are both nominated and of one priority the older goes first: neither would else ever go.
        """
        self._look_again()
        own = self._known.get(request.pod.uid)
        return tuple(
            other.promise
            for other in self._known.values()
            if other is not own and other.promise is not None and _goes_first(other, request.priority, own)
        )

    def _look_again(self) -> None:
        before, self._known = self._known, {}
        promises: defaultdict[str, tuple[Promise, ...]] = defaultdict(tuple)
        for pod in sorted(self._state.nominated(), key=_rank):
            uid, node = PodRef.of(pod).uid, nominated_node(pod)
            usages, ahead = self._state.usages(node), promises[node]
            known = before.get(uid)
            # The same promise while nothing has changed, as what nodes have left is remembered by their promises.
            if known is None or known.pod is not pod or known.usages is not usages or known.ahead != ahead:
                known = _Known(pod, usages, ahead, self._promise(pod, ahead))
            self._known[uid] = known
            if known.promise is not None:
                promises[node] = (*ahead, known.promise)

    def _promise(self, pod: Json, ahead: Iterable[Promise]) -> Promise | None:
        """Return a promise of what the pod gets when those have ended that are ending now; None where that is nothing.

        Until then its CUs count once, though the ending have them too, and its memory counts beside theirs.
        """
        node = nominated_node(pod)
        try:
            request = Request.of(pod, self._policies)
        except DemandError:
            return None
        ending = [
            uid
            for uid, tenant in self._state.pods_on(node).items()
            if is_ending(tenant) and priority(tenant) < request.priority
        ]
        usages = self._state.usages_without(node, ending)
        for other in ahead:
            if other.placement is not None:
                charge(usages, other.placement.holding(other.request.demands), other.request.pod)
        placement = request.place(usages)
        if isinstance(placement, Refusal):
            return None
        return Promise(request, frozenset({node}), NOTHING, math.inf, placement=placement)


def _goes_first(other: _Known, own_priority: int, own: _Known | None) -> bool:
    return priority(other.pod) >= own_priority if own is None else _rank(other.pod) < _rank(own.pod)


def _rank(pod: Json) -> tuple[int, str, str]:
    """Return the key by which the pod comes first that goes first: by priority, then by age."""
    created = str((pod.get("metadata") or {}).get("creationTimestamp") or "")
    return -priority(pod), created, PodRef.of(pod).uid
