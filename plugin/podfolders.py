"""A folder on the host for each pod that has GPUs: what outlives the plugin and ends with the pod.

    <run_dir>/pods/<pod uid>/held.json            what the pod was given (the ledger)
    <run_dir>/pods/<pod uid>/<container>.region   the memory account of one container's processes

The folders lie on a tmpfs, so a reboot, which no process survives, takes them all. Containers get their file by a bind
mount, which needs no way through the folders; these are closed to everybody but root.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from protocol.allocation import AllocationError

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)
_FOLDER_MODE: Final = 0o700
_REGION_MODE: Final = 0o666
"""A container may run as any user, or as several."""


def pods_folder(run_dir: Path) -> Path:
    """Return the folder of all pods' folders."""
    return run_dir / "pods"


def pod_folder(run_dir: Path, uid: str) -> Path:
    """Return where a pod's folder is.

    Raises:
        AllocationError: the uid is no name for a folder.
    """
    return pods_folder(run_dir) / _checked(uid, "uid")


def region_path(run_dir: Path, uid: str, container: str) -> Path:
    """Return where the memory account of a container is.

    Raises:
        AllocationError: the uid or the container's name is no name for a file.
    """
    return pod_folder(run_dir, uid) / f"{_checked(container, 'container name')}.region"


def make_region(path: Path) -> None:
    """Make the file in which a container's processes count their memory; one that is there stays.

    The audit library gives it its content. A container that starts again finds what its dead processes held, and takes
    it back: their locks on the file are gone.

    Raises:
        OSError: it cannot be made.
    """
    make_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _REGION_MODE)
    try:
        os.fchmod(descriptor, _REGION_MODE)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a pod's folder, and those above it, for root alone.

    Raises:
        OSError: it cannot be made.
    """
    folder.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def pods_with_folder(run_dir: Path) -> frozenset[str]:
    """Return the uids of the pods that have a folder.

    Raises:
        OSError: the folders cannot be listed.
    """
    try:
        return frozenset(one.name for one in pods_folder(run_dir).iterdir() if _SAFE_NAME.fullmatch(one.name))
    except FileNotFoundError:
        return frozenset()


def remove_folder(run_dir: Path, uid: str) -> None:
    """Remove a pod's folder with all that is in it; processes that have a file of it mapped keep theirs.

    Raises:
        OSError: it is there and cannot be removed.
    """
    try:
        shutil.rmtree(pod_folder(run_dir, uid))
    except FileNotFoundError:
        return


def _checked(name: str, what: str) -> str:
    if _SAFE_NAME.fullmatch(name) is None:
        raise AllocationError(f"its {what} {name[:80]!r} must be letters, digits, '-', '_' and '.'")
    return name
