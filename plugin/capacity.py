"""Shares in the node's capacity, for kubelets that ask for it and people that want to see it.

A kubelet passes over resources that no node has, such as `amd.com/gpumem`; but before 1.31 it does so for containers
only and refuses a pod with such an init container (kubernetes/kubernetes#124255). For these the node is given capacity
that never binds: the scheduler alone decides. On others it is an option, so that `kubectl describe node` shows what of
the GPUs is asked for.
"""

import re
from collections.abc import Sequence
from typing import Final

from protocol.devices import DeviceInfo
from protocol.names import RESOURCE_CORES, RESOURCE_MEMORY
from protocol.pods import Json
from protocol.quantity import QuantityError, parse_quantity

_FIXED_IN: Final = (1, 31)
_VERSION: Final = re.compile(r"v(\d{1,4})\.(\d{1,4})\b", re.ASCII)


def due_capacity(node: Json, devices: Sequence[DeviceInfo], *, always: bool = False) -> dict[str, str]:
    """Return the capacity that the node's status should get, empty when it has it or needs none.

    What an older kubelet was once given is kept right after its upgrade too.

    Args:
        node: this machine's Node object.
        devices: its GPUs.
        always: whatever kubelet the node has.
    """
    found = (node.get("status") or {}).get("capacity") or {}
    wanted = share_capacity(devices)
    if not (always or _needs_capacity(node) or wanted.keys() & found.keys()):
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


def _needs_capacity(node: Json) -> bool:
    version = ((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or ""
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) < _FIXED_IN
