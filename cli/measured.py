"""What the program of `manifests/examples/validate` measured: one JSON line for each run."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cli.registers import Place, RegisterError, has_pairs, read_place
from protocol.allocation import AllocationError, decode_cus, decode_segments

_MARK: Final = "amd-vgpu-validate"
_VERSION: Final = 1


class ReportError(ValueError):
    """A line is a report and cannot be read."""


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """One GPU as a process saw it.

    Attributes:
        arch: such as `gfx942:sramecc+:xnack-`.
        pci: its address, which tells GPUs of one node apart.
        uuid: as AMD's runtime names it, such as `GPU-8e1bb56457addd1b`.
        places: where waves ran.
    """

    arch: str
    pci: str
    uuid: str
    places: frozenset[Place]

    @property
    def in_pairs(self) -> bool:
        """Whether each place is two CUs."""
        return has_pairs(self.arch)


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the program.

    Attributes:
        pod: its name.
        reversed: whether it turned the order of its GPUs round.
        visible: entries of ROCR_VISIBLE_DEVICES.
        mask: HSA_CU_MASK.
        allocated: ids of the GPUs that the scheduler gave to the pod, in its order.
        cus: the CU ids that it gave, by GPU id.
        gpus: as HIP numbers them.
    """

    pod: str
    reversed: bool
    visible: tuple[str, ...]
    mask: str
    allocated: tuple[str, ...]
    cus: Mapping[str, tuple[int, ...]]
    gpus: tuple[MeasuredGpu, ...]


def read_reports(lines: Iterable[str]) -> tuple[Report, ...]:
    """Return the reports among the lines of logs; other lines are passed over.

    Raises:
        ReportError: with the line's number and what is wrong.
    """
    return tuple(_reports(lines))


def _reports(lines: Iterable[str]) -> Iterator[Report]:
    for number, line in enumerate(lines, 1):
        # kubectl may put the pod's name in front.
        start = line.find(f'{{"{_MARK}"')
        if start < 0:
            continue
        try:
            yield _report(json.loads(line[start:]))
        except (ValueError, TypeError, KeyError, AllocationError, RegisterError, RecursionError) as error:
            raise ReportError(f"line {number}: {type(error).__name__}: {error}") from error


def _report(body: Mapping[str, Any]) -> Report:
    if body[_MARK] != _VERSION:
        raise ReportError(f"{_MARK}: {body[_MARK]!r}: must be {_VERSION}")
    segments = [segment for segment in decode_segments(str(body["allocated"])) if segment]
    if len(segments) != 1:
        raise ReportError(f"allocated: {body['allocated']!r}: must be the shares of one container")
    return Report(
        pod=str(body["pod"]),
        reversed=bool(body["reversed"]),
        visible=tuple(str(body["visible"]).split(",")),
        mask=str(body["mask"]),
        allocated=tuple(share.device_id for share in segments[0]),
        cus=decode_cus(str(body["cus"])),
        gpus=tuple(_gpu(gpu) for gpu in body["devices"]),
    )


def _gpu(body: Mapping[str, Any]) -> MeasuredGpu:
    arch = str(body["arch"])
    places = frozenset(read_place(arch, int(hw_id), int(xcc_id)) for hw_id, xcc_id in body["waves"])
    return MeasuredGpu(arch, str(body["pci"]).lower(), str(body["uuid"]), places)
