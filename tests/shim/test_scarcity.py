"""Processes that have run short of what the library needs: it neither ends them nor lets them past the limit."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.build import HERE, compile_c
from tests.shim.children import OURS
from tests.shim.running import MIB, Runner, new_region

OUT_OF_MEMORY = 2


def test_no_file_may_be_written(run: Runner, run_bare: Runner, client: Path) -> None:
    """The kernel ends a program that makes a file too large (SIGXFSZ), and this one makes none."""
    command: list[str | Path] = ["/bin/sh", "-c", 'ulimit -f 0; exec "$0" limit', client]
    assert run_bare(*command).code == 0
    outcome = run(*command, limit="10m")
    assert [(line["step"], line["code"]) for line in outcome.lines][:2] == [
        ("allocate-total", 0),
        ("one-byte-over", OUT_OF_MEMORY),
    ]


def test_a_file_of_accounts_that_is_there_needs_no_room(run: Runner, client: Path) -> None:
    region = {"AMVGPU_REGION": str(new_region())}
    assert run(client, "limit", limit="10m", env=region).code == 0
    outcome = run("/bin/sh", "-c", 'ulimit -f 0; exec "$0" limit', client, limit="10m", env=region)
    assert (outcome.code, outcome.stderr) == (0, "")


@pytest.mark.parametrize("limit", ["10m", "garbage"])
def test_nobody_reads_what_is_warned_of(run: Runner, client: Path, limit: str) -> None:
    """The kernel ends a program that writes for nobody (SIGPIPE), and this one writes nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    env = run.environment(limit=limit, env={"AMVGPU_LOG": "2"})
    try:
        done = subprocess.run(
            [client, "limit"], env=env, stdout=subprocess.PIPE, stderr=writer, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert done.returncode == 0
    assert done.stdout.count(b'"code":2') >= 1


def test_a_signal_that_the_program_waits_for_is_left_to_it(run: Runner, program: Callable[..., Path]) -> None:
    """It came before the library wrote."""
    assert run(program("waits"), limit="garbage").line == {"before": True, "after": True, "blocked": [13, 25]}


def test_without_a_descriptor_nothing_is_allocated_until_there_is_one(run: Runner, standin: Path) -> None:
    """Counting for itself alone, the process could have the limit once more."""
    region = {"AMVGPU_REGION": str(new_region())}
    words = ["total:0", "open-files:3", "malloc:4096", "info", "open-files:64", f"malloc:{MIB}", "malloc:1"]
    outcome = run.python("script", standin, *words, limit="1m", env=region)
    assert outcome.line["results"] == [MIB, None, OUT_OF_MEMORY, [0, MIB], None, 0, OUT_OF_MEMORY]
    (warning,) = outcome.stderr.splitlines()
    assert warning.startswith("amd-vgpu: warning: no file descriptor is left")


@pytest.mark.parametrize("entries", [10, 700, 770, 1500, 4000])
def test_a_program_is_started_from_a_small_stack(
    run: Runner, run_bare: Runner, program: Callable[..., Path], built: Path, entries: int
) -> None:
    """However many variables it gets. The smallest stack there is, for its starter has a static TLS like any other."""
    small = program("small")
    child = compile_c([HERE / "programs" / "seen.c"], built / "plain-scarcity", ["-DWITHOUT_HIP"])
    command: list[str | Path] = [small, str(entries), child]
    assert run_bare(*command).code == 0
    outcome = run(*command, env={**OURS, "GLIBC_TUNABLES": None})
    assert outcome.code == 0, outcome
    assert outcome.stdout.count("V") >= entries
    assert "HIP_DEVICE_MEMORY_LIMIT" in outcome.stdout
