"""Which nodes have room for a pod, and how good each of them is: from usage to answers, no I/O."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from protocol.placement import Placement, Refusal
from protocol.policy import Policy
from protocol.usage import GpuUsage
from scheduler.request import Request
from scheduler.wire import MAX_SCORE

Usages = Mapping[str, GpuUsage]

NOT_REGISTERED: Final = Refusal("node has no registered AMD GPU", permanent=True)
_SHAPES_KEPT: Final = 64
PROMISED: Final = Refusal("GPU room is promised to a pod that is being bound")


class Room(Protocol):
    """What is taken on nodes, promises included; see `Reservations`."""

    def sure_usages(self, node: str, *, but: str) -> Usages: ...  # noqa: D102
    def likely_usages(self, node: str, *, but: str) -> Usages: ...  # noqa: D102
    def undecided(self, node: str, *, but: str) -> bool: ...  # noqa: D102


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

    def reasons(self, *, permanent: bool) -> dict[str, str]:
        """Return the reasons by node of those that no other pod's end could help, or of the others."""
        refused = {**self.refused, **dict.fromkeys(self.open, PROMISED)}
        return {node: refusal.reason for node, refusal in refused.items() if refusal.permanent is permanent}


class Fits:
    """Judges nodes, and remembers the answer for each shape of pod until a node's usage changes.

    A large cluster is asked about the same few shapes again and again, and between two pods only a few nodes change.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._known: OrderedDict[Hashable, dict[str, tuple[Usages, Placement | Refusal]]] = OrderedDict()

    def judge(self, request: Request, nodes: Iterable[str]) -> Verdict:
        """Return which of the nodes have room for the pod.

        Args:
            request: of the pod.
            nodes: names of the candidates.
        """
        verdict = Verdict()
        own = request.pod.uid
        known = self._answers(request.shape)
        for node in nodes:
            outcome = self._outcome(known, request, node, self._room.sure_usages(node, but=own))
            if isinstance(outcome, Placement):
                verdict.fitting.append(node)
                continue
            if not outcome.permanent and self._room.undecided(node, but=own):
                outcome = request.place(self._room.likely_usages(node, but=own))
            if isinstance(outcome, Refusal):
                verdict.refused[node] = outcome
            else:
                verdict.open.append(node)
        return verdict

    def _answers(self, shape: Hashable) -> dict[str, tuple[Usages, Placement | Refusal]]:
        known = self._known.setdefault(shape, {})
        self._known.move_to_end(shape)
        if len(self._known) > _SHAPES_KEPT:
            self._known.popitem(last=False)
        return known

    @staticmethod
    def _outcome(
        known: dict[str, tuple[Usages, Placement | Refusal]], request: Request, node: str, usages: Usages
    ) -> Placement | Refusal:
        before = known.get(node)
        # A usage that changed is another object; the old one is kept alive here, so the identity is not used again.
        if before is not None and before[0] is usages:
            return before[1]
        outcome = request.place(usages) if usages else NOT_REGISTERED
        known[node] = (usages, outcome)
        return outcome


class Scores:
    """Scores of nodes, remembered until a node's usage changes."""

    def __init__(self, usages: Callable[[str], Usages]) -> None:
        self._usages = usages
        self._loads: dict[str, tuple[Usages, float]] = {}

    def score(self, node: str, policy: Policy) -> int:
        """Return a node's score, 0 to 10: the fuller its GPUs the better to pack, the emptier the better to spread."""
        usages = self._usages(node)
        if not usages:
            return 0
        before = self._loads.get(node)
        if before is None or before[0] is not usages:
            before = self._loads[node] = (usages, sum(map(_load, usages.values())) / len(usages))
        return round(MAX_SCORE * (before[1] if policy is Policy.BINPACK else 1 - before[1]))


def _load(usage: GpuUsage) -> float:
    memory = usage.memory_mib / max(1, usage.device.memory_mib)
    cus = len(usage.cus) / max(1, usage.device.cu_count)
    return min(1.0, max(memory, cus))
