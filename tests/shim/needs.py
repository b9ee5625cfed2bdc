"""What some tests need of the machine: without it they skip, or fail where everything has to run."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def need(there: bool, reason: str) -> None:
    """Go on only when it is there."""
    if there:
        return
    if os.environ.get("REQUIRE_CLUSTER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def need_root() -> None:
    """Setuid programs, process namespaces and other root file systems are made by root only."""
    need(os.geteuid() == 0, "needs root")


def need_program(name: str, *packages: str) -> Path:
    """Find a program, and install Debian's package of it where that is allowed."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=subprocess.DEVNULL)
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    found = shutil.which(name)
    need(found is not None, missing(name, packages))
    assert found is not None
    return Path(found)


def missing(name: str, packages: Sequence[str]) -> str:
    """Say what to do about a program that is not there."""
    return f"{name} is not installed: apt-get install {' '.join(packages)}"
