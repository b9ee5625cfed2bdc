"""What a pod was given, as its annotations say it.

`hami.io/amd-devices-to-allocate` and `hami.io/amd-devices-allocated` hold one segment per container, init containers
first: `<id>,<type>,<memMiB>,<cuCount>:` for each GPU, then `;`. A container without GPUs has an empty segment, so that
the index of a segment is the index of its container. `hami.io/amd-cu-allocated` holds the CU ids:
`{"<id>": "<CU id list>"}`, the containers' parts one after the other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.cuset import CuSetError, parse_ids

_FIELDS: Final = 4


class AllocationError(ValueError):
    """An allocation annotation cannot be read, or does not belong to the pod that carries it."""


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A container's share of one GPU: which, of what product, MiB of memory and number of CUs."""

    device_id: str
    product: str
    memory_mib: int
    cu_count: int


Segments = tuple[tuple[DeviceShare, ...], ...]
"""For each container, init containers first, its shares in the order in which it sees the GPUs."""


def encode_segments(segments: Sequence[Sequence[DeviceShare]]) -> str:
    """Return the annotation's text, with an empty segment for every container without GPUs."""
    return "".join("".join(_encode_share(share) for share in segment) + ";" for segment in segments)


def decode_segments(text: str) -> Segments:
    """Return the segments as they stand.

    Raises:
        AllocationError: a share without its four fields, or with a field that is no number.
    """
    return tuple(_decode_segment(segment) for segment in text.removesuffix(";").split(";")) if text else ()


def align_segments(segments: Segments, wanting: Sequence[bool]) -> Segments:
    """Return the segments so that each stands at its container's position.

    HAMi 2.10 leaves out the empty segments of AMD pods; then the others belong, in order, to the containers that ask
    for GPUs.

    Args:
        segments: as decoded.
        wanting: for each container, init containers first, whether it asks for GPUs.

    Raises:
        AllocationError: the segments match the containers neither way.
    """
    if [bool(segment) for segment in segments] == list(wanting):
        return segments
    filled = [segment for segment in segments if segment]
    if len(filled) != sum(wanting):
        raise AllocationError(f"{len(filled)} containers have devices, {sum(wanting)} ask for them")
    remaining = iter(filled)
    return tuple(next(remaining) if wants else () for wants in wanting)


def encode_cus(texts: Mapping[str, str]) -> str:
    """Return the annotation `hami.io/amd-cu-allocated` for the CU id lists by device id."""
    return json.dumps(texts, separators=(",", ":"))


def decode_cus(text: str) -> dict[str, tuple[int, ...]]:
    """Return the CU ids by device id, in the order in which they stand.

    Raises:
        AllocationError: no JSON object of strings, or a list that is no CU list.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AllocationError(f"not JSON: {text[:80]!r}") from error
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        raise AllocationError(f"not a JSON object of strings: {text[:80]!r}")
    try:
        return {device_id: parse_ids(ids) for device_id, ids in entries.items()}
    except CuSetError as error:
        raise AllocationError(str(error)) from error


def _encode_share(share: DeviceShare) -> str:
    return f"{share.device_id},{share.product},{share.memory_mib},{share.cu_count}:"


def _decode_segment(segment: str) -> tuple[DeviceShare, ...]:
    # Old HAMi wrote `,,0,0:` for a container without GPUs.
    shares = (_decode_share(text) for text in segment.split(":") if text.strip())
    return tuple(share for share in shares if share.device_id)


def _decode_share(text: str) -> DeviceShare:
    fields = [field.strip() for field in text.split(",")]
    if len(fields) < _FIELDS:
        raise AllocationError(f"{text[:80]!r}: must be <id>,<type>,<memMiB>,<cuCount>")
    numbers = fields[2:_FIELDS]
    # At most nine digits: int() takes a hostile megabyte of them, and no GPU needs more.
    if not all(number.isascii() and number.isdigit() and len(number) <= 9 for number in numbers):  # noqa: PLR2004
        raise AllocationError(f"{text[:80]!r}: memory and CU count must be whole numbers")
    return DeviceShare(fields[0], fields[1], int(numbers[0]), int(numbers[1]))
