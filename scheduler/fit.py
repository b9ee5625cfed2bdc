"""Which nodes have room for a pod, and how good each of them is. Pure: from usage to answers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocol.demand import ContainerDemand
from protocol.placement import Placement, Refusal, place
from protocol.policy import Policy
from protocol.selection import ANY, Selection
from protocol.usage import GpuUsage
from scheduler.wire import MAX_SCORE

Usages = Mapping[str, GpuUsage]

NOT_REGISTERED = Refusal("node has no registered AMD GPU", permanent=True)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The nodes with room, and for each other node why it has none."""

    fitting: list[str]
    refused: dict[str, Refusal]

    def reasons(self, *, permanent: bool) -> dict[str, str]:
        """Return the reasons by node of those that no other pod's end could help, or of the others."""
        return {node: refusal.reason for node, refusal in self.refused.items() if refusal.permanent is permanent}


def judge(
    demands: Sequence[ContainerDemand],
    nodes: Iterable[str],
    usages: Callable[[str], Usages],
    policy: Policy,
    selection: Selection = ANY,
) -> Verdict:
    """Return which of the nodes have room for the pod.

    Args:
        demands: of the pod's containers.
        nodes: names of the candidates.
        usages: gives the usage of a node's GPUs by device id.
        policy: which GPUs of a node are preferred.
        selection: which GPUs the pod accepts.
    """
    verdict = Verdict([], {})
    for node in nodes:
        gpus = usages(node)
        outcome = place(demands, gpus.values(), policy, selection) if gpus else NOT_REGISTERED
        if isinstance(outcome, Placement):
            verdict.fitting.append(node)
        else:
            verdict.refused[node] = outcome
    return verdict


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
