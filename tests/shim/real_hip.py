"""AMD's own libamdhip64, as Debian builds it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.shim.needs import need

INSTALL: Final = ("apt-get", "install", "--no-install-recommends", "libamdhip64-5")


def find_real_hip() -> Path:
    """Return it, installed where that is allowed (80 MB with what it needs)."""
    if installed_hip() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*INSTALL, "-y", "-q"], check=True, stdout=subprocess.DEVNULL)
    library = installed_hip()
    need(library is not None, f"AMD's libamdhip64 is not installed: {' '.join(INSTALL)}")
    assert library is not None
    return library


def installed_hip() -> Path | None:
    """Return it, if it is there."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = [line.split()[-1] for line in known.splitlines() if "libamdhip64.so." in line]
    return Path(found[0]) if found else None
