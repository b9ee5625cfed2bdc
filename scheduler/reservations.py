"""Room that was promised by `filter` and is not yet seen as taken.

kube-scheduler filters one pod after the other, but binds them beside: the next pod is filtered before the last one's
annotations exist, let alone come back through the watch. Without reservations both would be promised the same room, and
the second bind would fail.

A promise names every node that `filter` offered, as kube-scheduler has yet to choose among them. The bind decides it.
Until then it may end on any of its nodes, so the room of a node is *sure* only if it suffices with all promises on it.
A promise ends when the pod is seen on its node, when its bind fails, or when no bind comes in time.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.placement import Placement
from protocol.usage import GpuUsage, charge
from scheduler.quota import NOTHING, Cost
from scheduler.request import Request

Usages = Mapping[str, GpuUsage]

BIND_WITHIN: Final = 2.0
"""Seconds after which a filtered pod that was not bound is taken to have failed elsewhere in kube-scheduler."""
SEEN_WITHIN: Final = 40.0
"""Seconds after a bind began within which it has ended, and its pod has come back through the watch."""


@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """Room for a pod on one of several nodes.

    Attributes:
        request: of the pod.
        nodes: one of which it will be.
        cost: what it takes of its namespace's quotas, wherever it ends.
        expires: when it ends by itself, on the clock of the reservations.
        settled: set when it has ended, or another has taken its place.
        placement: where it goes on the node, if that is known, whatever else is there as yet.
    """

    request: Request
    nodes: frozenset[str]
    cost: Cost
    expires: float
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class _Charged:
    """A node's usage with promises on it, as it was last counted."""

    before: Usages
    promises: tuple[Promise, ...]
    usages: Usages


class Room:
    """The usage of nodes with what is promised on them, at one moment.

    Args:
        usages: gives the usage of a node's GPUs by device id, as the watch shows it.
        promises: that count.
        charged: what was counted before, by node; kept up to date.
    """

    def __init__(
        self, usages: Callable[[str], Usages], promises: tuple[Promise, ...], charged: dict[str, _Charged]
    ) -> None:
        self._usages = usages
        self._charged = charged
        # Of a burst most promises are for one node: no other node must look at them.
        self._decided: defaultdict[str, list[Promise]] = defaultdict(list)
        self._open = [promise for promise in promises if len(promise.nodes) > 1]
        for promise in promises:
            if len(promise.nodes) == 1:
                self._decided[next(iter(promise.nodes))].append(promise)

    def sure(self, node: str) -> Usages:
        """Return a node's usage with all that is promised on it, whether or not it will end there."""
        usages = self._usages(node)
        promises = (*self._decided.get(node, ()), *(promise for promise in self._open if node in promise.nodes))
        if not promises or not usages:
            self._charged.pop(node, None)
            return usages
        known = self._charged.get(node)
        if known is None or known.before is not usages or known.promises != promises:
            known = self._charged[node] = _Charged(usages, promises, _charge(usages, promises))
        return known.usages

    def likely(self, node: str) -> Usages:
        """Return a node's usage with what can end nowhere else."""
        return self.likely_on(node, self._usages(node))

    def likely_on(self, node: str, usages: Usages) -> Usages:
        """Return another usage of a node with what can end nowhere else than on this node."""
        return _charge(usages, self._decided.get(node, ()))

    def undecided(self, node: str) -> bool:
        """Return whether a pod may yet end on this node or another."""
        return any(node in promise.nodes for promise in self._open)


def _charge(usages: Usages, promises: Iterable[Promise]) -> Usages:
    charged = {device_id: usage.copy() for device_id, usage in usages.items()}
    for promise in promises:
        placement = promise.placement or promise.request.place(charged)
        if isinstance(placement, Placement):
            charge(charged, placement.holding(promise.request.demands), promise.request.pod)
    return charged


class Reservations:
    """Promises by pod.

    Args:
        usages: gives the usage of a node's GPUs by device id, as the watch shows it.
        is_seen: tells whether the watch shows a pod, by uid, with what it holds.
        clock: monotonic seconds.

    Attributes:
        expired: how many promises ended because nothing came of them in time.
    """

    def __init__(
        self,
        usages: Callable[[str], Usages],
        is_seen: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usages = usages
        self._is_seen = is_seen
        self._clock = clock
        self.expired = 0
        self._promises: dict[str, Promise] = {}
        self._charged: dict[str, _Charged] = {}

    def promise(self, request: Request, nodes: frozenset[str], cost: Cost = NOTHING) -> None:
        """Reserve room for a pod on one of these nodes, in place of what it was promised before."""
        self.drop(request.pod.uid)
        if nodes:
            self._add(Promise(request, nodes, cost, self._clock() + BIND_WITHIN))

    def decide(self, uid: str, node: str) -> None:
        """Note that the pod is being bound to this node; it stays reserved until it is seen there, or dropped."""
        promise = self._promises.get(uid)
        if promise is not None:
            self.drop(uid)
            self._add(Promise(promise.request, frozenset({node}), promise.cost, self._clock() + SEEN_WITHIN))

    def drop(self, uid: str) -> None:
        """End a pod's promise."""
        promise = self._promises.pop(uid, None)
        if promise is not None:
            promise.settled.set()

    def room(self, *, but: str = "", beside: Iterable[Promise] = ()) -> "Room":
        """Return the room of all nodes as it is now.

        Args:
            but: uid of the pod that asks, whose own promise does not count.
            beside: what others were promised elsewhere; it counts for pods that have no promise here.
        """
        live = tuple(self._live(but))
        uids = {promise.request.pod.uid for promise in live}
        others = tuple(promise for promise in beside if promise.request.pod.uid not in uids)
        return Room(self._usages, (*live, *others), self._charged)

    def forget(self, node: str) -> None:
        """Forget what was counted of a node."""
        self._charged.pop(node, None)

    def counts(self) -> dict[str, int]:
        """Return how many promises there are: `open` between several nodes, and `decided` for one."""
        decided = self.decided().total()
        return {"open": len(self._promises) - decided, "decided": decided}

    def decided(self) -> Counter[str]:
        """Return for how many pods each node is decided: those that are being bound to it, or can go nowhere else."""
        return Counter(node for promise in self._live("") if len(promise.nodes) == 1 for node in promise.nodes)

    def holds(self, uid: str) -> bool:
        """Return whether a pod has a promise now."""
        return any(promise.request.pod.uid == uid for promise in self._live(""))

    def promised(self, namespace: str, *, but: str = "") -> Iterator[Promise]:
        """Yield the promises to pods of a namespace, except to the pod of a uid."""
        return (promise for promise in self._live(but) if promise.request.pod.namespace == namespace)

    async def any_settled(self, *, but: str = "") -> None:
        """Return when one of the undecided promises was decided, dropped or has expired."""
        open_ones = [promise for promise in self._live(but) if len(promise.nodes) > 1]
        if not open_ones:
            return
        waits = [asyncio.ensure_future(promise.settled.wait()) for promise in open_ones]
        patience = max(0.0, min(promise.expires for promise in open_ones) - self._clock())
        try:
            await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _add(self, promise: Promise) -> None:
        self._promises[promise.request.pod.uid] = promise

    def _live(self, but: str) -> Iterator[Promise]:
        now = self._clock()
        for uid, promise in list(self._promises.items()):
            seen = self._is_seen(uid)
            if seen or promise.expires <= now:
                self.expired += not seen
                self.drop(uid)
            elif uid != but:
                yield promise
