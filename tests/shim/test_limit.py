"""The limit itself: what is reported, what is granted and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.shim.running import MIB, Runner

OUT_OF_MEMORY = 2
INVALID_VALUE = 1
NO_DEVICE = 100
INVALID_DEVICE = 101
PHYSICAL = 196608 * MIB
PAGE = 4096


def reports(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "totalGlobalMem" in line]


def steps(lines: list[dict[str, Any]], device: int) -> list[tuple[str, int, int]]:
    return [(line["step"], line["bytes"], line["code"]) for line in lines if line.get("device") == device]


def exact_steps(total: int) -> list[tuple[str, int, int]]:
    return [
        ("allocate-total", total, 0),
        ("one-byte-over", 1, OUT_OF_MEMORY),
        ("free", 0, 0),
        ("allocate-again", total, 0),
        ("free-again", 0, 0),
    ]


@pytest.mark.parametrize("mib", [1, 512, 16384, 49152])
def test_every_report_shows_the_limit(run: Runner, client: Path, mib: int) -> None:
    outcome = run(client, "report", limit=f"{mib}m")
    total = mib * MIB
    assert reports(outcome.lines) == [
        {"device": 0, "totalGlobalMem": total, "totalMem": total, "free": total, "total": total}
    ]
    assert outcome.stderr == ""


def test_the_client_reports_environment_and_device_files(run: Runner, client: Path) -> None:
    odd = 'quote " backslash \\ newline \n tab \t ä'
    lines = run(client, "report", limit="1m", env={"ODD": odd, "EMPTY": ""}).lines
    merged: dict[str, Any] = {}
    for line in lines:
        merged |= line
    assert merged["env"]["ODD"] == odd
    assert merged["env"]["EMPTY"] == ""
    assert merged["env"]["HIP_DEVICE_MEMORY_LIMIT"] == "1m"
    assert merged["kfd"] is Path("/dev/kfd").exists()
    dri = Path("/dev/dri")
    assert set(merged["dri"]) == ({entry.name for entry in dri.iterdir()} if dri.is_dir() else set())


@pytest.mark.parametrize("mib", [1, 16384, 49152])
def test_up_to_the_limit_and_no_byte_more(run: Runner, client: Path, mib: int) -> None:
    outcome = run(client, "limit", limit=f"{mib}m")
    assert steps(outcome.lines, 0) == exact_steps(mib * MIB)
    assert outcome.stderr == ""


def test_each_device_has_the_limit_for_itself(run: Runner, client: Path) -> None:
    lines = run(client, "limit", limit="16384m", env={"ROCR_VISIBLE_DEVICES": "GPU-0123456789abcdef,1"}).lines
    for device in (0, 1):
        assert steps(lines, device) == exact_steps(16384 * MIB)


def test_what_one_device_holds_does_not_count_on_another(run: Runner, standin: Path) -> None:
    words = ["malloc:1048576", "malloc:1", "set-device:1", "info", "malloc:1048576", "malloc:1", "free:0", "info"]
    outcome = run.python("script", standin, *words, limit="1m", env={"STANDIN_HIP_DEVICES": "2"})
    assert outcome.line["results"] == [0, 2, 0, [MIB, MIB], 0, 2, 0, [0, MIB]]


def test_without_a_limit_the_library_only_looks_on(run: Runner, run_bare: Runner, client: Path) -> None:
    outcome = run(client, "limit")
    assert outcome == run_bare(client, "limit")
    assert steps(outcome.lines, 0) == exact_steps(PHYSICAL)
    assert outcome.stderr == ""


def test_a_limit_without_the_library_does_nothing(run_bare: Runner, client: Path) -> None:
    assert steps(run_bare(client, "limit", limit="1m").lines, 0) == exact_steps(PHYSICAL)


def test_a_limit_above_the_gpu_reports_the_gpu(run: Runner, client: Path) -> None:
    outcome = run(client, "report", limit="300g")
    assert [line["total"] for line in reports(outcome.lines)] == [PHYSICAL]
    assert steps(run(client, "limit", limit="300g").lines, 0) == exact_steps(PHYSICAL)


def test_free_memory_is_what_both_limit_and_gpu_leave(run: Runner, standin: Path) -> None:
    others = {"STANDIN_HIP_MIB": "100", "STANDIN_HIP_OTHERS_MIB": "70"}
    words = ["info", f"malloc:{10 * MIB}", "info", f"malloc:{25 * MIB}", "info", f"malloc:{20 * MIB}", "info"]
    outcome = run.python("script", standin, *words, limit="40m", env=others)
    # The 25 MiB are within the limit but not on the GPU: HIP refuses them, and nothing stays booked.
    expected = [[30 * MIB, 40 * MIB], 0, [20 * MIB, 40 * MIB], OUT_OF_MEMORY, [20 * MIB, 40 * MIB], 0, [0, 40 * MIB]]
    assert outcome.line["results"] == expected


def test_what_hip_refused_is_not_held(run: Runner, standin: Path) -> None:
    words = [f"malloc:{25 * MIB}"] * 50 + [f"malloc:{20 * MIB}", "info"]
    outcome = run.python("script", standin, *words, limit="40m", env={"STANDIN_HIP_MIB": "22"})
    assert outcome.line["results"] == [OUT_OF_MEMORY] * 50 + [0, [2 * MIB, 22 * MIB]]


def test_a_refusal_is_the_last_error_of_the_thread(run: Runner, standin: Path) -> None:
    outcome = run.python("script", standin, "last-error", f"malloc:{MIB + 1}", "last-error", "last-error", limit="1m")
    assert outcome.line["results"] == [0, OUT_OF_MEMORY, OUT_OF_MEMORY, 0]


@pytest.mark.parametrize("function", ["hipGetDeviceProperties", "hipGetDevicePropertiesR0000"])
def test_old_properties_change_in_one_field(run: Runner, run_bare: Runner, standin: Path, function: str) -> None:
    assert_only_total_changes(run, run_bare, standin, function, offset=256)


def test_new_properties_change_in_one_field(run: Runner, run_bare: Runner, standin: Path) -> None:
    assert_only_total_changes(run, run_bare, standin, "hipGetDevicePropertiesR0600", offset=288)


def assert_only_total_changes(run: Runner, run_bare: Runner, standin: Path, function: str, offset: int) -> None:
    seen = bytes.fromhex(run.python("script", standin, f"properties:{function}", limit="16384m").line["results"][0])
    real = bytes.fromhex(run_bare.python("script", standin, f"properties:{function}").line["results"][0])
    limit = (16384 * MIB).to_bytes(8, "little")
    assert real[offset : offset + 8] == PHYSICAL.to_bytes(8, "little")
    assert seen == real[:offset] + limit + real[offset + 8 :]


def test_null_pointers_and_size_zero_go_to_hip(run: Runner, run_bare: Runner, program: Any) -> None:
    edges = program("edges")
    outcome = run(edges, limit="1m")
    assert outcome.line == {"codes": [INVALID_VALUE, 0, 0, 0, 0, 0, INVALID_VALUE, INVALID_VALUE, 101, 101]}
    assert outcome.line == run_bare(edges).line


def test_a_free_that_fails_keeps_the_memory_booked(run: Runner, standin: Path) -> None:
    words = [f"malloc:{MIB}", "setenv:STANDIN_HIP_FAIL_FREE=1", "free:0", "info", "malloc:1"]
    words += ["unsetenv:STANDIN_HIP_FAIL_FREE", "free:0", "info", f"malloc:{MIB}"]
    outcome = run.python("script", standin, *words, limit="1m")
    assert outcome.line["results"] == [0, None, 999, [0, MIB], OUT_OF_MEMORY, "1", 0, [MIB, MIB], 0]


def test_sizes_that_would_wrap_around_are_refused_by_the_library(run: Runner, standin: Path) -> None:
    words = ["malloc:4096", *(f"malloc:{(1 << 64) - size}" for size in (1, 4095, 4096, 4097, 1 << 63)), "info"]
    outcome = run.python("script", standin, *words, limit="1m", env={"AMVGPU_LOG": "1"})
    assert outcome.line["results"] == [0] + [OUT_OF_MEMORY] * 5 + [[MIB - 4096, MIB]]
    assert len([line for line in outcome.stderr.splitlines() if "refused" in line]) == 5


def test_memory_freed_unseen_is_credited_when_its_address_comes_back(run: Runner, standin: Path) -> None:
    words = ["malloc:600000", "release:0", "info", "malloc:390000", "info", "free:3", "info"]
    outcome = run.python("script", standin, *words, limit="1000000")
    total = 244 * PAGE
    unseen, reused, empty = [total - 147 * PAGE, total], [total - 96 * PAGE, total], [total, total]
    assert outcome.line["results"] == [0, 0, unseen, 0, reused, 0, empty]


@pytest.mark.parametrize("function", ["mallocpitch", "memallocpitch"])
def test_memory_that_hip_takes_from_itself_counts_once(run: Runner, standin: Path, function: str) -> None:
    words = [f"{function}:1000x512", "info", f"{function}:1000x512", f"{function}:1x1", "free:0", "free:2", "info"]
    outcome = run.python("script", standin, *words, limit="1m")
    # 512 rows of 1000 bytes take 512 KiB.
    half = 512 << 10
    assert outcome.line["results"] == [0, [half, MIB], 0, OUT_OF_MEMORY, 0, 0, [MIB, MIB]]


@pytest.mark.parametrize("first", ["malloc:1", "mallocpitch:1x1", "set-device:0", "malloc:2097152"])
def test_without_a_gpu_the_codes_are_those_of_hip(run: Runner, run_bare: Runner, standin: Path, first: str) -> None:
    words = [first, "last-error", "mallocpitch:1x1", "set-device:0", "malloc:0", "malloc:2097152"]
    none = {"STANDIN_HIP_DEVICES": "0"}
    outcome = run.python("script", standin, *words, limit="1m", env=none)
    assert outcome.line == run_bare.python("script", standin, *words, env=none).line
    assert outcome.line["results"][0] == INVALID_DEVICE
    assert outcome.line["results"][-1] == NO_DEVICE


@pytest.mark.parametrize("seed", range(5))
def test_random_use_agrees_with_a_model(run: Runner, standin: Path, seed: int) -> None:
    outcome = run.python("model", standin, str(seed), str(3000 * MIB), limit="3000m", env={"STANDIN_HIP_DEVICES": "2"})
    assert outcome.line["granted"] > 1000
    assert outcome.line["refused"] > 300
    assert outcome.line["most"] > 50


def test_the_table_of_addresses_grows(run: Runner, program: Any) -> None:
    outcome = run(program("many"), limit="1024m")
    assert outcome.line == {"granted": 262144, "codeAfter": OUT_OF_MEMORY, "freed": 262144, "left": 1024 * MIB}
