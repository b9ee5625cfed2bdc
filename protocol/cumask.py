"""`HSA_CU_MASK`: writing it, and reading it exactly as ROCr does.

ROCr fails open: on a syntax error, a repeated id or an empty list it drops the faulty set and all that follow, and says
nothing, so a wrong mask gives a container the whole GPU. What `write_mask` returns is therefore always read back.

Source: ROCr `core/util/flag.cpp`, `Flag::parse_masks`, the same in ROCm 5.2 to 7.x:

    value   := set (';' set)*        set := gpulist ':' culist
    gpulist := elem (',' elem)*      culist := elem (',' elem)* | '0x' hex digits
    elem    := N | N '-' M           with N <= M, decimal
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.cuset import format_ids


class MaskError(ValueError):
    """The mask would not mean what it should, so it must not be handed to a container."""


@dataclass(frozen=True, slots=True)
class RocrMask:
    """What ROCr makes of a value of `HSA_CU_MASK`.

    Attributes:
        masks: by GPU index after `ROCR_VISIBLE_DEVICES`, the enabled CU ids. A GPU that is missing is unrestricted.
        dropped: the rest of the value, from the first set that ROCr could not read; empty when all was read.
    """

    masks: Mapping[int, frozenset[int]]
    dropped: str


def write_mask(cus: Sequence[Sequence[int]], *, cu_counts: Sequence[int]) -> str:
    """Return the `HSA_CU_MASK` of a container.

    Args:
        cus: for each of the container's GPUs, in the order of `ROCR_VISIBLE_DEVICES`, its CU ids.
        cu_counts: for each of these GPUs how many CUs it has.

    Raises:
        MaskError: a GPU without CUs, an id that is repeated or beyond the GPU, or a text that ROCr would not read back
            as just these ids.
    """
    if not cus or len(cus) != len(cu_counts):
        raise MaskError(f"{len(cus)} CU lists for {len(cu_counts)} GPUs")
    for index, (ids, count) in enumerate(zip(cus, cu_counts, strict=True)):
        if not ids or len(set(ids)) != len(ids) or min(ids) < 0 or max(ids) >= count:
            raise MaskError(f"GPU {index}: CU ids {format_ids(ids)!r}: must be distinct, at least one, below {count}")
    text = ";".join(f"{index}:{format_ids(sorted(ids))}" for index, ids in enumerate(cus))
    read = read_mask(text, gpus=len(cus), cus=max(cu_counts))
    if read.dropped or [read.masks.get(index) for index in range(len(cus))] != [frozenset(ids) for ids in cus]:
        raise MaskError(f"{text!r} is not read back as it was meant")
    return text


def read_mask(text: str, *, gpus: int, cus: int) -> RocrMask:
    """Return what ROCr makes of `text`, its quirks included.

    Args:
        text: value of `HSA_CU_MASK`.
        gpus: how many GPUs the process sees.
        cus: the largest CU count among them.
    """
    sets = "".join(text.split()).upper().split(";")
    if sets and not sets[-1]:
        sets.pop()  # ROCr's splitter makes no element of what follows the last separator when nothing does
    masks: dict[int, frozenset[int]] = {}
    for position, entry in enumerate(sets):
        read = _read_set(entry, gpus=gpus, cus=cus)
        if read is None or any(gpu in masks for gpu in read[0]):
            return RocrMask(masks=masks, dropped=";".join(sets[position:]))
        masks.update(dict.fromkeys(*read))
    return RocrMask(masks=masks, dropped="")


def _read_set(entry: str, *, gpus: int, cus: int) -> tuple[list[int], frozenset[int]] | None:
    gpu_list, colon, cu_list = entry.partition(":")
    if not colon or ":" in cu_list:
        return None
    indices = _read_list(gpu_list, maximum=gpus)
    ids = _read_hex(cu_list, cus) if cu_list.startswith("0X") else _read_list(cu_list, maximum=cus)
    if not indices or not ids:
        return None
    return indices, frozenset(ids)


_ELEMENT: Final = re.compile(r"([0-9]*)(?:-([0-9]*))?", re.ASCII)


def _read_list(text: str, *, maximum: int) -> list[int] | None:
    """Read `elem (',' elem)*`. Ids above the maximum vanish; the maximum itself is kept (ROCr compares with `<=`)."""
    ids: list[int] = []
    for element in text.removesuffix(",").split(","):
        bounds = _read_element(element)
        if bounds is None:
            return None
        # Ids beyond the maximum are dropped anyway; the bound keeps a hostile range such as 0-4000000000 small.
        ids.extend(range(bounds[0], min(bounds[1], maximum) + 1))
        if len(set(ids)) != len(ids):
            return None
    return ids


def _read_element(element: str) -> tuple[int, int] | None:
    match = _ELEMENT.fullmatch(element)
    if match is None or not any(match.groups()):
        return None
    # `-3` reads as 0-3 and `3-` as 3: the missing number is not an error to ROCr.
    low = int(match[1] or 0)
    high = int(match[2]) if match[2] else low
    return None if high < low else (low, high)


def _read_hex(text: str, cus: int) -> list[int] | None:
    digits = text[2:]
    if re.fullmatch(r"[0-9A-F]+", digits, re.ASCII) is None:
        return None
    kept = (cus // 32 + 1) * 32
    number = int(digits, 16) & ((1 << kept) - 1)
    return [bit for bit in range(kept) if number >> bit & 1]
