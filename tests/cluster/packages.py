"""The Debian packages a cluster needs, found by what they provide and installed when that is allowed."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.errors import ClusterError, ClusterUnavailable
from tests.cluster.paths import cache_folder
from tests.cluster.progress import run_logged, step

CNI_FOLDER = Path("/usr/lib/cni")
BUSYBOX = Path("/bin/busybox")
GO_ROOT = Path("/usr/lib/go-1.19")
POLICY = Path("/usr/sbin/policy-rc.d")

# Package -> an executable it provides. The executable counts, wherever it came from.
TO_RUN: Mapping[str, str] = {
    "etcd-server": "etcd",
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": str(CNI_FOLDER / "ptp"),
    "busybox-static": str(BUSYBOX),
    "iproute2": "ip",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "socat": "socat",
    "kubernetes-client": "kubectl",
    "util-linux": "unshare",
    "mount": "mount",
    "libc-bin": "ldd",
}
TO_BUILD: Mapping[str, str] = {
    "golang-1.19-go": str(GO_ROOT / "bin/go"),
    "gcc": "gcc",
    "make": "make",
    "rsync": "rsync",
    "jq": "jq",
    "git": "git",
    "dpkg-dev": "dpkg-source",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
}


def missing_packages(wanted: Mapping[str, str]) -> list[str]:
    """Return the packages whose file is neither at its place nor on PATH."""
    return [package for package, probe in wanted.items() if not _is_there(probe)]


def _is_there(probe: str) -> bool:
    if probe == str(BUSYBOX):
        return BUSYBOX.exists() and is_static(BUSYBOX)
    return Path(probe).exists() if probe.startswith("/") else shutil.which(probe) is not None


def is_static(executable: Path) -> bool:
    """Tell whether an executable runs without a dynamic loader (an image has none)."""
    return b"/ld-linux" not in executable.read_bytes()


def ensure_packages(wanted: Mapping[str, str] = TO_RUN) -> None:
    """Install what is missing, or raise ClusterUnavailable with the command that would."""
    missing = missing_packages(wanted)
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterUnavailable(f"missing packages; run: sudo {' '.join(command)}")
    try:
        _install(command, missing)
    except ClusterError as error:
        raise ClusterUnavailable(f"cannot install packages; try: {' '.join(command)}\n{error}") from error


def _install(command: Sequence[str], missing: Sequence[str]) -> None:
    log = cache_folder() / "packages.log"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing {' '.join(missing)}"), _no_services_started():
        try:
            run_logged(command, log, env=environment)
        except ClusterError:
            run_logged(["apt-get", "update"], log, env=environment)
            run_logged(command, log, env=environment)


@contextmanager
def _no_services_started() -> Iterator[None]:
    """Keep the packages' own services (etcd, containerd) from being started by their installation."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
