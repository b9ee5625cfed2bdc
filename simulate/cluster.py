"""The simulated cluster: what is taken on its nodes, kept by the same functions by which the scheduler counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from protocol.demand import ContainerDemand, Role
from protocol.placement import Placement
from protocol.pods import Holding, PodRef
from protocol.usage import GpuUsage, charge
from scheduler.request import Request
from simulate.nodes import SimulatedNode

Usages = Mapping[str, GpuUsage]


@dataclass(slots=True)
class _Taken:
    node: SimulatedNode
    usages: dict[str, GpuUsage]
    free_slots: int
    holdings: dict[PodRef, Holding] = field(default_factory=dict)


class SimulatedCluster:
    """Nodes and the pods on them."""

    def __init__(self, nodes: Iterable[SimulatedNode]) -> None:
        self._nodes = {node.name: _Taken(node, _empty(node), node.slots) for node in nodes}

    @property
    def names(self) -> list[str]:
        """The nodes' names, in the order in which they were given."""
        return list(self._nodes)

    def usages(self, node: str) -> Usages:
        """Return what is taken on a node, by device id: another object whenever it has changed."""
        return self._nodes[node].usages

    def with_slots(self, nodes: Iterable[str], request: Request) -> list[str]:
        """Return the nodes whose kubelets have devices for a pod's containers: kube-scheduler counts these itself."""
        wanted = slots(request.demands)
        return [name for name in nodes if self._nodes[name].free_slots >= wanted]

    def add(self, node: str, request: Request, placement: Placement) -> None:
        """Put a pod on a node."""
        taken = self._nodes[node]
        holding = placement.holding(request.demands)
        usages = {
            device_id: usage.copy() if device_id in placement.parts else usage
            for device_id, usage in taken.usages.items()
        }
        charge(usages, holding, request.pod)
        taken.usages = usages
        taken.holdings[request.pod] = holding
        taken.free_slots -= slots(request.demands)

    def remove(self, node: str, request: Request) -> None:
        """Take a pod off its node."""
        taken = self._nodes[node]
        del taken.holdings[request.pod]
        taken.free_slots += slots(request.demands)
        usages = _empty(taken.node)
        for ref, holding in taken.holdings.items():
            charge(usages, holding, ref)
        taken.usages = usages


def _empty(node: SimulatedNode) -> dict[str, GpuUsage]:
    return {device.id: GpuUsage(device) for device in node.devices}


def slots(demands: Iterable[ContainerDemand]) -> int:
    """Return how many devices a pod takes of the kubelet's: init containers' are used again by those that follow."""
    by_role: Counter[Role] = Counter()
    init = 0
    for demand in demands:
        if demand.role is Role.INIT:
            init = max(init, demand.gpus)
        else:
            by_role[demand.role] += demand.gpus
    return max(by_role[Role.SIDECAR] + by_role[Role.APP], init)
