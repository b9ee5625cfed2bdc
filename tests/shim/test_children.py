"""Programs that are started in an environment without the variables of their container get them back."""

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.shim.build import compile_shim
from tests.shim.children import LIMIT_MIB, OURS, full, seen
from tests.shim.running import Outcome, Runner

PHYSICAL_MIB = 196608
Program = Callable[..., Path]


@pytest.fixture(scope="session")
def unhooked(built: Path) -> Path:
    """The library without the hooks that put the variables back."""
    return compile_shim(built / "library-unhooked", defines="-DEXEC_HOOKS=0")


WITH_ENVIRONMENT = [
    *("execve", "execvpe", "execle", "fexecve", "execveat", "execveat-descriptor"),
    *("posix_spawn", "posix_spawnp", "posix_spawn-old", "posix_spawnp-old"),
    *(name for name in ("pidfd_spawn", "pidfd_spawnp") if hasattr(ctypes.CDLL(None), name)),  # from glibc 2.39 on
    *("vfork", "double-fork"),
]
OWN_ENVIRONMENT = ["execv", "execvp", "execl", "execlp", "system", "popen"]
WAYS = [*WITH_ENVIRONMENT, *OWN_ENVIRONMENT]


def start(run: Runner, program: Program, way: str) -> Outcome:
    return run(program("starts"), way, program("seen"), "word", env=OURS)


@pytest.mark.parametrize("way", WAYS)
def test_a_function_of_the_c_library(run: Runner, shim: Path, program: Program, way: str) -> None:
    child = seen(start(run, program, way))
    assert child.environ == {"KEPT": "1", **full(shim)}
    assert child.report["words"] == [str(program("seen")), "word"]
    assert child.total_mib == LIMIT_MIB


@pytest.mark.parametrize("way", WAYS)
def test_they_would_be_lost_without_the_hooks(unhooked: Path, program: Program, way: str) -> None:
    child = seen(start(Runner(unhooked), program, way))
    assert child.environ == {"KEPT": "1"}
    assert child.total_mib == PHYSICAL_MIB


@pytest.mark.parametrize("flags", [["-fPIE", "-pie", "-mno-direct-extern-access"], ["-fno-pie", "-no-pie"]])
@pytest.mark.parametrize("way", ["execv", "execlp", "system"])
def test_wherever_the_program_keeps_its_environment(
    run: Runner, shim: Path, program: Program, way: str, flags: list[str]
) -> None:
    """In the C library's data, or in a copy of its own."""
    outcome = run(program("starts", flags, f"{flags[-1]}"), way, program("seen"), env=OURS)
    assert seen(outcome).environ == {"KEPT": "1", **full(shim)}


SHELLS = {
    "env -i": ["env", "-i", "{seen}"],
    "env -i twice": ["env", "-i", "/usr/bin/env", "-i", "{seen}"],
    "sh unset": ["sh", "-c", "unset LD_AUDIT HSA_CU_MASK HIP_DEVICE_MEMORY_LIMIT ROCR_VISIBLE_DEVICES; {seen}"],
    "sh unset and exec": ["sh", "-c", "unset LD_AUDIT HSA_CU_MASK HIP_DEVICE_MEMORY_LIMIT; exec {seen}"],
    "sh in a pipe": ["sh", "-c", "env -i {seen} | cat"],
    "bash exec -c": ["bash", "-c", "exec -c {seen}"],
    "bash in the background": ["bash", "-c", "env -i {seen} & wait"],
    "script": ["sh", "-c", "env -i {script}"],
    "nohup setsid": ["nohup", "setsid", "-w", "env", "-i", "{seen}"],
    "xargs": ["sh", "-c", "echo -i {seen} | xargs env"],
}


def shell(run: Runner, program: Program, tmp_path: Path, name: str) -> Outcome:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nexec {program('seen')}\n")
    script.chmod(0o755)
    return run(*(word.format(seen=program("seen"), script=script) for word in SHELLS[name]), env=OURS)


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_or_tool(run: Runner, shim: Path, program: Program, tmp_path: Path, name: str) -> None:
    child = seen(shell(run, program, tmp_path, name))
    assert child.environ == full(shim)
    assert child.total_mib == LIMIT_MIB


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_loses_them_without_the_hooks(unhooked: Path, program: Program, tmp_path: Path, name: str) -> None:
    child = seen(shell(Runner(unhooked), program, tmp_path, name))
    assert child.environ.items() < OURS.items()
    assert child.total_mib == PHYSICAL_MIB


PYTHON_WAYS = [
    *("subprocess_empty", "subprocess_without_fork", "subprocess_inheriting", "posix_spawn"),
    *("execv_after_clear", "system_after_clear", "multiprocessing_spawn", "ray"),
]


@pytest.mark.parametrize("way", PYTHON_WAYS)
def test_a_python_worker(run: Runner, shim: Path, program: Program, way: str) -> None:
    child = seen(run.python("workers", way, program("seen"), env=OURS))
    assert {name: child.environ.get(name) for name in full(shim)} == full(shim)
    assert child.total_mib == LIMIT_MIB


@pytest.mark.parametrize("way", PYTHON_WAYS)
def test_a_python_worker_loses_them_without_the_hooks(unhooked: Path, program: Program, way: str) -> None:
    child = seen(Runner(unhooked).python("workers", way, program("seen"), env=OURS))
    assert not {"LD_AUDIT", "HSA_CU_MASK", "HIP_DEVICE_MEMORY_LIMIT"} & child.environ.keys()
    assert child.total_mib == PHYSICAL_MIB


# What the child is given besides the right values, and what it should have: None for a variable that is not there.
VALUES: dict[str, tuple[Mapping[str, str | None], Mapping[str, str | None]]] = {
    "nothing changed": ({}, {}),
    "mask changed": ({"HSA_CU_MASK": "0:0-99"}, {}),
    "mask emptied": ({"HSA_CU_MASK": ""}, {}),
    "mask gone": ({"HSA_CU_MASK": None}, {}),
    "limit raised": ({"HIP_DEVICE_MEMORY_LIMIT": "99g"}, {}),
    "limit of one GPU added": ({"HIP_DEVICE_MEMORY_LIMIT_0": "99g"}, {}),
    "GPUs narrowed": ({"ROCR_VISIBLE_DEVICES": "GPU-2e"}, {"ROCR_VISIBLE_DEVICES": "GPU-2e"}),
    "GPUs emptied": ({"ROCR_VISIBLE_DEVICES": ""}, {"ROCR_VISIBLE_DEVICES": ""}),
    "GPUs gone": ({"ROCR_VISIBLE_DEVICES": None}, {}),
    "HIP GPUs narrowed": ({"HIP_VISIBLE_DEVICES": "1"}, {"HIP_VISIBLE_DEVICES": "1"}),
    "HIP GPUs taken out": ({"HIP_VISIBLE_DEVICES": None}, {"HIP_VISIBLE_DEVICES": None}),
    "HIP GPUs gone with the library": ({"HIP_VISIBLE_DEVICES": None, "LD_AUDIT": None}, {}),
    "HIP GPUs gone, another library": ({"HIP_VISIBLE_DEVICES": None, "LD_AUDIT": "{other}"}, {"LD_AUDIT": "{both}"}),
    "another library": ({"LD_AUDIT": "{other}"}, {"LD_AUDIT": "{both}"}),
    "both libraries": ({"LD_AUDIT": "{other}:{ours}"}, {"LD_AUDIT": "{other}:{ours}"}),
    "no library": ({"LD_AUDIT": ""}, {}),
    "other tunables": (
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"},
        {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096:glibc.malloc.arena_max=1"},
    ),
    "own value of the tunable": (
        {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096"},
        {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096"},
    ),
    "names that only begin alike": (
        {"HSA_CU_MASK_OTHER": "1", "LD_AUDITED": "2", "ROCR": "3"},
        {"HSA_CU_MASK_OTHER": "1", "LD_AUDITED": "2", "ROCR": "3"},
    ),
    "an entry without a value": ({"KEPT": "a=b"}, {"KEPT": "a=b"}),
}


@pytest.mark.parametrize("name", VALUES)
def test_which_values_a_program_may_change(
    run: Runner, run_bare: Runner, shim: Path, program: Program, built: Path, name: str
) -> None:
    other = compile_shim(built / "library-other", defines="-DEXEC_HOOKS=0")
    words = {"ours": str(shim), "other": str(other), "both": f"{shim}:{other}"}

    def fill(changes: Mapping[str, str | None]) -> dict[str, str]:
        merged = {**full(shim), **changes}
        return {key: value.format(**words) for key, value in merged.items() if value is not None}

    given, wanted = (fill(changes) for changes in VALUES[name])
    command: list[str | Path] = [
        program("exec_with"),
        *(f"{key}={value}" for key, value in given.items()),
        "--",
        program("seen"),
    ]
    assert seen(run(*command, env=OURS)).environ == wanted
    assert seen(run_bare(*command, env=OURS)).environ == given


def test_a_variable_that_is_there_twice_is_pinned_once(run: Runner, shim: Path, program: Program) -> None:
    entries = ["HSA_CU_MASK=0:1", f"LD_AUDIT={shim}", "HSA_CU_MASK=0:2"]
    wanted = {name: value for name, value in full(shim).items() if name != "HIP_VISIBLE_DEVICES"}
    assert seen(run(program("exec_with"), *entries, "--", program("seen"), env=OURS)).environ == wanted


@pytest.mark.parametrize("quoted", ["it's", "a b", "$HOME", '"', "`id`", "\\", "'"])
def test_a_value_passes_through_a_shell_as_it_is(run: Runner, shim: Path, program: Program, quoted: str) -> None:
    outcome = run(program("starts"), "system", program("seen"), env={**OURS, "HSA_CU_MASK": quoted})
    assert seen(outcome).environ == {"KEPT": "1", **full(shim), "HSA_CU_MASK": quoted}


@pytest.mark.parametrize("lacking", [["HIP_DEVICE_MEMORY_LIMIT"], ["HSA_CU_MASK"]])
def test_a_limit_or_a_mask_is_enough(run: Runner, shim: Path, program: Program, lacking: list[str]) -> None:
    ours = {name: value for name, value in OURS.items() if name not in lacking}
    child = seen(run(program("starts"), "execve", program("seen"), env=ours))
    assert child.environ == {"KEPT": "1", "LD_AUDIT": str(shim), **ours}


@pytest.mark.parametrize("way", ["execve", "execv", "posix_spawn", "system"])
def test_a_process_without_limit_and_mask_hands_nothing_down(run: Runner, program: Program, way: str) -> None:
    ours = {"ROCR_VISIBLE_DEVICES": "GPU-1f", "AMVGPU_LOG": "2"}
    assert seen(run(program("starts"), way, program("seen"), env=ours)).environ == {"KEPT": "1"}


def test_of_the_librarys_own_settings_only_the_log_is_free(run: Runner, program: Program, tmp_path: Path) -> None:
    region = f"AMVGPU_REGION={tmp_path}"
    command: list[str | Path] = [
        program("exec_with"),
        "AMVGPU_REGION=/elsewhere",
        "AMVGPU_LOG=0",
        "--",
        program("seen"),
    ]
    found = run(*command, env={**OURS, "AMVGPU_REGION": str(tmp_path)}).line["environ"]
    assert [entry for entry in found if entry.startswith("AMVGPU_")] == ["AMVGPU_LOG=0", region]


def test_the_library_is_joined_to_one_of_the_image(run: Runner, shim: Path, program: Program, built: Path) -> None:
    other = compile_shim(built / "library-other", defines="-DEXEC_HOOKS=0")
    started = {**OURS, "LD_AUDIT": f"{other}:{shim}"}
    child = seen(run(program("starts"), "execve", program("seen"), env=started))
    assert child.environ == {"KEPT": "1", **started}


def test_a_long_environment_does_not_overflow_a_small_stack(run: Runner, shim: Path, program: Program) -> None:
    child = seen(run(program("starts"), "many", program("seen"), env=OURS))
    own = {name: value for name, value in child.environ.items() if name.startswith("V")}
    assert own == {f"V{number}": "" for number in range(20000)}
    assert child.environ == {**own, **full(shim)}


def test_no_environment_at_all(run: Runner, shim: Path, program: Program) -> None:
    assert seen(run(program("starts"), "no-environment", program("seen"), env=OURS)).environ == full(shim)


def test_no_words_at_all(run: Runner, run_bare: Runner, shim: Path, program: Program) -> None:
    command: list[str | Path] = [program("starts"), "no-words", program("seen")]
    child = seen(run(*command, env=OURS))
    assert child.report["words"] == seen(run_bare(*command, env=OURS)).report["words"]
    assert child.environ == {"KEPT": "1", **full(shim)}


def test_file_actions_and_attributes_of_a_spawn(run: Runner, run_bare: Runner, shim: Path, program: Program) -> None:
    """The child's standard output is its standard error, it leads a group, and a signal is blocked."""
    reports = [
        Outcome(outcome.code, outcome.stderr, outcome.stdout).line
        for outcome in (
            each(program("starts"), "posix_spawn-extras", program("seen"), env=OURS) for each in (run, run_bare)
        )
    ]
    assert [(report["leads"], report["blocked"]) for report in reports] == [(1, 1), (1, 1)]
    assert set(reports[0]["environ"]) - set(reports[1]["environ"]) == {
        f"{name}={value}" for name, value in full(shim).items()
    }


TARGETS = ["missing", "folder", "data", "text", "empty", "forbidden-first", "only-by-name"]
RETURNING = ["execve", "execv", "execvp", "execvpe", "execlp", "execveat", "posix_spawn", "posix_spawnp", "vfork"]


@pytest.mark.parametrize("way", [*RETURNING, "posix_spawn-old", "posix_spawnp-old"])
@pytest.mark.parametrize("target", TARGETS)
def test_failures_and_searches_are_as_without_the_library(
    run: Runner, run_bare: Runner, program: Program, tmp_path: Path, way: str, target: str
) -> None:
    forbidden, found = tmp_path / "forbidden", tmp_path / "found"
    for folder in (forbidden, found, tmp_path / "folder"):
        folder.mkdir()
    for file, text, mode in [
        (tmp_path / "data", "data", 0o644),
        (tmp_path / "text", "echo '\"a script without a first line\"'", 0o755),
        (tmp_path / "empty", "", 0o755),
        (forbidden / "forbidden-first", "", 0o644),
        (found / "forbidden-first", "#!/bin/sh\necho '\"found\"'", 0o755),
        (found / "only-by-name", "#!/bin/sh\necho '\"found\"'", 0o755),
    ]:
        file.write_text(text)
        file.chmod(mode)
    name = target if "-" in target else str(tmp_path / target)
    env = {**OURS, "PATH": f"{forbidden}::{found}:/usr/bin:/bin"}
    command: list[str | Path] = [program("starts"), way, name]
    assert run(*command, env=env) == run_bare(*command, env=env)


def test_the_log_says_what_was_done(run: Runner, program: Program) -> None:
    outcome = run(program("starts"), "execve", program("seen"), env={**OURS, "AMVGPU_LOG": "1"})
    assert f"amd-vgpu: completes the environment of {program('seen')}" in outcome.stderr.splitlines()


def test_a_value_that_is_too_long_is_said_once(run: Runner, program: Program) -> None:
    env = {**OURS, "HSA_CU_MASK": "x" * 20000}
    outcome = run(program("starts"), "execve", program("seen"), env=env)
    assert outcome.code == 0
    (warning,) = outcome.stderr.splitlines()
    assert "too long to be handed down" in warning
