"""AMD's own library, without a GPU: it is hooked, and answers as it would without the limit."""

from pathlib import Path

import pytest

from tests.shim.running import Runner

HOOKED = [
    *("hipMalloc", "hipFree", "hipMemGetInfo", "hipDeviceTotalMem", "hipGetDeviceProperties", "hipMallocPitch"),
    *("hipExtMallocWithFlags", "hipMallocManaged", "hipMemAllocPitch", "hipMallocArray", "hipDeviceGetAttribute"),
    *("hipDeviceReset", "hipMallocAsync", "hipFreeAsync", "hipMemCreate", "hipMemRelease", "hipGraphDestroy"),
]
OTHERS = ["hipGetDeviceCount", "hipGetDevice", "hipSetDevice", "hipGetLastError"]
NAMES = [*HOOKED, *OTHERS]


@pytest.mark.parametrize("first", NAMES)
def test_the_codes_are_those_of_hip(run: Runner, run_bare: Runner, real_hip: Path, first: str) -> None:
    order = [first, *(name for name in NAMES if name != first), first]
    outcome = run.python("codes", real_hip, *order, limit="16m")
    bare = run_bare.python("codes", real_hip, *order, limit="16m")
    assert outcome.line["codes"] == bare.line["codes"]
    assert outcome.stderr == bare.stderr


def test_its_functions_are_hooked(run: Runner, real_hip: Path) -> None:
    owners = run.python("codes", real_hip, *NAMES, limit="16m").line["owners"]
    assert {name for name, owner in owners.items() if owner == "libamvgpu.so"} == set(HOOKED)


def test_without_a_limit_nothing_is_hooked(run: Runner, real_hip: Path) -> None:
    owners = run.python("codes", real_hip, *NAMES).line["owners"]
    assert "libamvgpu.so" not in owners.values()
