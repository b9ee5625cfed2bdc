"""Build the Kubernetes daemons from Debian's source package, whose binary packages ship only kubectl."""

import fcntl
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.errors import ClusterError, ClusterUnavailable
from tests.cluster.gofix import repair
from tests.cluster.packages import GO_ROOT, TO_BUILD, ensure_packages
from tests.cluster.paths import cache_folder
from tests.cluster.progress import run_logged, step

VERSION = "1.20.2"
REVISION = 2
"""Of what is done to the sources: with another number everybody builds again."""
COMMIT = "faecb196815e248d3ecfb03c680a4507229c2a56"
SUITE = "bookworm"
DAEMONS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
SCRATCH_PREFIX = "build-"

# A compiler and its many children must not outlive a builder that was killed.
_UNTIL_OUR_END = ("setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

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


def built_folder() -> Path:
    """Return the folder where the built daemons are kept, whether or not they are there yet."""
    return cache_folder() / f"kubernetes-{VERSION}-{REVISION}" / "bin"


def is_built() -> bool:
    return all((built_folder() / name).exists() for name in DAEMONS)


def build() -> Path:
    """Build the daemons unless they are there; return their folder."""
    with _only_one_builder():
        if is_built():
            return built_folder()
        ensure_packages(TO_BUILD)
        # The lock is held, so whatever lies here belonged to a build that was interrupted.
        for stale in cache_folder().glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(stale, ignore_errors=True)
        log = cache_folder() / "build.log"
        log.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=cache_folder()) as scratch:
            try:
                _build_in(Path(scratch), log)
            except ClusterError as error:
                raise ClusterUnavailable(f"the Kubernetes daemons cannot be built\n{error}") from error
    return built_folder()


@contextmanager
def _only_one_builder() -> Iterator[None]:
    with (cache_folder() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"Kubernetes {VERSION}: waiting for another build of it"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_in(scratch: Path, log: Path) -> None:
    with step(f"Kubernetes {VERSION}: fetching Debian's source (log: {log})"):
        archive = _fetch_source(scratch, log)
    with step(f"Kubernetes {VERSION}: unpacking"):
        tree = _unpack(archive, scratch / "source")
        repair(tree)
    with step(f"Kubernetes {VERSION}: compiling 4 daemons, about 8 minutes on 2 cores"):
        _compile(tree, scratch, log)
    finished = scratch / "finished"
    (finished / "bin").mkdir(parents=True)
    for name in DAEMONS:
        shutil.move(tree / "_output/local/bin/linux/amd64" / name, finished / "bin" / name)
    target = built_folder().parent
    shutil.rmtree(target, ignore_errors=True)
    finished.rename(target)


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
    run_logged([*_UNTIL_OUR_END, "make", f"WHAT={targets}"], log, env=environment, cwd=tree)
