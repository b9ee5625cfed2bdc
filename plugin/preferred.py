"""Which replicas the kubelet had better take, where nobody but the kubelet chooses.

Left to itself it takes any, and a container that asks for two GPUs may get two replicas of one.
"""

from collections.abc import Collection, Mapping, Sequence

from plugin.discovery import Gpu


def preferred(available: Collection[str], included: Sequence[str], size: int, gpus: Mapping[str, Gpu]) -> list[str]:
    """Return the device ids to take, as many as `size` or as there are.

    One after another comes from the GPU of which the container has least so far, then of which others have least, then
    that is at a NUMA node which the container has already; among equals from the first in KFD's order.

    Args:
        available: device ids that can be taken.
        included: those among them that the kubelet takes in any case.
        size: how many are wanted.
        gpus: the GPU of each device id; available ids that are not in it are passed over.
    """
    free = _by_gpu(set(available) - set(included), gpus)
    taken = list(included[:size])
    while free and len(taken) < size:
        mine = [gpus[device_id] for device_id in taken if device_id in gpus]
        best = _best(free, mine, gpus)
        taken.append(free[best.id].pop())
        if not free[best.id]:
            del free[best.id]
    return taken


def _best(free: Mapping[str, Sequence[str]], mine: Sequence[Gpu], gpus: Mapping[str, Gpu]) -> Gpu:
    candidates = [gpus[device_ids[-1]] for device_ids in free.values()]
    return min(candidates, key=lambda gpu: _rank(gpu, mine, len(free[gpu.id])))


def _rank(gpu: Gpu, mine: Sequence[Gpu], free: int) -> tuple[int, int, bool, int]:
    far = all(gpu.info.numa != other.info.numa for other in mine)
    return sum(gpu.id == other.id for other in mine), gpu.info.count - free, far, gpu.info.index


def _by_gpu(device_ids: Collection[str], gpus: Mapping[str, Gpu]) -> dict[str, list[str]]:
    """Return the ids by their GPU's, each list with the next to take at its end."""
    result: dict[str, list[str]] = {}
    for device_id in [one for one in reversed(list(gpus)) if one in device_ids]:
        result.setdefault(gpus[device_id].id, []).append(device_id)
    return result
