"""The made trees are as the kubelet makes them; the counting is also tried on the machine's own cgroups."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from plugin.cgroups import CgroupError, pods_with_processes, processes_of_pods

UID = "0f2b9a9c-58bd-4c8f-a4a5-9e6f2e7f1d11"
SYSTEMD = UID.replace("-", "_")
OTHER = "6f6e5d4c-0000-4000-8000-000000000001"

PLACES = [
    f"kubepods/pod{UID}",
    f"kubepods/besteffort/pod{UID}",
    f"kubepods.slice/kubepods-pod{SYSTEMD}.slice",
    f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice",
    # In a container of its own (kind), and with a cgroup root of its own.
    f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{SYSTEMD}.slice",
    f"docker/3f/kubelet/kubepods/burstable/pod{UID}",
]


def made_v2(root: Path, place: str, *, populated: bool) -> None:
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu pids\n")
    container = root / place / "cri-containerd-1234.scope"
    container.mkdir(parents=True)
    (root / place / "cgroup.events").write_text(f"populated {populated:d}\nfrozen 0\n")
    (root / place / "cgroup.procs").write_text("")
    (container / "cgroup.procs").write_text("0\n" if populated else "")


def made_v1(root: Path, place: str, *, populated: bool) -> None:
    for controller in ("cpu", "pids"):
        folder = root / controller / place
        folder.mkdir(parents=True)
        (root / controller / "cgroup.procs").write_text("1\n")
        (folder / "cgroup.procs").write_text("")
    (root / "pids" / place / "pids.current").write_text(f"{3 * populated}\n")


@pytest.mark.parametrize("make", [made_v1, made_v2])
@pytest.mark.parametrize("place", PLACES)
def test_a_pods_cgroup_is_found_wherever_the_kubelet_puts_it(tmp_path: Path, make: object, place: str) -> None:
    assert callable(make)
    make(tmp_path / "full", place, populated=True)
    assert pods_with_processes(tmp_path / "full") == {UID}
    make(tmp_path / "empty", place, populated=False)
    assert pods_with_processes(tmp_path / "empty") == frozenset()


def test_static_pods_have_a_hash_for_a_uid(tmp_path: Path) -> None:
    made_v2(tmp_path, "kubepods.slice/kubepods-pod8a6d77b1b3ac2b3f1d2f.slice", populated=True)
    assert pods_with_processes(tmp_path) == {"8a6d77b1b3ac2b3f1d2f"}


def test_only_pods_that_have_processes(tmp_path: Path) -> None:
    made_v2(tmp_path, f"kubepods/pod{UID}", populated=True)
    made_v2(tmp_path, f"kubepods/pod{OTHER}", populated=False)
    assert pods_with_processes(tmp_path) == {UID}


def test_a_folder_without_cgroups_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="mount the host's /sys/fs/cgroup"):
        pods_with_processes(tmp_path)


ROOT = Path("/sys/fs/cgroup")
BASE = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "pids"


def test_the_kernels_own_count() -> None:
    """A real process in a real cgroup of a pod's name, seen from another PID namespace as from this one."""
    if os.geteuid() or not os.access(BASE, os.W_OK):
        pytest.skip(f"needs root and a writable {BASE}")
    uid = str(uuid.uuid4())
    pod = BASE / f"pod{uid}"
    container = pod / "container"
    container.mkdir(parents=True)
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            (container / "cgroup.procs").write_text(str(process.pid))
            assert uid in pods_with_processes(ROOT)
            assert _seen_in_another_pid_namespace(uid)
            process.kill()
        assert uid not in pods_with_processes(ROOT)
    finally:
        container.rmdir()
        pod.rmdir()


def _seen_in_another_pid_namespace(uid: str) -> bool:
    code = (
        f"from pathlib import Path; from plugin.cgroups import *; print('{uid}' in pods_with_processes(Path('{ROOT}')))"
    )
    python = sys.executable
    command = ["unshare", "--pid", "--fork", "--mount-proc", python, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return done.stdout.strip() == "True"


def test_processes_are_listed_with_those_of_containers_and_none_that_cannot_be_seen(tmp_path: Path) -> None:
    made_v2(tmp_path, f"kubepods/pod{UID}", populated=True)
    made_v2(tmp_path, f"kubepods/pod{OTHER}", populated=False)
    assert processes_of_pods(tmp_path, [UID, OTHER]) == {UID: frozenset()}
    container = tmp_path / f"kubepods/pod{UID}/cri-containerd-1234.scope"
    (container / "cgroup.procs").write_text("12\n0\n13\n")
    (tmp_path / f"kubepods/pod{UID}/cgroup.procs").write_text("11\n")
    assert processes_of_pods(tmp_path, [UID]) == {UID: {11, 12, 13}}
    assert processes_of_pods(tmp_path, [OTHER]) == {}
