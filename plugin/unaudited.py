"""Processes that have a GPU open without the audit library, told from /proc.

The loader maps the library before a program begins, and AMD's runtime opens `/dev/kfd` later. So a process that has it
open and not the library was never held to its limit: it is linked statically or with musl, or was started without
`LD_AUDIT`.
"""

import os
import re
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.names import LIBRARY_NAME

_DEVICE: Final = "kfd"
_MAPPED: Final = re.compile(rf"/{re.escape(LIBRARY_NAME)}(?: \(deleted\))?$".encode(), re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Unaudited:
    """A process that is not held to its limit.

    Attributes:
        pid: its id in this process's PID namespace.
        program: what it runs, as far as it can be told.
    """

    pid: int
    program: str


def find_unaudited(proc: Path, pid: int, kfd: int) -> Unaudited | None:
    """Return the process if it has the compute device open and not the library mapped, else None.

    Args:
        proc: where /proc is.
        pid: which process.
        kfd: device number of `/dev/kfd`.
    """
    folder = proc / str(pid)
    try:
        # Looked at twice: a process that becomes another program between the looks has the device of the first and the
        # mappings of the second.
        unheld = _has_open(folder, kfd) and not _has_library(folder) and _has_open(folder, kfd)
    except OSError:
        return None  # it ended meanwhile
    return Unaudited(pid, _program(folder)) if unheld else None


def kill(found: Unaudited, proc: Path, kfd: int) -> bool:
    """Kill the process if it is still as it was found, and return whether it was killed."""
    try:
        handle = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return False
    try:
        # Under the handle the id cannot have become another process's.
        if find_unaudited(proc, found.pid, kfd) is None:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    finally:
        os.close(handle)


def _has_open(folder: Path, kfd: int) -> bool:
    for entry in (folder / "fd").iterdir():
        with suppress(FileNotFoundError):
            status = entry.stat()
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == kfd and entry.readlink().name == _DEVICE:
                return True
    return False


def _has_library(folder: Path) -> bool:
    return _MAPPED.search((folder / "maps").read_bytes()) is not None


def _program(folder: Path) -> str:
    try:
        return str((folder / "exe").readlink())
    except OSError:
        return "unknown"
