"""Which nodes have room for a pod, and how good each of them is. Pure: from usage to answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from protocol.placement import Placement, Refusal
from protocol.policy import Policy
from protocol.usage import GpuUsage
from scheduler.request import Request
from scheduler.wire import MAX_SCORE

Usages = Mapping[str, GpuUsage]

NOT_REGISTERED: Final = Refusal("node has no registered AMD GPU", permanent=True)
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


def judge(request: Request, nodes: Iterable[str], room: Room) -> Verdict:
    """Return which of the nodes have room for the pod.

    Args:
        request: of the pod.
        nodes: names of the candidates.
        room: what is taken of the nodes' GPUs.
    """
    verdict = Verdict()
    own = request.pod.uid
    for node in nodes:
        outcome = _outcome(request, room.sure_usages(node, but=own))
        if isinstance(outcome, Placement):
            verdict.fitting.append(node)
            continue
        if not outcome.permanent and room.undecided(node, but=own):
            outcome = _outcome(request, room.likely_usages(node, but=own))
        if isinstance(outcome, Refusal):
            verdict.refused[node] = outcome
        else:
            verdict.open.append(node)
    return verdict


def _outcome(request: Request, usages: Usages) -> Placement | Refusal:
    return request.place(usages) if usages else NOT_REGISTERED


def score(usages: Usages, policy: Policy) -> int:
    """Return a node's score, 0 to 10: the fuller its GPUs the better to pack, the emptier the better to spread."""
    if not usages:
        return 0
    load = sum(_load(usage) for usage in usages.values()) / len(usages)
    return round(MAX_SCORE * (load if policy is Policy.BINPACK else 1 - load))


def _load(usage: GpuUsage) -> float:
    memory = usage.memory_mib / max(1, usage.device.memory_mib)
    cus = len(usage.cus) / max(1, usage.device.cu_count)
    return min(1.0, max(memory, cus))
