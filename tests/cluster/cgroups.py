"""The cluster's own branch in every cgroup hierarchy: it holds all its processes, so none can hide."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
INTERVAL = 0.02


def hierarchies() -> list[Path]:
    """Return the root of every hierarchy: one for cgroup v2, one for each controller of v1."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    roots = {entry.resolve() for entry in MOUNT.iterdir() if (entry / "cgroup.procs").exists()}
    return sorted(roots)


class Branch:
    """`/<name>` in every hierarchy, the kubelet's cgroup root; the daemons live in a leaf of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._roots = hierarchies()
        by_name = {root.name: root for root in self._roots}
        # Any hierarchy would do to find the processes in; the pids one is there wherever a kubelet can run.
        self._tracked = by_name.get("pids", self._roots[0]) / name

    @property
    def folders(self) -> list[Path]:
        return [root / self.name for root in self._roots]

    @property
    def join_file(self) -> Path:
        """Writing 0 to this file moves the writer into the branch."""
        return self._tracked / "daemons" / "cgroup.procs"

    def create(self) -> None:
        for folder in self.folders:
            if folder.parent == MOUNT:
                _delegate(folder.parent)
            folder.mkdir()
            if folder.parent == MOUNT:
                _delegate(folder)
        self.join_file.parent.mkdir()

    def processes(self) -> set[int]:
        """Return the ids of all processes in the branch, containers included."""
        found: set[int] = set()
        for file in self._tracked.rglob("cgroup.procs"):
            with suppress(OSError):
                found.update(int(line) for line in file.read_text().split())
        # A zero stands for a process that this process's PID namespace does not see.
        return found - {0}

    def kill(self, timeout: float) -> bool:
        """Kill everything in the branch; tell whether it is empty."""
        deadline = time.monotonic() + timeout
        while processes := self.processes():
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(INTERVAL)
        return True

    def remove(self, timeout: float) -> list[Path]:
        """Remove the branch; return what could not be removed in time."""
        deadline = time.monotonic() + timeout
        # A cgroup stays busy for a moment after its last process has ended.
        while (left := [folder for folder in self.folders if not _remove(folder)]) and time.monotonic() < deadline:
            time.sleep(INTERVAL)
        return left


def _delegate(folder: Path) -> None:
    """Let a v2 group's children have the controllers that a kubelet wants."""
    for controller in ("cpu", "cpuset", "memory", "pids"):
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _remove(top: Path) -> bool:
    for folder in _bottom_up(top):
        with suppress(OSError):
            folder.rmdir()
    return not top.exists()


def _bottom_up(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top, topdown=False):
        yield Path(folder)
