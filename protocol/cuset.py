"""Sets of compute units (CUs), and their text: `0-75,80`.

A CU id is the bit number in a queue's CU mask: 0 to the GPU's CU count minus one. The text is at once the CU list of
`HSA_CU_MASK` and the value of the annotation `hami.io/amd-cu-allocated`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

MAX_CU: Final = 1024
"""The kernel takes masks of at most 1024 bits, so no CU id reaches this (`KFD_IOC_SET_CU_MASK`)."""

_ELEMENT: Final = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)


class CuSetError(ValueError):
    """The text is no CU list, or names a CU twice, or one that cannot exist."""


def ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ids as runs `(first, last)`, both inclusive, in the order given.

    Only neighbours in the given order are joined: sort first where order carries no meaning.
    """
    runs: list[tuple[int, int]] = []
    for cu in ids:
        if runs and runs[-1][1] + 1 == cu:
            runs[-1] = (runs[-1][0], cu)
        else:
            runs.append((cu, cu))
    return runs


def format_ids(ids: Iterable[int]) -> str:
    """Return the text of a sequence of CU ids, in its order; the empty sequence gives the empty string."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges(ids))


def format_parts(parts: Sequence[Iterable[int]]) -> str:
    """Return the text of several containers' CUs, each part sorted and merged by itself.

    The parts are joined, not merged with each other, so that `0-3` and `4-7` stay two ranges and can be cut apart.
    """
    return ",".join(text for text in (format_ids(sorted(part)) for part in parts) if text)


def parse_ids(text: str, *, limit: int = MAX_CU) -> tuple[int, ...]:
    """Return the CU ids of a list such as `0-3,8`, in its order.

    Args:
        text: elements `N` or `N-M` with N <= M, joined with commas; blanks around an element are allowed.
        limit: every id must be smaller, normally the GPU's CU count.

    Raises:
        CuSetError: a malformed element, an inverted range, an id beyond the limit, an id named twice, an empty list.
    """
    ids: list[int] = []
    for element in text.split(","):
        match = _ELEMENT.fullmatch(element.strip())
        if match is None:
            raise CuSetError(f"{element.strip()!r} in CU list {text[:120]!r}: must be N or N-M")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= limit:
            raise CuSetError(f"{element.strip()!r} in CU list {text[:120]!r}: must rise and stay below {limit}")
        ids.extend(range(first, last + 1))
        if len(ids) > limit:
            raise CuSetError(f"CU list {text[:120]!r} names a CU twice")
    if len(set(ids)) != len(ids):
        raise CuSetError(f"CU list {text[:120]!r} names a CU twice")
    return tuple(ids)
