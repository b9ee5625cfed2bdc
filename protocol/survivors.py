"""Pods that ended for the cluster while their processes still run: `amd-vgpu.io/survivors` on the node.

A pod that was deleted by force is gone from the API server at once, and no annotation says any more what its processes
hold. The device plugin remembers, and says so in a JSON array on the Node object, until the last process is gone:

    [{"namespace": "ml", "name": "train", "uid": "...", "gpus": {"<id>": {"mem": 16384, "cus": "0-75"}}}]

`gpus` is null where nobody knows any more what the processes hold.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from protocol.cuset import CuSetError, format_ids, parse_ids
from protocol.pods import PodRef

_MOST_MIB: Final = 2**31 - 1


class SurvivorsError(ValueError):
    """The annotation cannot be read, so nobody knows what is still held."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is held of one GPU: MiB of its memory, and CU ids."""

    memory_mib: int
    cus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survivor:
    """A pod that is over and whose processes still run.

    Attributes:
        pod: which.
        parts: what it holds by device id, or None when nobody knows.
    """

    pod: PodRef
    parts: Mapping[str, Part] | None

    def __str__(self) -> str:
        return f"{self.pod} (uid {self.pod.uid}), which is over and still has processes"


def encode_survivors(survivors: Iterable[Survivor]) -> str:
    """Return the annotation's text; the same survivors give the same text."""
    ordered = sorted(survivors, key=lambda one: one.pod.uid)
    return json.dumps([_entry(one) for one in ordered], separators=(",", ":"))


def decode_survivors(text: str) -> tuple[Survivor, ...]:
    """Return the survivors of a node; none for an empty text, which stands for no annotation.

    Raises:
        SurvivorsError: with what is wrong.
    """
    if not text:
        return ()
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SurvivorsError(f"not JSON: {text[:80]!r}") from error
    if not isinstance(entries, list):
        raise SurvivorsError(f"not a JSON array: {text[:80]!r}")
    return tuple(_survivor(entry) for entry in entries)


def encode_parts(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Return the JSON object for what is held, by device id."""
    return {key: {"mem": part.memory_mib, "cus": format_ids(sorted(part.cus))} for key, part in parts.items()}


def decode_parts(entries: object) -> dict[str, Part]:
    """Return what a JSON object says is held, by device id.

    Raises:
        SurvivorsError: with the device id and what is wrong.
    """
    if not isinstance(entries, dict):
        raise SurvivorsError(f"gpus: {str(entries)[:80]!r}: must be an object")
    return {str(key): _part(str(key), entry) for key, entry in entries.items()}


def _entry(survivor: Survivor) -> dict[str, Any]:
    pod = survivor.pod
    gpus = None if survivor.parts is None else encode_parts(survivor.parts)
    return {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "gpus": gpus}


def _survivor(entry: object) -> Survivor:
    if not isinstance(entry, dict):
        raise SurvivorsError(f"{str(entry)[:80]!r}: must be an object")
    names = [entry.get(key) for key in ("namespace", "name", "uid")]
    if not all(isinstance(name, str) and name for name in names):
        raise SurvivorsError(f"{str(entry)[:80]!r}: must have namespace, name and uid")
    gpus = entry.get("gpus")
    return Survivor(PodRef(*map(str, names)), None if gpus is None else decode_parts(gpus))


def _is_amount(value: object) -> TypeGuard[int]:
    # More than this is not a number that anybody could reckon with.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_MIB


def _part(device_id: str, entry: object) -> Part:
    memory, cus = (entry.get("mem"), entry.get("cus")) if isinstance(entry, dict) else (None, None)
    if not _is_amount(memory) or not isinstance(cus, str):
        raise SurvivorsError(
            f"gpus[{device_id!r}]: {str(entry)[:80]!r}: must have mem, a number of MiB, and cus, a list"
        )
    try:
        return Part(memory, parse_ids(cus) if cus else ())
    except CuSetError as error:
        raise SurvivorsError(f"gpus[{device_id!r}]: {error}") from error
