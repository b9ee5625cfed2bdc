"""Judging measurements: do the pods run on the GPUs and compute units that they were given, and on no others? Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Final

from cli.measured import MeasuredGpu, Report
from cli.registers import Place
from protocol.cumask import read_mask
from protocol.cuset import MAX_CU, format_ids

_UUID: Final = "GPU-"
_PCI: Final = "PCI-"


class Outcome(Enum):
    """Of one point."""

    HOLDS = "holds"
    FAILS = "FAILS"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the validation, and what was seen."""

    name: str
    outcome: Outcome
    seen: str


def judge(reports: Sequence[Report]) -> tuple[Point, ...]:
    """Return the five points, in the order of the documentation."""
    straight = [report for report in reports if not report.reversed]
    several = [report for report in straight if len(report.allocated) > 1]
    return (
        _point("allocation order", (_allocation_order(report) for report in straight), "no pod was measured"),
        _point("index order", (_index_order(report) for report in several), "no pod with two GPUs was measured"),
        _point("mask on each GPU", (fault for report in straight for fault in _masks(report)), "no pod was measured"),
        _point("disjoint between pods", _overlaps(straight), "no GPU was shared by two of the measured pods"),
        _point("reversed order", _reversals(several, reports), "no pod with two GPUs was measured in both orders"),
    )


def _point(name: str, checks: Iterable[tuple[str, str]], without: str) -> Point:
    """Make a point of its checks: each says what it saw, and what is wrong with it or the empty string."""
    done = list(checks)
    if not done:
        return Point(name, Outcome.NOT_SHOWN, without)
    faults = [fault for _, fault in done if fault]
    if faults:
        return Point(name, Outcome.FAILS, "; ".join(faults))
    return Point(name, Outcome.HOLDS, "; ".join(seen for seen, _ in done))


def _allocation_order(report: Report) -> tuple[str, str]:
    """ROCR_VISIBLE_DEVICES names the allocated GPUs in their order; ranks are judged by the next point."""
    named = [entry for entry in report.visible if entry.startswith(_UUID)]
    right = len(report.visible) == len(report.allocated) and (not named or named == list(report.allocated))
    seen = f"{report.pod}: {','.join(report.allocated)}"
    return seen, "" if right else f"{seen} were given, ROCR_VISIBLE_DEVICES is {','.join(report.visible)}"


def _index_order(report: Report) -> tuple[str, str]:
    found = [gpu.pci for gpu in report.gpus]
    right = len(report.gpus) == len(report.allocated) and all(map(_is_named, report.gpus, report.allocated))
    seen = f"{report.pod}: HIP's 0 to {len(found) - 1} are {', '.join(found)}"
    return seen, "" if right else f"{seen}, and {','.join(report.allocated)} were given"


def _is_named(gpu: MeasuredGpu, device_id: str) -> bool:
    if device_id.startswith(_PCI):
        return device_id.removeprefix(_PCI).lower().startswith(gpu.pci.replace(":", "-"))
    return gpu.uuid.lower() == device_id.lower()


def _masks(report: Report) -> Iterator[tuple[str, str]]:
    mask = read_mask(report.mask, gpus=len(report.gpus), cus=MAX_CU)
    for index, (gpu, device_id) in enumerate(zip(report.gpus, report.allocated, strict=False)):
        ids = mask.masks.get(index, frozenset())
        seen = f"{report.pod} GPU {index}: {_about(gpu)} by mask {format_ids(sorted(ids))}"
        yield seen, _mask_fault(seen, gpu, ids, frozenset(report.cus.get(device_id, ())))


def _mask_fault(seen: str, gpu: MeasuredGpu, ids: frozenset[int], given: frozenset[int]) -> str:
    if not ids:
        return f"{seen}: nothing restricts this GPU"
    if not ids <= given:
        return f"{seen}: {format_ids(sorted(given))} were given"
    expected = len({cu // 2 for cu in ids} if gpu.in_pairs else ids)
    if len(gpu.places) != expected:
        return f"{seen}: must be {expected}"
    dies = len({place.xcc for place in gpu.places})
    spread = sorted(Counter(cu % dies for cu in ids).values())
    if sorted(_per_xcc(gpu.places).values()) != spread and not gpu.in_pairs:
        return f"{seen}: must be {','.join(map(str, spread))} on the XCCs, in any order"
    return ""


def _overlaps(reports: Sequence[Report]) -> Iterator[tuple[str, str]]:
    for one, other in combinations(reports, 2):
        for mine in one.gpus:
            for theirs in other.gpus:
                if one.pod != other.pod and (mine.pci, mine.uuid) == (theirs.pci, theirs.uuid):
                    yield _overlap(f"{one.pod} and {other.pod} on {mine.pci}", mine, theirs)


def _overlap(pair: str, mine: MeasuredGpu, theirs: MeasuredGpu) -> tuple[str, str]:
    common = mine.places & theirs.places
    seen = f"{pair}: {len(mine.places)} and {len(theirs.places)}, {len(common)} in common"
    return seen, f"{seen}, such as {min(common)}" if common else ""


def _reversals(several: Sequence[Report], reports: Sequence[Report]) -> Iterator[tuple[str, str]]:
    turned = {report.pod: report for report in reports if report.reversed}
    for report in several:
        if report.pod in turned:
            yield _reversal(report, turned[report.pod])


def _reversal(straight: Report, turned: Report) -> tuple[str, str]:
    seen = f"{straight.pod}: {', '.join(gpu.pci for gpu in turned.gpus)}, each with its own CUs"
    if [gpu.pci for gpu in turned.gpus] != [gpu.pci for gpu in reversed(straight.gpus)]:
        return seen, f"{straight.pod}: the GPUs are not in reversed order: {', '.join(gpu.pci for gpu in turned.gpus)}"
    moved = [new.pci for new, old in zip(turned.gpus, reversed(straight.gpus), strict=True) if new.places != old.places]
    return seen, f"{straight.pod}: runs on other CUs of {', '.join(moved)} when the order is reversed" if moved else ""


def _about(gpu: MeasuredGpu) -> str:
    unit = "WGPs" if gpu.in_pairs else "CUs"
    per_xcc = ",".join(str(count) for _, count in sorted(_per_xcc(gpu.places).items()))
    return f"{len(gpu.places)} {unit} ({per_xcc})"


def _per_xcc(places: Iterable[Place]) -> Counter[int]:
    return Counter(place.xcc for place in places)
