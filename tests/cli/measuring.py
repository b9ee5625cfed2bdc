"""Builds the measuring program of manifests/examples/validate with a stand-in for HIP and the GPUs."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "manifests/examples/validate/measure.hip"


def compile_measure(out: Path) -> Path:
    """Compile it with g++; it needs nothing but the C library, so that it runs in a tiny image."""
    headers = ROOT / "tests/cli/standin_hip"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{headers}", "-static-libstdc++", "-static-libgcc"]
    command = ["g++", *flags, "-x", "c++", str(SOURCE), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out
