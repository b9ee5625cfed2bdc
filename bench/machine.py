"""What a benchmark says of the machine that it ran on."""

import os
import platform
from pathlib import Path


def describe() -> str:
    """Return processor, cores, kernel and Python in one line."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _read("/proc/cpuinfo").splitlines() if "model name" in line),
        platform.machine(),
    )
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}"


def _read(path: str) -> str:
    return Path(path).read_text(errors="replace")
