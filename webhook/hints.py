"""What only the cluster knows, as warnings: a pod that fits no node that there is.

The nodes are watched beside the server. A request never waits for the API server, and without data there is no hint.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing

from kube.client import KubeClient
from kube.listwatch import Change, list_watch
from kube.paths import NODES
from protocol.demand import ContainerDemand, DemandError, containers, read_demand
from protocol.devices import DeviceInfo, RegisterError, decode_register
from protocol.names import NODE_REGISTER, RESOURCE_GPU, RESOURCE_MEMORY
from protocol.pods import Json, annotations
from webhook.pod import Pod

Devices = tuple[DeviceInfo, ...]


class ClusterHints:
    """The GPUs of all nodes, as far as they are known."""

    def __init__(self) -> None:
        self._nodes: dict[str, Devices] | None = None

    def replace(self, nodes: Iterable[Json]) -> None:
        """Know these nodes and no others."""
        self._nodes = {}
        for node in nodes:
            self.put(node)

    def put(self, node: Json) -> None:
        """Know a node as it is now."""
        if self._nodes is not None:
            self._nodes[_name(node)] = _devices(node)

    def drop(self, node: Json) -> None:
        """Forget a node."""
        if self._nodes is not None:
            self._nodes.pop(_name(node), None)

    @property
    def known(self) -> bool:
        """Whether the nodes have been read at all."""
        return self._nodes is not None

    def warnings(self, pod: Pod) -> list[str]:
        """Return what speaks against a GPU pod's ever being scheduled; nothing as long as nothing is known."""
        if self._nodes is None:
            return []
        equipped = [devices for devices in self._nodes.values() if devices]
        if not equipped:
            return ["no node has registered an AMD GPU: the pod waits until one does"]
        most = max(len(devices) for devices in equipped)
        largest = max(device.memory_mib for devices in equipped for device in devices)
        fields = {field.position: field.path for field in containers(pod.spec, pod.spec_path)}
        return [text for demand in _demands(pod) for text in _excess(demand, fields, most, largest)]


async def watch_nodes(client: KubeClient, hints: ClusterHints) -> None:
    """Keep hints up to date for ever; the API server's absence only delays them."""
    async with aclosing(list_watch(client, NODES)) as events:
        async for event in events:
            if not isinstance(event, Change):
                hints.replace(event.items)
            elif event.kind == "DELETED":
                hints.drop(event.item)
            else:
                hints.put(event.item)


def _excess(demand: ContainerDemand, fields: Mapping[int, str], most: int, largest: int) -> Iterator[str]:
    limits = f"{fields[demand.position]}.resources.limits"
    if demand.gpus > most:
        yield f"{limits}[{RESOURCE_GPU}]: no node has so many GPUs: the most is {most}"
    if demand.memory_mib is not None and demand.memory_mib > largest:
        yield f"{limits}[{RESOURCE_MEMORY}]: no node has a GPU of that much memory: the largest has {largest} MiB"


def _demands(pod: Pod) -> tuple[ContainerDemand, ...]:
    try:
        return read_demand(pod.spec, pod.spec_path)
    except DemandError:
        return ()


def _devices(node: Json) -> Devices:
    try:
        return decode_register(annotations(node).get(NODE_REGISTER, "[]"))
    except RegisterError:
        # HAMi marks a node that left with a text that is no JSON.
        return ()


def _name(node: Json) -> str:
    return str((node.get("metadata") or {}).get("name", ""))
