"""Where the Kubernetes daemons come from: the caller's own, else built once and kept."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import debian_source, go_modules
from tests.cluster.build import DAEMONS
from tests.cluster.errors import ClusterUnavailable
from tests.cluster.packages import TO_RUN, ensure_packages

ASSETS = "KUBEBUILDER_ASSETS"
KUBERNETES = "KUBERNETES"
OLD, RECENT = "1.20", "1.35"
RELEASES = {OLD: debian_source.RELEASE, RECENT: go_modules.RELEASE}


@dataclass(frozen=True)
class Binaries:
    """The executables of one Kubernetes version."""

    apiserver: Path
    controller_manager: Path
    scheduler: Path
    kubelet: Path
    minor: int

    @property
    def has_insecure_ports(self) -> bool:
        """Up to 1.23 the daemons also listen without TLS unless told not to."""
        return self.minor < 24


def find_binaries(release: str = "") -> Binaries:
    """Return the daemons of a release.

    Args:
        release: one of `RELEASES`, which are built; else the one that KUBERNETES names in the environment; else those
            of KUBEBUILDER_ASSETS or PATH if all are there; else the old one.
    """
    ensure_packages(TO_RUN)
    release = release or os.environ.get(KUBERNETES, "")
    if release and release not in RELEASES:
        raise ClusterUnavailable(f"{KUBERNETES}={release}: must be one of {', '.join(RELEASES)}")
    return _of(*_found(release))


def _found(release: str) -> list[Path]:
    for search in () if release else _search_paths():
        found = [shutil.which(name, path=search) for name in DAEMONS]
        paths = [Path(path) for path in found if path]
        if len(paths) == len(DAEMONS):
            return paths
    folder = RELEASES[release or OLD].build()
    return [folder / name for name in DAEMONS]


def _search_paths() -> Iterator[str]:
    if ASSETS in os.environ:
        yield os.environ[ASSETS]
    yield os.environ.get("PATH", os.defpath)


def _of(apiserver: Path, controller_manager: Path, scheduler: Path, kubelet: Path) -> Binaries:
    text = subprocess.run([kubelet, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"v1\.(\d+)", text)
    if match is None:
        raise ClusterUnavailable(f"{kubelet} --version tells no version: {text!r}")
    return Binaries(apiserver, controller_manager, scheduler, kubelet, int(match[1]))
