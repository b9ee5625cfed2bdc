"""The simulation: pods come and go in virtual time; each is judged, scored and placed by the scheduler's own code.

What is simplified: bindings take no time, ties between nodes go to the first one, and all nodes are looked at.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.demand import DemandError
from protocol.names import RESOURCE_GPU
from protocol.placement import Placement
from scheduler.fit import Fits, Scores
from scheduler.nominations import Nominations
from scheduler.request import Policies, Request
from scheduler.reservations import Reservations
from scheduler.state import ClusterState
from simulate.cluster import SimulatedCluster
from simulate.load import Arrival
from simulate.nodes import SimulatedNode
from simulate.packing import Filling, Packing, imbalances

NO_SLOTS: Final = f"Insufficient {RESOURCE_GPU}"
"""kube-scheduler's words for a node whose kubelet has no device left."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that found its place: where, when, and how long it waited (seconds)."""

    pod: str
    node: str
    at: float
    waited: float
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that did not find one.

    Attributes:
        pod: namespace and name.
        message: why it was refused at once; empty for one that waited in vain.
        reasons: why it fits on no node in the end, and on how many nodes each.
    """

    pod: str
    message: str = ""
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """What came of a simulation under one pair of policies."""

    policies: Policies
    packing: Packing
    placed: list[Placed] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    imbalances: list[float] = field(default_factory=list)
    without_gpus: int = 0


@dataclass(slots=True)
class _Waiting:
    arrival: Arrival
    request: Request


class Simulation:
    """One run.

    Args:
        nodes: the cluster.
        policies: for pods that do not name their own.
    """

    def __init__(self, nodes: Sequence[SimulatedNode], policies: Policies) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._cluster = SimulatedCluster(nodes)
        # Nobody is promised anything here: a pod is placed before the next one is judged.
        reservations = Reservations(self._cluster.usages, lambda _uid: True, lambda: 0.0)
        self._fits = Fits(reservations, Nominations(ClusterState(), policies))
        self._scores = Scores(self._cluster.usages)
        devices = tuple(device for node in nodes for device in node.devices)
        self._result = Result(policies, Packing(devices))
        for node in nodes:
            self._result.packing.change(Filling(), Filling.of(self._cluster.usages(node.name).values()))
        self._ends: list[tuple[float, int, str, Request]] = []
        self._order = itertools.count()
        self._waiting: list[_Waiting] = []
        self._now = 0.0

    def run(self, arrivals: Sequence[Arrival]) -> Result:
        """Let the pods come, in their order, and go; return what came of it."""
        self._now = arrivals[0].at if arrivals else 0.0
        for arrival in arrivals:
            self._end_until(arrival.at)
            self._pass(arrival.at)
            self._arrive(arrival)
        self._end_until(float("inf"))
        self._result.refused += [
            Refused(str(one.request.pod), reasons=self._reasons(one.request)) for one in self._waiting
        ]
        return self._result

    def _arrive(self, arrival: Arrival) -> None:
        try:
            request = Request.of(arrival.pod, self._result.policies)
        except DemandError as error:
            metadata = arrival.pod["metadata"]
            self._result.refused.append(Refused(f"{metadata['namespace']}/{metadata['name']}", str(error)))
            return
        if not request.asks:
            self._result.without_gpus += 1
            return
        waiting = _Waiting(arrival, request)
        if not self._try(waiting, self._nodes):
            self._waiting.append(waiting)

    def _end_until(self, moment: float) -> None:
        """Let pods end whose time is over by then; then those that wait are tried again, in their order."""
        while self._ends and self._ends[0][0] <= moment:
            at = self._ends[0][0]
            self._pass(at)
            freed = []
            while self._ends and self._ends[0][0] == at:
                _, _, node, request = heapq.heappop(self._ends)
                self._leave(node, request)
                freed.append(node)
            self._retry(dict.fromkeys(freed))

    def _retry(self, freed: Collection[str]) -> None:
        """Try all that wait on the nodes on which there is more room now: on the others they do not fit as before."""
        failed: set[Hashable] = set()
        still_waiting = []
        for one in self._waiting:
            # Room only becomes less from one pod to the next, so what does not fit once does not fit again.
            if one.request.shape in failed or not self._try(one, freed):
                failed.add(one.request.shape)
                still_waiting.append(one)
        self._waiting = still_waiting

    def _leave(self, node: str, request: Request) -> None:
        before = Filling.of(self._cluster.usages(node).values())
        self._cluster.remove(node, request)
        self._result.packing.change(before, Filling.of(self._cluster.usages(node).values()))

    def _try(self, waiting: _Waiting, nodes: Collection[str]) -> bool:
        """Place a pod if it fits on any of the nodes, and return whether it does."""
        request = waiting.request
        fitting = self._fits.judge(request, self._cluster.with_slots(nodes, request)).fitting
        if not fitting:
            return False
        node = max(fitting, key=lambda name: self._scores.score(name, request))
        match request.place(self._cluster.usages(node)):
            case Placement() as placement:
                self._place(waiting, node, placement)
                return True
            case refusal:
                raise AssertionError(f"{request.pod} fits on {node} and cannot be placed there: {refusal.reason}")

    def _reasons(self, request: Request) -> dict[str, int]:
        """Return why a pod fits on no node, and on how many nodes each reason holds."""
        room = self._cluster.with_slots(self._nodes, request)
        reasons = Counter(refusal.reason for refusal in self._fits.judge(request, room).refused.values())
        if len(room) < len(self._nodes):
            reasons[NO_SLOTS] = len(self._nodes) - len(room)
        return dict(reasons)

    def _place(self, waiting: _Waiting, node: str, placement: Placement) -> None:
        before = Filling.of(self._cluster.usages(node).values())
        self._cluster.add(node, waiting.request, placement)
        self._result.packing.change(before, Filling.of(self._cluster.usages(node).values()))
        self._result.imbalances += imbalances(placement, self._nodes[node].devices)
        waited = self._now - waiting.arrival.at
        pod = str(waiting.request.pod)
        self._result.placed.append(Placed(pod, node, self._now, waited, placement.annotations()))
        if waiting.arrival.duration is not None:
            end = self._now + waiting.arrival.duration
            heapq.heappush(self._ends, (end, next(self._order), node, waiting.request))

    def _pass(self, moment: float) -> None:
        self._result.packing.pass_time(moment - self._now)
        self._now = moment
