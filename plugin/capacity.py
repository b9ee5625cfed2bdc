"""Shares in the node's capacity, so much of them that it never binds: the scheduler alone decides.

Who meets a resource that the node does not have passes over it, mostly. Kubelets before 1.31 do so for containers only,
and refuse a pod with such an init container (kubernetes/kubernetes#124255). kube-scheduler from 1.32 on, when a node
changes, wakes only those waiting pods that the node could serve with everything they ask for, and there it forgets what
its extender told it to ignore: a pod that waited for a slot would wait on for five minutes.
"""

from collections.abc import Sequence

from protocol.devices import DeviceInfo
from protocol.names import RESOURCE_CORES, RESOURCE_MEMORY
from protocol.pods import Json
from protocol.quantity import QuantityError, parse_quantity


def due_capacity(node: Json, devices: Sequence[DeviceInfo]) -> dict[str, str]:
    """Return the capacity that the node's status should get, empty when it has it or needs none.

    A node without GPUs gets none, but what it once had is kept right.

    Args:
        node: this machine's Node object.
        devices: its GPUs.
    """
    found = (node.get("status") or {}).get("capacity") or {}
    wanted = share_capacity(devices)
    if not devices and not wanted.keys() & found.keys():
        return {}
    return {name: value for name, value in wanted.items() if not _is(found.get(name), value)}


def _is(found: object, value: str) -> bool:
    # The API server has its own spelling: 1000 comes back as 1k.
    try:
        return parse_quantity(found) == parse_quantity(value)
    except QuantityError:
        return False


def share_capacity(devices: Sequence[DeviceInfo]) -> dict[str, str]:
    """Return all memory of the GPUs in MiB, and 100 percent for each slot.

    Not 100 percent for each GPU: shares are rounded down to whole CUs, so their percentages can add up to more.
    """
    return {
        RESOURCE_MEMORY: str(sum(device.memory_mib for device in devices)),
        RESOURCE_CORES: str(sum(100 * device.count for device in devices)),
    }
