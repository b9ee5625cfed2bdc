"""Threads, forked children, several copies of HIP, and programs that have nothing to do with HIP."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.build import HERE, compile_c, compile_shim, compile_standin_hip
from tests.shim.running import MIB, Runner

OUT_OF_MEMORY = 2
INVALID_VALUE = 1
COPIES = 8


@pytest.mark.parametrize("threads", [2, 8, 32])
def test_racing_threads_never_pass_the_limit(run: Runner, program: Callable[..., Path], threads: int) -> None:
    rounds = 200
    seen = run(program("threads"), str(threads), str(rounds), limit="1000m").line
    assert seen["total"] == 1000 * MIB
    assert seen["peak"] == 1000 * MIB
    assert seen["roundsWithOneWinner"] == rounds
    assert seen["left"] == 1000 * MIB
    if threads > 2:
        assert seen["refused"] > 0


@pytest.mark.parametrize("threads", [1, 7, 100])
def test_threads_inside_hip_at_the_same_time(run: Runner, program: Callable[..., Path], threads: int) -> None:
    assert_crowd_is_served(run, program, threads)


@pytest.mark.parametrize(("bits", "threads"), [(1, 8), (1, 14), (2, 28)])
def test_threads_are_told_apart_when_the_table_of_marks_is_full(
    built: Path, program: Callable[..., Path], bits: int, threads: int
) -> None:
    """Seven marks per group: some of them lie in other groups than their own."""
    library = compile_shim(built / f"library-nest-{bits}", defines=f"-DNEST_GROUP_BITS={bits}")
    assert_crowd_is_served(Runner(library), program, threads)


def test_more_threads_than_marks_get_too_little_rather_than_too_much(built: Path, program: Callable[..., Path]) -> None:
    library = compile_shim(built / "library-nest-1", defines="-DNEST_GROUP_BITS=1")
    seen = Runner(library)(program("crowd"), "32", limit="1024m").line
    assert 14 * 50 <= seen["granted"] < 32 * 50
    assert seen["peak"] <= 1024 * MIB
    assert seen["left"] == 1024 * MIB


def assert_crowd_is_served(run: Runner, program: Callable[..., Path], threads: int) -> None:
    seen = run(program("crowd"), str(threads), limit="1400m").line
    rounds = 50
    assert (seen["granted"], seen["refused"]) == (rounds * threads, rounds * threads)
    assert seen["total"] == 1400 * MIB
    assert seen["left"] == 1400 * MIB
    assert seen["peak"] == 1400 * MIB // threads * threads


def test_the_race_is_seen_without_the_library(run_bare: Runner, program: Callable[..., Path]) -> None:
    seen = run_bare(program("threads"), "8", "20", env={"STANDIN_HIP_MIB": "1000"}).line
    assert seen["total"] == 1000 * MIB
    assert seen["roundsWithOneWinner"] == 20  # by the GPU's own limit
    free_for_all = run_bare(program("threads"), "8", "20", limit="1000m").line
    assert free_for_all["peak"] > 1000 * MIB


@pytest.mark.parametrize("way", ["jump", "exit", "cancel"])
def test_a_hook_that_is_left_without_return_opens_no_way_past_the_limit(
    run: Runner, run_bare: Runner, program: Callable[..., Path], way: str
) -> None:
    """The mark that the thread is inside a hook stays behind, there and for the next thread with that stack."""
    jumps = program("jumps")
    assert set(run(jumps, way, limit="10m").line["codes"]) == {OUT_OF_MEMORY}
    assert set(run_bare(jumps, way).line["codes"]) == {OUT_OF_MEMORY}  # of the GPU


def test_a_forked_child_holds_nothing_of_its_parent(run: Runner, program: Callable[..., Path]) -> None:
    child, parent = run(program("forks"), "once", limit="1000m").lines
    # The parent's memory is not the child's: to free it there credits nothing, though the stand-in does it.
    assert child == {"who": "child", "left": 0, "codes": [OUT_OF_MEMORY, OUT_OF_MEMORY, 0, 0]}
    assert parent == {"who": "parent", "left": 0, "codes": [OUT_OF_MEMORY, 0]}


def test_a_child_forked_from_busy_threads_works(run: Runner, program: Callable[..., Path]) -> None:
    outcome = run(program("forks"), "busy", limit="1000m")
    assert outcome.line == {"children": 100, "good": 100}


def copy_of_standin(folder: Path, name: str) -> Path:
    return compile_standin_hip(folder / name, [f"-Wl,-soname,{name}"])


def test_two_copies_of_hip_share_the_limit(run: Runner, standin: Path, tmp_path: Path) -> None:
    wheel = copy_of_standin(tmp_path, "libamdhip64-7f3a2b.so")
    words = ["malloc:600000", f"load:{wheel}", "peak:0", "malloc:600000", "malloc:397000", "peak:0", "info"]
    outcome = run.python("script", standin, *words, f"load:{standin}", "peak:0", "free:0", limit="1000000")
    left = [0, 999424]
    # Each copy was asked for its own part only, and the limit is one for both.
    assert outcome.line["results"] == [0, None, 0, OUT_OF_MEMORY, 0, 397000, left, None, 600000, 0]


def test_more_copies_than_can_be_accounted_may_not_allocate(run: Runner, standin: Path, tmp_path: Path) -> None:
    words = []
    for number in range(COPIES):
        copy = copy_of_standin(tmp_path, f"libamdhip64-{number}.so")
        words += [f"load:{copy}", "malloc:4096"]
    outcome = run.python("script", standin, "malloc:4096", *words, limit="1m")
    assert outcome.line["results"] == [0] + [None, 0] * (COPIES - 1) + [None, OUT_OF_MEMORY]
    (warning,) = outcome.stderr.splitlines()
    assert warning.startswith("amd-vgpu: warning: no room to account")


def test_a_copy_that_is_closed_makes_room(run: Runner, standin: Path) -> None:
    rounds = 3 * COPIES
    words = [f"load:{standin}", "malloc:4096", f"malloc:{MIB}", "close"] * rounds
    outcome = run.python("script", standin, "close", *words, limit="1m")
    assert outcome.line["results"] == [0] + [None, 0, OUT_OF_MEMORY, 0] * rounds
    assert outcome.stderr == ""


def test_pools_of_a_copy_that_is_closed_are_forgotten(run: Runner, standin: Path) -> None:
    """The copy that takes its place knows nothing of them, and may not be asked."""
    words = ["mallocasync:600000", "info", "close", f"load:{standin}", f"malloc:{MIB}", "malloc:1", "free:4", "info"]
    outcome = run.python("script", standin, *words, limit="1m")
    left = MIB - 10 * 65536
    assert outcome.line["results"] == [0, [left, MIB], 0, None, 0, OUT_OF_MEMORY, 0, [MIB, MIB]]


def test_a_library_that_is_only_named_like_hip_is_left_alone(run: Runner, tmp_path: Path) -> None:
    impostor = compile_c([HERE / "programs" / "impostor.c"], tmp_path / "libamdhip64.so", ["-shared", "-fPIC"])
    outcome = run.python("script", impostor, "malloc:5000777", limit="1m", env={"AMVGPU_LOG": "2"})
    assert (outcome.line["results"], outcome.stderr) == ([777], "")


def test_hip_under_another_name_inside_and_outside_is_left_alone(run: Runner, tmp_path: Path) -> None:
    outcome = run.python("script", copy_of_standin(tmp_path, "libother.so"), f"malloc:{2 * MIB}", limit="1m")
    assert outcome.line["results"] == [0]


@pytest.mark.parametrize("way", ["copied", "linked", "in memory"])
def test_hip_is_known_by_the_name_inside(run: Runner, standin: Path, tmp_path: Path, way: str) -> None:
    other = tmp_path / "libother.so"
    if way == "linked":
        other.symlink_to(standin)
    else:
        shutil.copy(standin, other)
    word = "load-from-memory" if way == "in memory" else "load"
    outcome = run.python("script", standin, "close", f"{word}:{other}", f"malloc:{2 * MIB}", limit="1m")
    assert outcome.line["results"] == [0, None, OUT_OF_MEMORY]


@pytest.mark.parametrize("limit", ["16384m", "garbage", None])
@pytest.mark.parametrize("command", [["/bin/true"], ["/bin/sh", "-c", "echo $0"], [sys.executable, "-c", "pass"]])
def test_other_programs_run_unchanged(run: Runner, run_bare: Runner, command: list[str], limit: str | None) -> None:
    outcome = run(*command, limit=limit, env={"AMVGPU_LOG": "2"})
    assert outcome == run_bare(*command)
    assert (outcome.code, outcome.stderr) == (0, "")


def test_the_exit_status_of_a_program_stays(run: Runner) -> None:
    assert run("/bin/sh", "-c", "exit 7", limit="1m").code == 7


def test_hold_keeps_the_memory_until_it_is_told_to_stop(run: Runner, client: Path) -> None:
    env = run.environment(limit="16m", env={"STANDIN_HIP_DEVICES": "2"})
    with subprocess.Popen([client, "hold"], env=env, stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None
        line = ""
        while "ready" not in line:
            line = holding.stdout.readline()
            assert line, "ended early"
        assert line == '{"ready":true}\n'
        assert holding.poll() is None
        holding.send_signal(signal.SIGTERM)
        assert holding.wait(timeout=30) == 0
