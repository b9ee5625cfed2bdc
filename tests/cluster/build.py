"""Kubernetes daemons that are compiled once and kept."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError, ClusterUnavailable
from tests.cluster.paths import cache_folder
from tests.cluster.progress import step

DAEMONS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
SCRATCH_PREFIX = "build-"

# A compiler and its many children must not outlive a builder that was killed.
UNTIL_OUR_END = ("setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True)
class Release:
    """A version of Kubernetes, and how its daemons are made.

    Attributes:
        version: as the daemons tell it, without the v.
        revision: of what is done to the sources: with another number everybody builds again.
        make: gets a scratch folder and a log file, and returns the folder with the finished daemons.
    """

    version: str
    revision: int
    make: Callable[[Path, Path], Path]

    @property
    def folder(self) -> Path:
        """Where the built daemons are kept, whether or not they are there yet."""
        return cache_folder() / f"kubernetes-{self.version}-{self.revision}" / "bin"

    @property
    def is_built(self) -> bool:
        return all((self.folder / name).exists() for name in DAEMONS)

    def build(self) -> Path:
        """Build the daemons unless they are there; return their folder."""
        if self.is_built:
            return self.folder
        with _only_one_builder(self.version):
            if self.is_built:
                return self.folder
            # The lock is held, so whatever lies here belonged to a build that was interrupted.
            for stale in cache_folder().glob(f"{SCRATCH_PREFIX}*"):
                shutil.rmtree(stale, ignore_errors=True)
            log = cache_folder() / "build.log"
            log.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=cache_folder()) as scratch:
                try:
                    self._finish(self.make(Path(scratch), log), Path(scratch) / "finished")
                except ClusterError as error:
                    raise ClusterUnavailable(f"Kubernetes {self.version} cannot be built\n{error}") from error
        return self.folder

    def _finish(self, made: Path, finished: Path) -> None:
        """Put the daemons where they are kept, all at once."""
        (finished / "bin").mkdir(parents=True)
        for name in DAEMONS:
            shutil.move(made / name, finished / "bin" / name)
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        finished.rename(self.folder.parent)


@contextmanager
def _only_one_builder(version: str) -> Iterator[None]:
    with (cache_folder() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"Kubernetes {version}: waiting for another build"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
