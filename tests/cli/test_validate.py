"""`amd-vgpu validate`: from registers to a verdict, on GPUs that are stand-ins."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from cli.measured import ReportError, read_reports
from cli.registers import Place, RegisterError, read_place
from cli.verdict import Outcome, judge
from tests.cli.standin_gpus import StandInGpu, measure

A = StandInGpu("GPU-8e1bb56457addd1b", "0000:05:00.0")
B = StandInGpu("GPU-8e1bb56457addd1c", "0000:15:00.0")
MACHINE = (A, B)
TYPE = "AMD Instinct MI300X VF"
ONE = f"{A.uuid},{TYPE},4096,76:;"
TWO = f"{B.uuid},{TYPE},4096,152:{A.uuid},{TYPE},4096,152:;"
ONE_CUS = json.dumps({A.uuid: "0-75"})
TWO_CUS = json.dumps({B.uuid: "0-151", A.uuid: "76-227"})
ONE_ENV = {"ROCR_VISIBLE_DEVICES": A.uuid, "HSA_CU_MASK": "0:0-75"}
TWO_ENV = {"ROCR_VISIBLE_DEVICES": f"{B.uuid},{A.uuid}", "HSA_CU_MASK": "0:0-151;1:76-227"}


def lines(one: dict[str, str] | None = None, two: dict[str, str] | None = None) -> list[str]:
    """The logs of both pods, with other environments if asked for."""
    first, second = {**ONE_ENV, **(one or {})}, {**TWO_ENV, **(two or {})}
    return [
        measure(first, MACHINE, "validate-one", ONE, ONE_CUS),
        measure(first, MACHINE, "validate-one", ONE, ONE_CUS, turned=True),
        measure(second, MACHINE, "validate-two", TWO, TWO_CUS),
        measure(second, MACHINE, "validate-two", TWO, TWO_CUS, turned=True),
    ]


def outcomes(logs: list[str]) -> list[Outcome]:
    return [point.outcome for point in judge(read_reports(logs))]


@pytest.mark.parametrize(
    ("arch", "hw_id", "xcc_id", "place"),
    [
        # gfx9: CU_ID 11:8, SH_ID 12, SE_ID from 13; slot, SIMD and pipe below, queue and more above.
        ("gfx942:sramecc+:xnack-", 0b01_1_0111_11_11_1111, 5, Place(5, 1, 1, 7)),
        ("gfx942", 0xFFFF_0000 | 3 << 13 | 9 << 8, 7, Place(7, 3, 0, 9)),
        ("gfx950", 2 << 13 | 1 << 8, 0xF0 | 1, Place(1, 2, 0, 1)),
        ("gfx942", 0b111 << 13, 0, Place(0, 3, 0, 0)),
        ("gfx90a:sramecc+:xnack-", 0b111 << 13 | 13 << 8, 0, Place(0, 7, 0, 13)),
        ("gfx908", 0b101 << 13, 0, Place(0, 5, 0, 0)),
        ("gfx906", 0b101 << 13, 0, Place(0, 1, 0, 0)),
        # gfx10 and newer: WGP_ID 13:10, SA_ID 16, SE_ID 20:18; wave and SIMD below.
        ("gfx1100", 5 << 18 | 1 << 16 | 3 << 10 | 0x31F, 0, Place(0, 5, 1, 3)),
        ("gfx1030", 1 << 18 | 4 << 10, 0, Place(0, 1, 0, 4)),
        ("gfx1201", 3 << 18 | 7 << 10, 9, Place(0, 3, 0, 7)),
    ],
)
def test_registers(arch: str, hw_id: int, xcc_id: int, place: Place) -> None:
    assert read_place(arch, hw_id, xcc_id) == place


@pytest.mark.parametrize("arch", ["gfx1250", "gfx803", "gfx1300", "sm_90", "", "gfx", "gfx94"])
def test_registers_of_other_gpus_are_not_guessed(arch: str) -> None:
    with pytest.raises(RegisterError, match="must be gfx9, gfx10, gfx11 or gfx12"):
        read_place(arch, 0, 0)


def test_what_is_as_it_should_be_holds() -> None:
    assert outcomes(lines()) == [Outcome.HOLDS] * 5


def test_gpus_without_a_name_of_their_own_are_ranked() -> None:
    """Partitions before Linux 6.17 have one unique id: ROCr is given ranks, and the PCI address tells them apart."""
    one, two = StandInGpu("GPU-", "0000:05:00.0"), StandInGpu("GPU-", "0000:05:00.1")
    allocated = f"PCI-0000-05-00.1-CPX,{TYPE},1,16:PCI-0000-05-00.0-CPX,{TYPE},1,16:;"
    cus = json.dumps({"PCI-0000-05-00.1-CPX": "0-15", "PCI-0000-05-00.0-CPX": "16-31"})
    env = {"ROCR_VISIBLE_DEVICES": "1,0", "HSA_CU_MASK": "0:0-15;1:16-31"}
    logs = [measure(env, (one, two), "p", allocated, cus, turned=turned) for turned in (False, True)]
    assert outcomes(logs) == [Outcome.HOLDS] * 3 + [Outcome.NOT_SHOWN, Outcome.HOLDS]
    wrong = {**env, "ROCR_VISIBLE_DEVICES": "0,1"}
    assert outcomes([measure(wrong, (one, two), "p", allocated, cus)])[1] is Outcome.FAILS


def test_wgps_count_as_pairs() -> None:
    gpu = StandInGpu("GPU-a1ffc9d1799c317f", "0000:03:00.0", "gfx1100", units=96, xccs=1, engines=6)
    allocated, cus = f"{gpu.uuid},{TYPE},1,24:;", json.dumps({gpu.uuid: "0-23"})
    env = {"ROCR_VISIBLE_DEVICES": gpu.uuid, "HSA_CU_MASK": "0:0-23"}
    (point,) = [one for one in judge(read_reports([measure(env, (gpu,), "p", allocated, cus)])) if "mask" in one.name]
    assert point.outcome is Outcome.HOLDS
    assert "12 WGPs" in point.seen


@pytest.mark.parametrize(
    ("one", "two", "failing", "words"),
    [
        ({}, {"ROCR_VISIBLE_DEVICES": f"{A.uuid},{B.uuid}"}, {1, 2, 4}, "ROCR_VISIBLE_DEVICES is"),
        ({}, {"ROCR_VISIBLE_DEVICES": B.uuid, "HSA_CU_MASK": "0:0-151"}, {1, 2}, "HIP's 0 to 0 are"),
        # The sets of the mask are swapped: the right numbers of CUs, on the wrong GPUs.
        ({}, {"HSA_CU_MASK": "0:76-227;1:0-151"}, {3, 4}, "were given"),
        # ROCr drops a mask with a fault, so the whole GPU is used.
        ({"HSA_CU_MASK": "0:0-75,3"}, {}, {3, 4}, "nothing restricts this GPU"),
        # An XCC without a bit runs unmasked.
        ({"HSA_CU_MASK": "0:0-6"}, {}, {3, 4}, "must be 7"),
    ],
)
def test_what_is_wrong_is_seen(one: dict[str, str], two: dict[str, str], failing: set[int], words: str) -> None:
    points = judge(read_reports(lines(one, two)))
    assert {number for number, point in enumerate(points, 1) if point.outcome is Outcome.FAILS} == failing
    assert words in " ".join(point.seen for point in points)


def test_a_reversal_that_moves_cus_is_seen() -> None:
    logs = lines()
    body: dict[str, Any] = json.loads(logs[3])
    body["devices"][0]["waves"], body["devices"][1]["waves"] = body["devices"][1]["waves"], body["devices"][0]["waves"]
    points = judge(read_reports([*logs[:3], json.dumps(body)]))
    assert points[4].outcome is Outcome.FAILS
    assert "runs on other CUs of 0000:05:00.0, 0000:15:00.0 when the order is reversed" in points[4].seen


def test_a_spread_that_is_not_the_masks_is_seen() -> None:
    """The right number of CUs, but not where the bits of the mask lie."""
    body = json.loads(lines()[0])
    ninth = [[1 << 13 | 15 << 8, 3]]
    body["devices"][0]["waves"] = [wave for wave in body["devices"][0]["waves"] if wave[1] != 0 or wave[0] >> 8] + ninth
    points = judge(read_reports([json.dumps(body)]))
    assert points[2].outcome is Outcome.FAILS
    assert "on the XCCs, in any order" in points[2].seen


def test_what_was_not_measured_is_not_claimed() -> None:
    assert outcomes(lines()[:1]) == [
        Outcome.HOLDS,
        Outcome.NOT_SHOWN,
        Outcome.HOLDS,
        Outcome.NOT_SHOWN,
        Outcome.NOT_SHOWN,
    ]
    assert outcomes(lines()[:3])[4] is Outcome.NOT_SHOWN


def test_the_command_prints_markdown_and_says_whether_all_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("compiling\n" + "\n".join(f"[pod/validate/main] {line}" for line in lines()))
    assert main(["validate", str(log)]) == 0
    words = capsys.readouterr().out
    assert words.startswith("amd-vgpu validate: 5 of 5 points hold, on gfx942:sramecc+:xnack-\n")
    assert (
        "| 4 | disjoint between pods | holds | validate-one and validate-two on 0000:05:00.0: 76 and 152, 0 in" in words
    )
    log.write_text("\n".join(lines({"HSA_CU_MASK": ""})))
    assert main(["validate", str(log)]) == 1


def test_it_reads_standard_input() -> None:
    command = [sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main(['validate']))"]
    done = subprocess.run(command, input="\n".join(lines()), capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("amd-vgpu validate: 5 of 5 points hold")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no measurement in the logs"),
        ('{"amd-vgpu-validate": 1}', "line 1: KeyError: 'allocated'"),
        ('x\n{"amd-vgpu-validate": 2, "allocated": ""}', "line 2: ReportError: amd-vgpu-validate: 2: must be 1"),
        ('{"amd-vgpu-validate": 1, "allocated": ";"}', "must be the shares of one container"),
        ('{"amd-vgpu-validate": 1', "line 1: JSONDecodeError"),
    ],
)
def test_logs_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert main(["validate", str(log)]) == 1
    assert words in capsys.readouterr().err


def test_a_gpu_whose_registers_are_unknown_is_an_error() -> None:
    body = json.loads(lines()[0])
    body["devices"][0]["arch"] = "gfx1250"
    with pytest.raises(ReportError, match="arch 'gfx1250'"):
        read_reports([json.dumps(body)])
