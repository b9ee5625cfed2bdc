"""What the library needs from the system it is loaded on: nothing."""

import subprocess
from pathlib import Path

import pytest

from tests.shim.build import SHIM, CompileError, compile_c, compile_shim


def check(library: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(SHIM / "check-abi.sh"), str(library)], capture_output=True, text=True, check=False)


def test_the_library_passes(shim: Path) -> None:
    done = check(shim)
    assert (done.returncode, done.stderr) == (0, "")


FAULTS = {
    "undefined symbols": (
        'int puts(const char *); int la_version(void); int la_version(void) { return puts(""); }',
        [],
    ),
    "exports": ("int leaked; int leaked = 1;", ["-nostdlib"]),
    "needs other libraries": (
        "int la_version(void); int la_version(void) { return 0; }",
        ["-Wl,--no-as-needed", "-lm"],
    ),
    "TLS segment": ("__thread int t; int *la_version(void); int *la_version(void) { return &t; }", ["-nostdlib"]),
    "text relocations": (
        'int x; __asm__(".text\\n.quad x\\n");',
        ["-nostdlib", "-Wl,-z,notext"],
    ),
    "executable stack": ("int x;", ["-nostdlib", "-Wl,-z,execstack"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_finds_the_fault(fault: str, tmp_path: Path) -> None:
    source, flags = FAULTS[fault]
    (tmp_path / "bad.c").write_text(source)
    bad = compile_c([tmp_path / "bad.c"], tmp_path / "bad.so", ["-shared", "-fPIC", *flags])
    done = check(bad)
    assert done.returncode != 0
    assert fault in done.stderr


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "-s", "-C", str(SHIM), f"BUILD={tmp_path}", "CC=no-such-compiler"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "no-such-compiler not found: apt-get install gcc" in done.stderr


def test_a_missing_compiler_is_named_to_tests_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match="gcc not found: apt-get install gcc"):
        compile_shim(tmp_path / "library")


def test_building_writes_nothing_beside_the_sources(tmp_path: Path) -> None:
    before = set(SHIM.iterdir()) - {SHIM / "build"}
    compile_shim(tmp_path / "library")
    assert set(SHIM.iterdir()) - {SHIM / "build"} == before
