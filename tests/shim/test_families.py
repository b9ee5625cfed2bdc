"""Every family of functions that allocate, free or report: what is granted, refused and left, of 10 MiB."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.shim.build import HERE, SHIM
from tests.shim.running import MIB, Runner

OOM = 2
# Six MiB, what is left, six more, freed, what is left, six again, freed.
SIX_OF_TEN: Sequence[float] = [0, 4, OOM, 0, 10, 0, 0]

EXPECTED: dict[str, Sequence[float]] = {
    "hipMalloc": SIX_OF_TEN,
    "hipExtMallocWithFlags": SIX_OF_TEN,
    "hipMallocManaged": SIX_OF_TEN,
    "hipMallocAsync": [0, 4, OOM, 0, 4, 0, 0],  # its pool keeps what was freed, until a stream is waited for
    "hipMallocPitch": [0, 4, OOM, 0, 10],
    "hipMemAllocPitch": [0, 4, OOM, 0, 10],
    "hipMalloc3D": [0, 4, OOM, 0, 10],
    "hipMallocArray": SIX_OF_TEN,
    "hipMalloc3DArray": SIX_OF_TEN,
    "hipArrayCreate": SIX_OF_TEN,
    "hipArray3DCreate": [0, 4, OOM, 0, 10, 0, 0],
    "hipMallocMipmappedArray": [0, 5, 0, 0, 5, 0, 0],  # levels of 4 and 1 MiB: two of them fit
    "hipMipmappedArrayCreate": [0, 5, 0, 0, 5, 0, 0],
    "signals": [0, 10, 0, 6],
    "pool-keeps": [0, 0, 0, 0, 0, 2, 0, 2, 0, 0, 2, 0, 10],
    "pool-shrinks-unseen": [0, 0, 0, 10],
    "pool-trims": [0, 0, 0, 0, 0, 0, OOM, 0, 0, 0, 2, 0, 6, 0, 8, 0, 10],
    "other-device": [0, 0, 0, 0, 4, 0, OOM, 0, 10, 0, 2],
    "virtual": [0, 4, OOM, 0, 0, 0, 4, 0, 0, 4, 0, 10],
    "virtual-ranges": [0] + [0, 0, 0] * 4 + [2, 0, 8],
    "virtual-old": [0, 4, 0, 0, 4, 0, 0, 10],
    "no-such-gpu": [101, 10],
    "virtual-failure": [0, 999, 4, 0, 10],
    "graph-nodes": [0, 0, 0, 4, OOM, 0, 0, 0, 0, 4, 0, 4, 0, 4, 0, 10],
    "capture": [0, 0, 0, OOM, 0, 4, 0, 4, 0, 10],
    "capture-spt": [0, 0, 0, OOM, 0, 4, 0, 4, 0, 10],
    "beside-capture": [0, 0, 0, 0, OOM, 0, 0, 0],
    "pool-in-pieces": [0, 0, 0, 0, 0, 1, OOM, 0, 5, 0, 1],
    "foreign": [0, 0, 0, 0, 0, 6, 0, 0, 0, 6],
    "reset": [0, 0, 0, 0, 0, 0, 10, 0, 7],
    "any-free": [0, 0, 10, 0, 0, 0, 10],
    "attribute": [0, 10 * MIB, 0, 5],
    "entry-point": [0, OOM, 0],
    "entry-point-spt": [0, OOM, 0],
}


@pytest.mark.parametrize("scene", EXPECTED)
def test_scene(run: Runner, standin: Path, scene: str) -> None:
    outcome = run.python("families", standin, scene, limit="10m", env={"STANDIN_HIP_DEVICES": "2"})
    assert outcome.line["told"] == EXPECTED[scene]
    assert outcome.stderr == ""


@pytest.mark.parametrize("scene", EXPECTED)
def test_nothing_is_refused_without_the_library(run_bare: Runner, standin: Path, scene: str) -> None:
    told = run_bare.python("families", standin, scene, env={"STANDIN_HIP_DEVICES": "2"}).line["told"]
    assert OOM not in told
    assert len(told) == len(EXPECTED[scene])


def test_every_hook_is_called_by_a_test() -> None:
    table = (SHIM / "hook_table.h").read_text().partition("/* Functions that the hooks call. */")[0]
    hooked = set(re.findall(r"ROW\((hip\w+),", table))
    tests = "".join(file.read_text() for file in (HERE.rglob("*.py")))
    tests += "".join(file.read_text() for file in (HERE / "programs").glob("*.c"))
    assert {name for name in hooked if not re.search(rf"\b{name}\b", tests)} == set()


def test_managed_memory_can_be_left_out(run: Runner, standin: Path) -> None:
    outcome = run.python("families", standin, "hipMallocManaged", limit="10m", env={"AMVGPU_MANAGED": "0"})
    assert outcome.line["told"] == [0, 10, 0, 0, 10, 0, 0]


def test_a_reset_that_frees_nothing_credits_nothing(run: Runner, standin: Path) -> None:
    env = {"STANDIN_HIP_DEVICES": "2", "STANDIN_HIP_RESET_KEEPS": "1"}
    told = run.python("families", standin, "reset", limit="10m", env=env).line["told"]
    assert told[6] == 6  # the pool's 2 MiB are given up, the 4 MiB of hipMalloc are not
