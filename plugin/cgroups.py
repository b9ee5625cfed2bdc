"""Which pods have processes, told by the kernel's cgroups: also for pods that the cluster has forgotten.

The kubelet gives every pod a cgroup named after its uid, at the end of a path that depends on the pod's quality of
service and on the node's settings: `pod<uid>` with its driver `cgroupfs`, `kubepods-burstable-pod<uid>.slice` with `_`
for `-` with its driver `systemd`. It is searched for by that name.

Processes are counted, not listed: `cgroup.procs` shows a reader in another PID namespace nothing (v1) or zeros (v2).
"""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

_POD: Final = re.compile(r"(?:.*-)?pod([0-9A-Za-z][0-9A-Za-z_-]*?)(\.slice)?", re.ASCII)
_DEEPEST: Final = 10


class CgroupError(Exception):
    """The folder holds no cgroups that can be counted."""


def pods_with_processes(root: Path) -> frozenset[str]:
    """Return the uids of the pods that have at least one process, zombies left out.

    Args:
        root: where the host's cgroups are mounted, `/sys/fs/cgroup` there.

    Raises:
        CgroupError: neither cgroup v2 nor the `pids` controller of v1 is there.
    """
    base = _hierarchy(root)
    return frozenset(uid for folder, uid in _pod_cgroups(base) if _has_processes(folder))


def processes_of_pods(root: Path, uids: Collection[str]) -> dict[str, frozenset[int]]:
    """Return the ids of the processes of some pods by uid, as far as this process's PID namespace shows them.

    A pod that has processes, none of which can be seen, has an empty set; a pod without any is missing.

    Args:
        root: where the host's cgroups are mounted.
        uids: of the pods.

    Raises:
        CgroupError: as above.
    """
    found = {uid: folder for folder, uid in _pod_cgroups(_hierarchy(root)) if uid in uids and _has_processes(folder)}
    return {uid: frozenset(_listed(folder)) for uid, folder in found.items()}


def _listed(cgroup: Path) -> Iterator[int]:
    for file in (cgroup / "cgroup.procs", *cgroup.glob("**/cgroup.procs")):
        try:
            lines = file.read_text().split()
        except OSError:
            continue
        # A zero stands for a process of another PID namespace.
        yield from (int(line) for line in lines if line != "0")


def _hierarchy(root: Path) -> Path:
    if (root / "cgroup.controllers").exists():
        return root
    if (root / "pids" / "cgroup.procs").exists():
        return root / "pids"
    raise CgroupError(
        f"{root}: is neither cgroup v2 nor has the controller pids of v1: mount the host's /sys/fs/cgroup"
    )


def _pod_cgroups(base: Path) -> Iterator[tuple[Path, str]]:
    top = len(base.parts)
    for name, folders, _ in os.walk(base):
        here = Path(name)
        found = {folder: match for folder in folders if (match := _POD.fullmatch(folder))}
        for folder, match in found.items():
            yield here / folder, match[1].replace("_", "-") if match[2] else match[1]
        # What is inside a pod's cgroup are its containers, counted with it.
        folders[:] = [] if len(here.parts) - top >= _DEEPEST else [one for one in folders if one not in found]


def _has_processes(cgroup: Path) -> bool:
    try:
        return "populated 1" in (cgroup / "cgroup.events").read_text().splitlines()
    except OSError:
        pass
    try:
        return int((cgroup / "pids.current").read_text()) > 0
    except (OSError, ValueError):
        return False  # it was removed meanwhile, which the kernel allows only for an empty one
