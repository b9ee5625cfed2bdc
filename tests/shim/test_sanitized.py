"""The shared accounts, the table of who holds what, and the readers of settings under sanitizers.

They are compiled into ordinary programs for that: an audit library without a C library cannot carry a sanitizer.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.shim.build import HERE, SHIM, compile_c
from tests.shim.running import Outcome

COMMON = ["log.c", "signals.c", "sys.c", "sys_shared.c"]
REGION = ["region.c", "region_file.c", *COMMON]
LEDGER = ["ledger.c", "handles.c", *REGION]
LIMIT = ["limit.c", "env.c", "environ.c", "environ_store.c", *COMMON]
SLOTS = 8
# A fault ends the program with an exit status that no scene has.
OPTIONS = {"ASAN_OPTIONS": "exitcode=99", "TSAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "halt_on_error=1"}
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
THREAD = ["-fsanitize=thread"]


def compile_unit(name: str, parts: Sequence[str], flags: Sequence[str], out: Path) -> Path:
    # The library's own memcpy must not be compiled into a call of itself.
    own = ["-fno-builtin", "-fno-tree-loop-distribute-patterns", f"-DREGION_SLOTS={SLOTS}", "-I", str(SHIM), "-pthread"]
    return compile_c([HERE / "programs" / f"{name}.c", *(SHIM / part for part in parts)], out, [*own, *flags])


def run(*command: str | Path) -> Outcome:
    done = subprocess.run(
        [str(word) for word in command], env=OPTIONS, capture_output=True, text=True, check=False, timeout=120
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session", params=[("address", ADDRESS), ("thread", THREAD)], ids=["address", "thread"])
def accounts(request: pytest.FixtureRequest, built: Path) -> Path:
    name, flags = request.param
    return compile_unit("region_unit", REGION, flags, built / f"region_unit-{name}")


def test_64_threads(accounts: Path, tmp_path: Path) -> None:
    assert run(accounts, "threads", tmp_path).line == {"within": True, "some": True, "left": 0}


@pytest.mark.parametrize("count", [2, SLOTS, 3 * SLOTS])
def test_processes_at_the_same_time(accounts: Path, tmp_path: Path, count: int) -> None:
    assert run(accounts, "processes", tmp_path, str(count)).line == {"within": True, "some": True, "left": 0}


@pytest.mark.parametrize("count", [1, SLOTS - 1, SLOTS, SLOTS + 1, 40])
def test_more_processes_than_slots(accounts: Path, tmp_path: Path, count: int) -> None:
    """They share the last one. Nobody is uncounted, and when all are gone it is free again."""
    seen = run(accounts, "crowd", tmp_path, str(count))
    assert seen.line == {"granted": count, "pages": count, "over": False, "after": True}
    assert seen.stderr == ""


@pytest.mark.parametrize("seed", range(4))
def test_garbage_in_the_file(accounts: Path, tmp_path: Path, seed: int) -> None:
    assert run(accounts, "scribble", tmp_path, str(seed)).line == {"steps": 400}


@pytest.fixture(scope="session", params=[("address", ADDRESS), ("thread", THREAD)], ids=["address", "thread"])
def ledger(request: pytest.FixtureRequest, built: Path) -> Path:
    name, flags = request.param
    return compile_unit("ledger_unit", LEDGER, flags, built / f"ledger_unit-{name}")


@pytest.mark.parametrize("seed", range(3))
def test_the_table_of_who_holds_what(ledger: Path, tmp_path: Path, seed: int) -> None:
    """Eight threads book, map, free and fail to free at random; what they know agrees with it, and nothing is left."""
    assert run(ledger, tmp_path, str(seed)).line == {"fault": False, "left": [0, 0], "swept_to": 200}


@pytest.mark.parametrize("seed", range(3))
def test_garbage_in_the_environment(built: Path, seed: int) -> None:
    out = built / "env_unit"
    if not out.exists():
        compile_unit("env_unit", LIMIT, ADDRESS, out)
    seen = run(out, str(seed), "100")
    assert seen.line == {"good": 100}, seen.stderr


def test_containers_of_a_pod_have_different_files(accounts: Path, tmp_path: Path) -> None:
    """They share /dev/shm, but not their root."""
    roots = [tmp_path / "first", tmp_path / "second"]
    for root in roots:
        root.mkdir()
    paths = [run(accounts, "path", root).stdout.strip() for root in roots]
    found = [root.stat() for root in roots]
    assert paths == [f"/dev/shm/.amvgpu-{status.st_dev}-{status.st_ino}" for status in found]
    assert paths[0] != paths[1]
    assert run(accounts, "path", tmp_path / "missing").stdout.strip() == "none"
