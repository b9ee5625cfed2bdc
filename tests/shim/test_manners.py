"""The library stays out of the way: of memory checkers, of debuggers, and of the program's own symbols."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.build import HERE, SHIM, compile_c, compile_linked
from tests.shim.children import OURS, full, seen
from tests.shim.needs import need_program
from tests.shim.running import Runner


@pytest.fixture(scope="session")
def plain(built: Path) -> Path:
    return compile_c([HERE / "programs" / "seen.c"], built / "plain-manners", ["-DWITHOUT_HIP"])


@pytest.mark.parametrize("way", ["execve", "posix_spawn", "vfork", "execlp", "popen"])
def test_valgrind_finds_nothing(run: Runner, shim: Path, program: Callable[..., Path], plain: Path, way: str) -> None:
    """Without its call of __libc_freeres, which frees what the loader made for any audit library at all."""
    valgrind = need_program("valgrind", "valgrind", "libc6-dbg")
    checked: list[str | Path] = [valgrind, "-q", "--error-exitcode=9", "--run-libc-freeres=no"]
    child = seen(run(*checked, program("starts"), way, plain, env=OURS))
    assert child.environ == {"KEPT": "1", **full(shim)}


def test_valgrind_finds_nothing_in_a_program_below_hip(run: Runner, built: Path, below: Path) -> None:
    """As above; the program takes, is refused, gives back and takes again."""
    valgrind = need_program("valgrind", "valgrind", "libc6-dbg")
    runtime = below / "libhsa-runtime64.so.1"
    program = compile_linked(HERE / "programs" / "taker.c", built / "taker", runtime, [f"-Wl,-rpath-link,{below}"])
    checked: list[str | Path] = [valgrind, "-q", "--error-exitcode=9", "--run-libc-freeres=no"]
    outcome = run(*checked, program, limit="10m", env={"AMVGPU_HSA": "1"})
    assert outcome.line == {"codes": [0, 0x1008, 0, 0, 0]}
    assert outcome.stderr == ""


def test_a_debugger_works(run: Runner, program: Callable[..., Path], plain: Path) -> None:
    gdb = need_program("gdb", "gdb")
    commands = ["set startup-with-shell off", "break main", "run", "bt 1", "continue"]
    words = [word for command in commands for word in ("-ex", command)]
    outcome = run(gdb, "-q", "-nx", "-batch", *words, "--args", program("starts"), "posix_spawn", plain, env=OURS)
    assert "Breakpoint 1, main" in outcome.stdout
    assert "exited normally" in outcome.stdout
    assert f"HSA_CU_MASK={OURS['HSA_CU_MASK']}" in outcome.stdout


NAMES = ["memcpy", "log_parts", "environ_init", "exec_run", "elf_open", "sys_map", "hook_execve", "arch_syscall6"]


def test_the_program_sees_none_of_its_symbols(run: Runner, run_bare: Runner) -> None:
    script = "import ctypes, sys\nown = ctypes.CDLL(None)\nprint([hasattr(own, name) for name in sys.argv[1:]])\n"
    command = ["python3", "-c", script, *NAMES, "la_version", "la_preinit"]
    assert run(*command, env=OURS).stdout == run_bare(*command, env=OURS).stdout


def test_every_warning_is_explained() -> None:
    """Its first words, for the rest may be a value."""
    sources = "".join(file.read_text() for file in SHIM.glob("*.c"))
    warnings = re.findall(
        r'LOG_WARN_ONCE\(LOG_TEXT\((?:name\), LOG_TEXT\("=\'"\), .*?"\' ?|")([^"]*)', sources, re.DOTALL
    )
    assert len(warnings) == sources.count("LOG_WARN_ONCE(") > 8
    explained = (SHIM / "README.md").read_text().partition("## Messages")[2]
    assert {text for text in warnings if text not in explained} == set()
