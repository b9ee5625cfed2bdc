"""Which nodes have room for a pod, and how good each of them is: from usage to answers, no I/O."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from protocol.placement import Refusal
from protocol.policy import Policy
from protocol.usage import GpuUsage
from scheduler.nominations import Nominations
from scheduler.request import Request
from scheduler.reservations import Reservations
from scheduler.wire import MAX_SCORE

Usages = Mapping[str, GpuUsage]
_Answers = dict[str, tuple[Usages, Refusal | None]]

NOT_REGISTERED: Final = Refusal("node has no registered AMD GPU", permanent=True)
_BINDS_A_POINT: Final = 2
"""Binds under way that weigh as much as one of the 10 points by which a fuller, or emptier, node is preferred."""
_SHAPES_KEPT: Final = 64
_NEARNESS: Final = 6
"""Of MAX_SCORE: more than half, so that no policy outweighs it."""
T = TypeVar("T")
JUDGE_SECONDS: Final = 1.0
"""A pod of a hundred containers takes some 0.05 s on a node of many GPUs; meanwhile nobody else is answered, and the
Lease is not renewed."""
NOT_LOOKED_AT: Final = Refusal(
    f"node not looked at: the pod's containers take longer than {JUDGE_SECONDS:g} s to place"
)
PROMISED: Final = Refusal("GPU room is promised to a pod that is being bound")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The nodes with room, and for each other node why it has none.

    Attributes:
        fitting: nodes whose room is sure.
        open: nodes that have room unless another pod, which may yet end elsewhere, ends there.
        refused: all other nodes.
    """

    fitting: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether no node has room as yet, and some were not looked at."""
        return not self.fitting and not self.open and NOT_LOOKED_AT in self.refused.values()

    def reasons(self, *, permanent: bool) -> dict[str, str]:
        """Return the reasons by node of those that no other pod's end could help, or of the others."""
        refused = {**self.refused, **dict.fromkeys(self.open, PROMISED)}
        return {node: refusal.reason for node, refusal in refused.items() if refusal.permanent is permanent}


class Fits:
    """Judges nodes, and remembers the answer for each shape of pod until a node's usage changes.

    A large cluster is asked about the same few shapes again and again, and between two pods only a few nodes change.

    Args:
        reservations: what is promised.
        nominations: what is kept for pods that others are evicted for.
        clock: monotonic seconds.
    """

    def __init__(
        self, reservations: Reservations, nominations: Nominations, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._reservations = reservations
        self._nominations = nominations
        self._known: OrderedDict[Hashable, _Answers] = OrderedDict()

    def forget(self, node: str) -> None:
        """Forget what was found about a node."""
        for known in self._known.values():
            known.pop(node, None)

    def judge(self, request: Request, nodes: Iterable[str]) -> Verdict:
        """Return which of the nodes have room for the pod.

        Nodes that are not come to within JUDGE_SECONDS are refused for that. What was found is remembered, so the next
        try gets further.

        Args:
            request: of the pod.
            nodes: names of the candidates.
        """
        verdict, end = Verdict(), self._clock() + JUDGE_SECONDS
        room = self._reservations.room(but=request.pod.uid, beside=self._nominations.ahead_of(request))
        known = _of_shape(self._known, request.shape)
        for node in nodes:
            if self._clock() > end:
                verdict.refused[node] = NOT_LOOKED_AT
                continue
            refusal = _refusal(known, request, node, room.sure(node))
            if refusal is None:
                verdict.fitting.append(node)
                continue
            if not refusal.permanent and room.undecided(node):
                refusal = request.obstacle(room.likely(node))
            if refusal is None:
                verdict.open.append(node)
            else:
                verdict.refused[node] = refusal
        return verdict


def _of_shape(known: "OrderedDict[Hashable, dict[str, T]]", shape: Hashable) -> dict[str, T]:
    """Return what is remembered of a shape of pod, by node, and forget the shape that was asked for longest ago."""
    answers = known.setdefault(shape, {})
    known.move_to_end(shape)
    if len(known) > _SHAPES_KEPT:
        known.popitem(last=False)
    return answers


def _refusal(known: _Answers, request: Request, node: str, usages: Usages) -> Refusal | None:
    before = known.get(node)
    # A usage that changed is another object; the old one is kept alive here, so the identity is not used again.
    if before is not None and before[0] is usages:
        return before[1]
    refusal = request.obstacle(usages) if usages else NOT_REGISTERED
    known[node] = (usages, refusal)
    return refusal


class Scores:
    """Scores of nodes, 0 to 10, remembered until a node's usage changes.

    The fuller a node's GPUs the better to pack, the emptier the better to spread. For a pod that needs several GPUs
    this decides only among nodes that are alike in whether one NUMA node has all of them: those score 6 to 10, the
    others 0 to 4.
    """

    def __init__(self, usages: Callable[[str], Usages]) -> None:
        self._usages = usages
        self._loads: dict[str, tuple[Usages, float]] = {}
        self._near: OrderedDict[Hashable, dict[str, tuple[Usages, bool]]] = OrderedDict()

    def forget(self, node: str) -> None:
        """Forget what was found about a node."""
        self._loads.pop(node, None)
        for near in self._near.values():
            near.pop(node, None)

    def score(self, node: str, request: Request) -> int:
        """Return a node's score for a pod."""
        return self.scorer(request)(node)

    def scorer(self, request: Request) -> Callable[[str], int]:
        """Return what gives the score of a node for a pod: for many nodes it looks at the pod once."""
        several, packs = request.needs_several, request.policies.node is Policy.BINPACK

        def score(node: str) -> int:
            usages = self._usages(node)
            if not usages:
                return 0
            load = self._load(node, usages)
            wish = load if packs else 1 - load
            if not several:
                return round(MAX_SCORE * wish)
            near = self._is_near(node, usages, request)
            return round((MAX_SCORE - _NEARNESS) * wish) + _NEARNESS * near

        return score

    def _load(self, node: str, usages: Usages) -> float:
        before = self._loads.get(node)
        if before is None or before[0] is not usages:
            before = self._loads[node] = (usages, sum(map(_load, usages.values())) / len(usages))
        return before[1]

    def _is_near(self, node: str, usages: Usages, request: Request) -> bool:
        known = _of_shape(self._near, request.shape)
        before = known.get(node)
        if before is None or before[0] is not usages:
            before = known[node] = (usages, request.numa_nodes(usages) == 1)
        return before[1]


def less_queue(score: int, binds: int) -> int:
    """Return a node's score when so many pods are being bound to it.

    A node serves one pod after the other. In a burst all pods would want the same full node, and wait for it while
    others have nothing to do.

    Args:
        score: of the node by itself, 0 to 10.
        binds: how many binds are under way on it.
    """
    return max(0, score - binds // _BINDS_A_POINT)


def _load(usage: GpuUsage) -> float:
    memory = usage.memory_mib / max(1, usage.device.memory_mib)
    cus = len(usage.cus) / max(1, usage.device.cu_count)
    return min(1.0, max(memory, cus))
