"""How HIP_DEVICE_MEMORY_LIMIT is read."""

from pathlib import Path
from typing import Any

import pytest

from tests.shim.running import MIB, Runner

OUT_OF_MEMORY = 2
TERABYTE_MIB = str(1 << 20)
PHYSICAL = 196608 * MIB


def total(run: Runner, client: Path, limit: str) -> int:
    # A GPU of 1 TiB, so that it is not the GPU that limits.
    outcome = run(client, "report", limit=limit, env={"STANDIN_HIP_MIB": TERABYTE_MIB})
    assert outcome.stderr == ""
    (report,) = [line for line in outcome.lines if "total" in line]
    return int(report["total"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16384m", 16384 * MIB),
        ("16384M", 16384 * MIB),
        ("16g", 16384 * MIB),
        ("16G", 16384 * MIB),
        ("2048k", 2 * MIB),
        ("2048K", 2 * MIB),
        ("17179869184", 16384 * MIB),  # bytes
        ("4096", 4096),
        ("4095", 0),  # less than a page: nothing can be allocated
        ("1", 0),
        ("1k", 0),
        ("8191", 4096),
        ("1000000", 999424),
        ("0016m", 16 * MIB),
        ("18446744073709551615", MIB * MIB),  # the largest number: no more than the GPU has
        ("17592186044415m", MIB * MIB),
        ("17179869183g", MIB * MIB),
    ],
)
def test_sizes(run: Runner, client: Path, text: str, expected: int) -> None:
    assert total(run, client, text) == expected


FAULTY = [
    "",
    " ",
    "m",
    "-1",
    "-1m",
    "+1m",
    "0",
    "0m",
    "1.5g",
    "1e9",
    "0x10m",
    "16384mm",
    "16384mb",
    "16384MiB",
    "16 384m",
    "16384 m",
    " 16384m",
    "16384m ",
    "16384m\n",
    "16384t",
    "none",
    "unlimited",
    "18446744073709551616",  # 2^64
    "17592186044416m",  # 2^64 bytes
    "17179869184g",
    "99999999999999999999999m",
    "1" * 64,
    "0" * 5000 + "1m",
]


@pytest.mark.parametrize("text", FAULTY, ids=lambda text: repr(text[:24]))
def test_what_is_no_size_refuses_everything_with_one_warning(run: Runner, client: Path, text: str) -> None:
    outcome = run(client, "limit", limit=text, env={"STANDIN_HIP_DEVICES": "2"})
    over = [(line["device"], line["code"]) for line in outcome.lines if line["step"] == "one-byte-over"]
    assert over == [(0, OUT_OF_MEMORY), (1, OUT_OF_MEMORY)]
    (warning,) = outcome.stderr.splitlines()
    shown = text[:255].replace("\n", "?")
    assert warning == (
        f"amd-vgpu: warning: HIP_DEVICE_MEMORY_LIMIT='{shown}' is no memory size such as 16384m: "
        "every allocation is refused"
    )


def test_a_faulty_limit_reports_no_memory(run: Runner, client: Path) -> None:
    outcome = run(client, "report", limit="garbage")
    (report,) = [line for line in outcome.lines if "total" in line]
    assert report == {"device": 0, "totalGlobalMem": 0, "totalMem": 0, "free": 0, "total": 0}


def test_forked_children_do_not_repeat_the_warning(run: Runner, program: Any) -> None:
    outcome = run(program("forks"), "busy", limit="garbage")
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "HIP_DEVICE_MEMORY_LIMI",
        "HIP_DEVICE_MEMORY_LIMIT_",
        "HIP_DEVICE_MEMORY_LIMIT_16",
        "XHIP_DEVICE_MEMORY_LIMIT",
        "hip_device_memory_limit",
    ],
)
def test_names_that_only_look_like_it(run: Runner, client: Path, name: str) -> None:
    outcome = run(client, "report", env={name: "1m"})
    (report,) = [line for line in outcome.lines if "total" in line]
    assert report["total"] == 196608 * MIB


@pytest.mark.parametrize("size", [1, 4000, 4064, 4096, 100_000])
def test_anywhere_in_a_large_environment(run: Runner, client: Path, size: int) -> None:
    for offset in range(0, 64, 7):
        # The later the variable stands, the more of the environment has to be read; it is cut by the reader's chunks.
        env: dict[str, str | None] = {"HIP_DEVICE_MEMORY_LIMIT": None, "FILLER": "x" * (size + offset)}
        outcome = run(client, "report", env={**env, "HIP_DEVICE_MEMORY_LIMIT": "16m"})
        assert [line["total"] for line in outcome.lines if "total" in line] == [16 * MIB]


@pytest.mark.parametrize(("values", "expected"), [(["16m", "32m"], 16 * MIB), (["32m", "16m"], 32 * MIB)])
def test_the_first_of_two_definitions_counts(
    run_bare: Runner, shim: Path, program: Any, client: Path, values: list[str], expected: int
) -> None:
    entries = [f"LD_AUDIT={shim}", *(f"HIP_DEVICE_MEMORY_LIMIT={value}" for value in values)]
    outcome = run_bare(program("exec_with"), *entries, "--", client, "report")
    assert [line["total"] for line in outcome.lines if "total" in line] == [expected]


def test_a_change_by_the_program_itself_has_no_effect(run: Runner, standin: Path) -> None:
    words = ["setenv:HIP_DEVICE_MEMORY_LIMIT=99g", "info", "unsetenv:HIP_DEVICE_MEMORY_LIMIT", f"malloc:{MIB + 1}"]
    outcome = run.python("script", standin, *words, limit="1m")
    assert outcome.line["results"] == [None, [MIB, MIB], "99g", OUT_OF_MEMORY]


@pytest.mark.parametrize(
    ("level", "words"), [("1", ["limits", "refused"]), ("2", ["limits", "refused", "allocation of", "free of"])]
)
def test_more_is_said_on_request(run: Runner, client: Path, level: str, words: list[str]) -> None:
    outcome = run(client, "limit", limit="1m", env={"AMVGPU_LOG": level})
    lines = outcome.stderr.splitlines()
    assert all(line.startswith("amd-vgpu: ") for line in lines)
    for word in ("limits", "refused", "allocation of", "free of"):
        assert any(word in line for line in lines) is (word in words)


@pytest.mark.parametrize("level", ["", "0", "no"])
def test_silent_otherwise(run: Runner, client: Path, level: str) -> None:
    assert run(client, "limit", limit="1m", env={"AMVGPU_LOG": level}).stderr == ""


def totals(run: Runner, client: Path, **limits: str) -> list[int]:
    outcome = run(client, "report", env={"STANDIN_HIP_DEVICES": "3", **limits})
    return [line["total"] for line in outcome.lines if "total" in line]


def test_one_gpu_can_have_less(run: Runner, client: Path) -> None:
    seen = totals(run, client, HIP_DEVICE_MEMORY_LIMIT="16m", HIP_DEVICE_MEMORY_LIMIT_1="4m")
    assert seen == [16 * MIB, 4 * MIB, 16 * MIB]


def test_one_gpu_cannot_have_more(run: Runner, client: Path) -> None:
    assert totals(run, client, HIP_DEVICE_MEMORY_LIMIT="16m", HIP_DEVICE_MEMORY_LIMIT_1="99g") == [16 * MIB] * 3


def test_a_limit_of_one_gpu_leaves_the_others_alone(run: Runner, client: Path) -> None:
    assert totals(run, client, HIP_DEVICE_MEMORY_LIMIT_2="4m") == [PHYSICAL, PHYSICAL, 4 * MIB]


def test_a_faulty_limit_of_one_gpu_refuses_everything_there(run: Runner, client: Path) -> None:
    env: dict[str, str | None] = {"HIP_DEVICE_MEMORY_LIMIT_1": "much", "STANDIN_HIP_DEVICES": "2"}
    outcome = run(client, "limit", limit="16m", env=env)
    first = [(line["device"], line["bytes"], line["code"]) for line in outcome.lines if line["step"] == "one-byte-over"]
    assert first == [(0, 1, OUT_OF_MEMORY), (1, 1, OUT_OF_MEMORY)]
    assert "HIP_DEVICE_MEMORY_LIMIT_1='much' is no memory size" in outcome.stderr
