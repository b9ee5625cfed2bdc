"""What the extender reads of a pod that is to be placed."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Self

from protocol.demand import ContainerDemand, DemandError, read_demand
from protocol.placement import Placement, Refusal, numa_nodes, obstacle, place
from protocol.pods import Json, PodRef, annotations, priority
from protocol.policy import Policy
from protocol.selection import GPU_POLICY, NODE_POLICY, Selection, read_policy, read_selection, selection_faults
from protocol.usage import GpuUsage
from scheduler.quota import ScopeFacts


@dataclass(frozen=True, slots=True)
class Policies:
    """Preferences of the cluster, for pods that do not name their own: full nodes or empty ones, and GPUs likewise."""

    node: Policy = Policy.BINPACK
    gpu: Policy = Policy.BINPACK


@dataclass(frozen=True, slots=True)
class Request:
    """A pod that asks for GPUs.

    Attributes:
        pod: which pod.
        demands: of its containers.
        selection: which GPUs it accepts.
        policies: its preferences.
        facts: what a quota's scopes ask of it.
        priority: of its priority class.
    """

    pod: PodRef
    demands: tuple[ContainerDemand, ...]
    selection: Selection
    policies: Policies
    facts: ScopeFacts
    priority: int

    @classmethod
    def of(cls, pod: Json, defaults: Policies) -> Self:
        """Return a pod's request.

        Raises:
            DemandError: its limits ask for what nobody can give, or its annotations are too long.
        """
        notes = annotations(pod)
        faults = selection_faults(notes)
        if faults:
            raise DemandError(faults)
        policies = Policies(
            node=read_policy(notes, NODE_POLICY, defaults.node), gpu=read_policy(notes, GPU_POLICY, defaults.gpu)
        )
        demands = read_demand(pod.get("spec") or {})
        return cls(PodRef.of(pod), demands, read_selection(notes), policies, ScopeFacts.of(pod), priority(pod))

    @property
    def shape(self) -> Hashable:
        """What decides where it fits: equal for all pods of one template."""
        return (self.demands, self.selection, self.policies.gpu)

    @property
    def asks(self) -> bool:
        """Whether it asks for any GPU at all."""
        return any(demand.gpus for demand in self.demands)

    def place(self, usages: Mapping[str, GpuUsage]) -> Placement | Refusal:
        """Return where it goes on a node with this usage by device id."""
        return place(self.demands, usages.values(), self.policies.gpu, self.selection)

    @property
    def needs_several(self) -> bool:
        """Whether it may end on more than one GPU."""
        return sum(demand.gpus for demand in self.demands) > 1

    def numa_nodes(self, usages: Mapping[str, GpuUsage]) -> int:
        """Return over how many NUMA nodes its GPUs would spread on a node with this usage; 0 where it does not fit."""
        return numa_nodes(self.demands, usages.values(), self.policies.gpu, self.selection)

    def obstacle(self, usages: Mapping[str, GpuUsage]) -> Refusal | None:
        """Return why it does not fit on a node with this usage by device id, or None where it does."""
        return obstacle(self.demands, usages.values(), self.policies.gpu, self.selection)
