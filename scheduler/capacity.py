"""How much of the GPUs is held and free, summed up so that it stays small in a cluster of any size: no I/O."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from protocol.usage import GpuUsage


class Part(StrEnum):
    """What is summed up."""

    OPEN = "open"
    BLOCKED = "blocked"
    UNHEALTHY = "unhealthy"
    CUS_HELD = "CUs held"
    CUS_FREE = "CUs free"
    MIB_HELD = "MiB held"
    MIB_FREE = "MiB free"
    NONE_FREE = "0%"
    FREE_25 = "1-25%"
    FREE_50 = "26-50%"
    FREE_75 = "51-75%"
    FREE_99 = "76-99%"
    ALL_FREE = "100%"


STATES = (Part.OPEN, Part.BLOCKED, Part.UNHEALTHY)
SHARES = (Part.NONE_FREE, Part.FREE_25, Part.FREE_50, Part.FREE_75, Part.FREE_99, Part.ALL_FREE)

Sums = Counter[tuple[str, Part]]
"""By product and part: GPUs, CUs or MiB."""


def sums(usages: Iterable[GpuUsage]) -> Sums:
    """Return the sums over some GPUs. What is free on a GPU that nobody can have is not counted as free."""
    result: Sums = Counter()
    for usage in usages:
        device = usage.device
        state = Part.UNHEALTHY if not device.healthy else Part.BLOCKED if usage.blocked else Part.OPEN
        free_cus = len(usage.free_cus) if state is Part.OPEN else 0
        free_mib = usage.free_memory_mib if state is Part.OPEN else 0
        product = device.product
        result[product, state] += 1
        result[product, _share(free_cus, device.cu_count)] += 1
        result[product, Part.CUS_HELD] += len(usage.cus)
        result[product, Part.CUS_FREE] += free_cus
        result[product, Part.MIB_HELD] += usage.memory_mib
        result[product, Part.MIB_FREE] += free_mib
    return result


def _share(free: int, total: int) -> Part:
    if free == 0:
        return Part.NONE_FREE
    if free >= total:
        return Part.ALL_FREE
    return (Part.FREE_25, Part.FREE_50, Part.FREE_75, Part.FREE_99)[min(3, (100 * free - 1) // (25 * total))]
