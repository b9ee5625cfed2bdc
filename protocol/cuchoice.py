"""The choice of compute units.

The kernel deals the bits of a CU mask out round-robin over the GPU's XCCs (accelerator dies): id b runs on XCC b mod X.
Work groups go round the XCCs too, so a kernel runs at X times the speed of the XCC with the fewest CUs; and an XCC
without a single bit runs unmasked, on all its CUs. On WGP hardware (RDNA) the ids 2k and 2k+1 are one work-group
processor, and a split pair makes the queue run on all CUs.

The rule, in this order:

1. a contiguous window: best fit, the lowest of the smallest free run that holds it. Its counts per XCC differ by one
   at most, wherever it starts;
2. else as even over the XCCs as the free ids allow: always one more from the XCC that has the fewest so far, of these
   from the one with the most free ids, and there the lowest id;
3. no choice where an XCC would stay empty, or fewer ids are free than asked.

What holds for every result, and is tested as a property: exactly as many distinct ids as asked, all of them free, each
XCC hit, pairs whole; and None only where no set of that size has these properties. So a request is never refused for
fragmentation.
"""

from collections.abc import Collection, Iterable

from protocol.cuset import ranges
from protocol.devices import DeviceInfo


def choose_cus(free: Collection[int], count: int, device: DeviceInfo) -> tuple[int, ...] | None:
    """Return `count` CU ids out of `free`, sorted, or None where there is no valid choice.

    Args:
        free: ids that nobody else holds.
        count: as `DeviceInfo.cus_for` gives it.
        device: for its CU count, XCC count and pairing.
    """
    if count == device.cu_count:
        return tuple(range(count)) if len(set(free)) == count else None
    if not device.divisible or count < device.least_cus:
        return None
    width = 2 if device.wgp else 1
    if count % width:
        return None
    units = _free_units(free, width)
    chosen = _best_fit_window(units, count // width) or _even_choice([], units, count // width, device.xcc_count)
    return _expand(chosen, width) if chosen and _hits_every_xcc(chosen, device.xcc_count) else None


def can_choose(free: Collection[int], count: int, device: DeviceInfo) -> bool:
    """Return whether `choose_cus` would find a choice, without making it: much cheaper, and asked for every GPU."""
    if count == device.cu_count:
        return len(free) == count
    width = 2 if device.wgp else 1
    if not device.divisible or count < device.least_cus or count % width or len(free) < count:
        return False
    units = free if width == 1 else _free_units(free, width)
    return len(units) * width >= count and _can_hit_every_xcc(units, device.cu_count // width, device.xcc_count)


def can_extend(held: Collection[int], free: Collection[int], count: int, device: DeviceInfo) -> bool:
    """Return whether `extend_cus` would find enough."""
    if not held:
        return can_choose(free, count, device)
    width = 2 if device.wgp else 1
    missing = max(0, count - len(held))
    return not missing or (missing % width == 0 and len(_free_units(free, width)) * width >= missing)


def extend_cus(held: Collection[int], free: Collection[int], count: int, device: DeviceInfo) -> tuple[int, ...] | None:
    """Return ids out of `free` that make `held` up to `count`, evenly over the XCCs, or None where too few are free.

    Args:
        held: a valid choice, or nothing.
        free: ids that nobody holds.
        count: the size to reach; no ids are returned when `held` has it.
        device: the GPU.
    """
    if not held:
        return choose_cus(free, count, device)
    width = 2 if device.wgp else 1
    missing = max(0, count - len(held))
    if not missing:
        return ()  # also the only answer for a GPU that is not divisible: who holds any of it holds all of it
    if missing % width:
        return None
    extra = _even_choice(_free_units(held, width), _free_units(free, width), missing // width, device.xcc_count)
    return None if extra is None else _expand(extra, width)


def _free_units(free: Iterable[int], width: int) -> list[int]:
    """Return the free ids, or on WGP hardware the numbers of the pairs that are wholly free, sorted."""
    ids = set(free)
    return sorted(ids) if width == 1 else sorted(cu // 2 for cu in ids if cu % 2 == 0 and cu + 1 in ids)


def _expand(units: Iterable[int], width: int) -> tuple[int, ...]:
    return tuple(sorted(unit * width + offset for unit in units for offset in range(width)))


def _best_fit_window(units: Iterable[int], count: int) -> list[int] | None:
    runs = [(last - first + 1, first) for first, last in ranges(units) if last - first + 1 >= count]
    if not runs:
        return None
    _, first = min(runs)
    return list(range(first, first + count))


def _even_choice(held: Iterable[int], units: Iterable[int], count: int, xccs: int) -> list[int] | None:
    """Return `count` units so that together with those held they are as even over the XCCs as can be."""
    pools: list[list[int]] = [[] for _ in range(xccs)]
    for unit in units:
        pools[unit % xccs].append(unit)
    taken = [0] * xccs
    for unit in held:
        taken[unit % xccs] += 1
    for pool in pools:
        pool.reverse()  # so that pop() gives the lowest
    chosen: list[int] = []
    for _ in range(count):
        open_xccs = [xcc for xcc in range(xccs) if pools[xcc]]
        if not open_xccs:
            return None
        xcc = min(open_xccs, key=lambda xcc: (taken[xcc], -len(pools[xcc]), xcc))
        chosen.append(pools[xcc].pop())
        taken[xcc] += 1
    return chosen


def _can_hit_every_xcc(free: Collection[int], units: int, xccs: int) -> bool:
    # Fewer are taken than any XCC has: none of them can be empty, and nothing need be looked at.
    return units - len(free) < units // xccs or _hits_every_xcc(free, xccs)


def _hits_every_xcc(units: Iterable[int], xccs: int) -> bool:
    return len({unit % xccs for unit in units}) == xccs
