"""Kubernetes 1.20 from Debian's source package, whose binary packages ship only kubectl."""

import os
import tarfile
from pathlib import Path

from tests.cluster.build import DAEMONS, UNTIL_OUR_END, Release
from tests.cluster.errors import ClusterError
from tests.cluster.gofix import repair
from tests.cluster.packages import GO_ROOT, TO_BUILD, ensure_packages
from tests.cluster.progress import run_logged, step

VERSION = "1.20.2"
REVISION = 2
COMMIT = "faecb196815e248d3ecfb03c680a4507229c2a56"
SUITE = "bookworm"

_SOURCES = f"""\
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: {SUITE}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""

_VERSION_FILE = f"""\
KUBE_GIT_COMMIT='{COMMIT}'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v{VERSION}'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
"""


def make(scratch: Path, log: Path) -> Path:
    """Compile the daemons; return the folder with them."""
    ensure_packages(TO_BUILD)
    with step(f"Kubernetes {VERSION}: fetching Debian's source (log: {log})"):
        archive = _fetch_source(scratch, log)
    with step(f"Kubernetes {VERSION}: unpacking"):
        tree = _unpack(archive, scratch / "source")
        repair(tree)
    with step(f"Kubernetes {VERSION}: compiling 4 daemons, about 8 minutes on 2 cores"):
        _compile(tree, scratch, log)
    return tree / "_output/local/bin/linux/amd64"


def _fetch_source(scratch: Path, log: Path) -> Path:
    """Download the source package with package lists of our own: the machine's lists stay as they are."""
    apt, download = scratch / "apt", scratch / "download"
    for folder in (apt / "sources", apt / "lists/partial", apt / "cache/archives/partial", download):
        folder.mkdir(parents=True)
    (apt / "sources/source.sources").write_text(_SOURCES)
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": str(apt / "sources"),
        "Dir::State::lists": str(apt / "lists"),
        "Dir::Cache": str(apt / "cache"),
        # The download folder is root's own; apt's sandbox user could not write there.
        "APT::Sandbox::User": "root",
        "APT::Update::Post-Invoke-Success": "",
    }
    apt_get = ["apt-get", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]
    run_logged([*apt_get, "update"], log)
    run_logged([*apt_get, "source", "--download-only", "kubernetes"], log, cwd=download)
    found = sorted(download.glob("kubernetes_*.orig.tar.*"))
    if not found:
        raise ClusterError(f"apt-get source brought no source archive; see {log}")
    return found[0]


def _unpack(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="tar")
    (tree,) = into.iterdir()
    return tree


def _compile(tree: Path, scratch: Path, log: Path) -> None:
    home, version = scratch / "home", scratch / "version"
    home.mkdir()
    version.write_text(_VERSION_FILE)
    link = tree / ".go/src/k8s.io/kubernetes"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../..")
    # The old tree breaks under a newer Go or its settings, so nothing of the caller's environment is passed on.
    environment = {
        "PATH": f"{GO_ROOT}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "GOPATH": str(tree / ".go"),
        "CGO_ENABLED": "0",
        "KUBE_GIT_VERSION_FILE": str(version),
        "TMPDIR": str(home),
        "GOMAXPROCS": str(len(os.sched_getaffinity(0))),
    }
    # The makefiles look for a repository's top folder.
    run_logged(["git", "init", "--quiet", "."], log, env=environment, cwd=tree)
    targets = " ".join(f"cmd/{name}" for name in DAEMONS)
    run_logged([*UNTIL_OUR_END, "make", f"WHAT={targets}"], log, env=environment, cwd=tree)


RELEASE = Release(VERSION, REVISION, make)
