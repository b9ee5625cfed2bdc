"""The measuring program itself, with a stand-in for HIP and the GPUs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.measured import Report, read_reports
from cli.verdict import Outcome, judge
from tests.cli.measuring import compile_measure
from tests.cli.standin_gpus import StandInGpu, measure
from tests.cli.test_validate import ONE, ONE_CUS, ONE_ENV, TWO, TWO_CUS, TWO_ENV, A, B

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: apt-get install g++")

# The stand-in's bus numbers.
MACHINE = (StandInGpu(A.uuid, "0000:1b:00.0"), StandInGpu(B.uuid, "0000:1c:00.0"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_measure(tmp_path_factory.mktemp("measure") / "measure")


def run(program: Path, pod: str, allocated: str, cus: str, env: dict[str, str], *arguments: str) -> Report:
    whole = {**env, "POD": pod, "ALLOCATED": allocated, "CUS": cus}
    done = subprocess.run([program, *arguments], env=whole, capture_output=True, text=True, check=True)
    (report,) = read_reports(done.stdout.splitlines())
    return report


def test_it_says_what_the_gpus_did(program: Path) -> None:
    (expected,) = read_reports([measure(TWO_ENV, MACHINE, "two", TWO, TWO_CUS)])
    assert run(program, "two", TWO, TWO_CUS, TWO_ENV) == expected


def test_reversed_it_turns_devices_and_mask_round_together(program: Path) -> None:
    (expected,) = read_reports([measure(TWO_ENV, MACHINE, "two", TWO, TWO_CUS, turned=True)])
    report = run(program, "two", TWO, TWO_CUS, TWO_ENV, "reversed")
    assert report == expected
    assert report.visible == (A.uuid, B.uuid)
    assert report.mask == "0:76-227;1:0-151"


def test_its_words_give_the_verdict(program: Path) -> None:
    reports = [
        run(program, "one", ONE, ONE_CUS, ONE_ENV),
        run(program, "two", TWO, TWO_CUS, TWO_ENV),
        run(program, "two", TWO, TWO_CUS, TWO_ENV, "reversed"),
    ]
    assert [point.outcome for point in judge(reports)] == [Outcome.HOLDS] * 5


def test_without_a_mask_the_whole_gpu_is_measured(program: Path) -> None:
    env = {**ONE_ENV, "HSA_CU_MASK": ""}
    assert len(run(program, "one", ONE, ONE_CUS, env).gpus[0].places) == 304
    points = judge([run(program, "one", ONE, ONE_CUS, env), run(program, "two", TWO, TWO_CUS, TWO_ENV)])
    assert [point.outcome for point in points[2:4]] == [Outcome.FAILS] * 2


def test_names_cannot_break_its_line(program: Path) -> None:
    assert run(program, 'a"b\\c', ONE, ONE_CUS, ONE_ENV).pod == 'a"b\\c'
