"""Programs that cannot be helped or must not be, and processes that lost the variables without any hook seeing it."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.shim.build import HERE, compile_c, compile_shim
from tests.shim.children import LIMIT_MIB, OURS, Seen, full, seen
from tests.shim.needs import need_program, need_root
from tests.shim.running import Outcome, Runner

NOBODY = 65534
PHYSICAL_MIB = 196608
SOURCE = HERE / "programs" / "seen.c"
Program = Callable[..., Path]


@pytest.fixture(scope="session")
def plain(built: Path) -> Path:
    """The telling program without HIP, so that it runs as anybody."""
    return compile_c([SOURCE], built / "plain", ["-DWITHOUT_HIP"])


@pytest.fixture(scope="session")
def static(built: Path) -> Path:
    return compile_c([SOURCE], built / "static", ["-DWITHOUT_HIP", "-static"])


@pytest.fixture(scope="session")
def static_pie(built: Path) -> Path:
    return compile_c([SOURCE], built / "static-pie", ["-DWITHOUT_HIP", "-static-pie", "-fPIE"])


def privileged(program: Path, copy: Path, *, owner: int, group: int, bit: int) -> Path:
    need_root()
    shutil.copy(program, copy)
    os.chown(copy, owner, group)
    copy.chmod(0o755 | bit)
    return copy


@pytest.mark.parametrize("way", ["execve", "execvp", "posix_spawn", "posix_spawnp", "fexecve"])
@pytest.mark.parametrize(("owner", "group", "bit"), [(NOBODY, 0, stat.S_ISUID), (0, NOBODY, stat.S_ISGID)])
def test_a_setuid_program_is_left_alone(
    run: Runner, program: Program, plain: Path, tmp_path: Path, way: str, owner: int, group: int, bit: int
) -> None:
    target = privileged(plain, tmp_path / "privileged", owner=owner, group=group, bit=bit)
    child = seen(run(program("starts"), way, target, env=OURS))
    assert child.report["secure"] == 1
    assert child.environ == {"KEPT": "1"}


@pytest.mark.parametrize(("owner", "bit"), [(0, stat.S_ISUID), (NOBODY, 0), (0, stat.S_ISGID)])
def test_a_setuid_program_that_changes_nothing_is_an_ordinary_one(
    run: Runner, shim: Path, program: Program, plain: Path, tmp_path: Path, owner: int, bit: int
) -> None:
    target = privileged(plain, tmp_path / "ordinary", owner=owner, group=0, bit=bit)
    child = seen(run(program("starts"), "execve", target, env=OURS))
    assert (child.report["secure"], child.environ) == (0, {"KEPT": "1", **full(shim)})


def test_a_setuid_script_is_an_ordinary_one(run: Runner, shim: Path, program: Program, tmp_path: Path) -> None:
    """The system ignores the bit of a script."""
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nexec {program('seen')}\n")
    target = privileged(script, tmp_path / "privileged", owner=NOBODY, group=0, bit=stat.S_ISUID)
    assert seen(run(program("starts"), "execve", target, env=OURS)).environ == {"KEPT": "1", **full(shim)}


@pytest.mark.parametrize("way", ["execve", "execvp", "posix_spawn", "fexecve", "execveat"])
@pytest.mark.parametrize("kind", ["static", "static_pie"])
def test_a_static_program_is_left_alone(
    run: Runner, program: Program, request: pytest.FixtureRequest, way: str, kind: str
) -> None:
    target: Path = request.getfixturevalue(kind)
    outcome = run(program("starts"), way, target, env=OURS)
    assert Seen(outcome.line).environ == {"KEPT": "1"}
    assert_one_warning(outcome)


def assert_one_warning(outcome: Outcome) -> None:
    (warning,) = outcome.stderr.splitlines()
    assert warning.startswith("amd-vgpu: warning: a static program is started without its container's variables")


def test_static_programs_are_warned_of_once(run: Runner, program: Program, static: Path) -> None:
    outcome = run(program("starts"), "twice", static, env=OURS)
    assert [line["environ"] for line in outcome.lines] == [["KEPT=1"], ["KEPT=1"]]
    assert_one_warning(outcome)


def test_a_script_of_a_static_program(run: Runner, program: Program, static: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#! {static} word\n")
    script.chmod(0o755)
    outcome = run(program("starts"), "execve", script, env=OURS)
    assert outcome.line["words"] == [str(static), "word", str(script)]
    assert_one_warning(outcome)


def test_a_static_program_that_lacks_nothing_is_not_warned_of(run: Runner, static: Path) -> None:
    outcome = run("sh", "-c", f"{static}; true", env=OURS)
    assert seen(outcome).environ.items() >= OURS.items()


def test_a_program_started_by_the_loader_is_ordinary(run: Runner, shim: Path, program: Program) -> None:
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    child = seen(run(program("starts"), "execve", loader, program("seen"), env=OURS))
    assert child.environ == {"KEPT": "1", **full(shim)}


def test_musl_ignores_the_library(run: Runner, shim: Path, tmp_path: Path) -> None:
    """It is handed to the program, which has a loader, but that one does not know what it is."""
    need_program("musl-gcc", "musl-tools")
    specs = next(Path("/usr/lib").glob("*-linux-musl/musl-gcc.specs"))
    program = compile_c([SOURCE], tmp_path / "musl", ["-DWITHOUT_HIP", "-specs", str(specs)])
    assert seen(run("env", "-i", program, env=OURS)).environ == full(shim)
    maps = HERE / "programs" / "maps.c"
    with_musl = run(compile_c([maps], tmp_path / "maps-musl", ["-specs", str(specs)]), limit="garbage")
    with_glibc = run(compile_c([maps], tmp_path / "maps"), limit="garbage")
    assert (with_musl.code, with_musl.stderr) == (0, "")
    assert "-linux-musl/libc.so" in with_musl.stdout
    assert "libamvgpu" not in with_musl.stdout
    assert "libamvgpu" in with_glibc.stdout


def in_container(runner: Runner, command: Sequence[str | Path], *, first: dict[str, str] | None = None) -> Outcome:
    """Run it in a process namespace whose first process has the given variables, by default the container's."""
    need_root()
    entry = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]
    return runner(*entry, *command, env=OURS if first is None else first)


@pytest.mark.parametrize("name", ["seen", "seen-early"])
def test_a_process_that_kept_only_the_library_gets_the_rest_back(
    run: Runner, shim: Path, program: Program, built: Path, name: str
) -> None:
    """No hook saw the start: it was a system call made by hand."""
    wanted = {key: value for key, value in full(shim).items() if key not in {"HIP_VISIBLE_DEVICES", "GLIBC_TUNABLES"}}
    early = compile_c([HERE / "programs" / "early.c"], built / "libearly.so", ["-shared", "-fPIC"])
    flags = ["-Wl,--no-as-needed", str(early), f"-Wl,-rpath,{built}"] if name == "seen-early" else []
    target = program("seen", flags, name.removeprefix("seen"))
    child = seen(in_container(run, [program("starts"), "by-hand", target]))
    assert child.environ == {"KEPT": "1", **wanted}
    assert child.total_mib == LIMIT_MIB
    assert child.report["early"] == (OURS["HSA_CU_MASK"] if flags else "")


def test_it_would_have_lost_them(built: Path, program: Program) -> None:
    library = compile_shim(built / "library-forgetful", defines="-DREGAIN=0")
    child = seen(in_container(Runner(library), [program("starts"), "by-hand", program("seen")]))
    assert child.environ == {"KEPT": "1", "LD_AUDIT": str(library)}
    assert child.total_mib == PHYSICAL_MIB


def test_its_own_children_get_them_too(run: Runner, program: Program) -> None:
    command: list[str | Path] = [program("starts"), "by-hand", "/usr/bin/env", "-i", program("seen")]
    assert (
        seen(in_container(run, command)).environ.items()
        >= {name: OURS[name] for name in ("HIP_DEVICE_MEMORY_LIMIT", "HSA_CU_MASK", "ROCR_VISIBLE_DEVICES")}.items()
    )


@pytest.mark.parametrize("first", [{"LD_AUDIT": "/another/libamvgpu.so"}, {"LD_AUDIT": ""}])
def test_the_first_process_of_something_else_gives_nothing(shim: Path, program: Program, first: dict[str, str]) -> None:
    """With hostPID the first process is the machine's own."""
    command: list[str | Path] = ["env", f"LD_AUDIT={shim}", program("starts"), "by-hand", program("seen")]
    need_root()
    entry = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@" 2>&1 | grep -v ld.so', "sh"]
    outcome = Runner(None)(*entry, *command, env={**OURS, **first})
    assert Seen(outcome.line).environ == {"KEPT": "1", "LD_AUDIT": str(shim)}
    assert Seen(outcome.line).total_mib == PHYSICAL_MIB


def test_another_user_may_not_look_at_the_first_process(shim: Path, program: Program, plain: Path) -> None:
    """Then what was lost stays lost, and the program runs."""
    need_root()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # pytest's own folders are root's alone
        starts, target, library = (Path(shutil.copy(file, folder)) for file in (program("starts"), plain, shim))
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        child = seen(in_container(Runner(library), [*user, starts, "by-hand", target]))
        assert child.environ == {"KEPT": "1", "LD_AUDIT": str(library)}
        by_root = seen(in_container(Runner(library), [starts, "by-hand", target]))
        assert by_root.environ.keys() > child.environ.keys()
