"""Compiles the library, the stand-in HIP runtime and the test programs.

Other tests use this too, for instance to put them into container images.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
SHIM: Final = HERE.parent.parent / "shim"
SONAME: Final = "libamdhip64.so.6"


class CompileError(RuntimeError):
    """A compiler is missing or has refused something."""


def compile_c(sources: Sequence[Path], out: Path, flags: Sequence[str] = ()) -> Path:
    """Compile C sources to `out`; flags come last, where libraries have to be."""
    out.parent.mkdir(parents=True, exist_ok=True)
    warnings = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I", str(HERE)]
    _run([_compiler(), *warnings, "-o", str(out), *map(str, sources), *flags])
    return out


def compile_standin_hip(out: Path, flags: Sequence[str] = ()) -> Path:
    """Build the stand-in for AMD's runtime; a folder gets a file named as its soname, as a program looks for it."""
    target = out / SONAME if out.is_dir() else out
    shared = ["-fPIC", "-shared", f"-Wl,-soname,{SONAME}", "-pthread", *flags, "-ldl"]
    return compile_c(sorted((HERE / "standin_hip").glob("*.c")), target, shared)


def compile_standin_hsa(folder: Path, flags: Sequence[str] = ()) -> Path:
    """Build the stand-ins for AMD's thunk and HSA runtime, and a HIP on top of them, linked as AMD's are."""
    linked: list[str] = []
    for source, soname in (("thunk", "libhsakmt.so.1"), ("runtime", "libhsa-runtime64.so.1"), ("hip", SONAME)):
        shared = ["-fPIC", "-shared", f"-Wl,-soname,{soname}", f"-Wl,-rpath,{folder}", "-pthread", *flags]
        compile_c([HERE / "standin_hsa" / f"{source}.c"], folder / soname, [*shared, *linked])
        linked.append(str(folder / soname))
    return folder


def compile_client(out: Path, hip: Path) -> Path:
    """Build the small HIP program; at run time it looks for libamdhip64.so.6 in the folder of `hip`."""
    return compile_linked(HERE / "client.c", out, hip)


def compile_linked(source: Path, out: Path, hip: Path, flags: Sequence[str] = ()) -> Path:
    """Build a program or plugin that is linked to the HIP library `hip`."""
    return compile_c([source], out, [*flags, str(hip), f"-Wl,-rpath,{hip.parent}", "-pthread", "-ldl"])


def compile_shim(out: Path | None = None, defines: str = "") -> Path:
    """Build libamvgpu.so with its Makefile, in `out` or else in the folder that an installation takes it from."""
    build = SHIM / "build" if out is None else out
    _compiler()
    build.mkdir(parents=True, exist_ok=True)
    # Two test sessions may want the same folder at the same time.
    with (build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _run(["make", "-s", "-C", str(SHIM), f"BUILD={build}", f"DEFINES={defines}"])
    return build / "libamvgpu.so"


def _compiler() -> str:
    path = shutil.which(os.environ.get("CC", "gcc"))
    if path is None:
        raise CompileError("gcc not found: apt-get install gcc")
    return path


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
