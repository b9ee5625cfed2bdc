"""Root file systems of several Debian generations, to run programs on their C libraries.

Fetched with apt from where this machine gets its own packages, unpacked without installing anything, and kept in
~/.cache/amd-vgpu/roots (about 75 MB each).
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.shim.running import TIMEOUT_SECONDS, Outcome

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amd-vgpu" / "roots"
PACKAGES: Final = ("dash", "bash", "coreutils", "python3-minimal", "libc6-dev")
# Part of the name of what is kept, so that a change here fetches anew.
LAYOUT: Final = "1"
FETCH_SECONDS: Final = 240
# Where a program finds the test session's folder.
SHARED: Final = Path("/mnt")
ENTER: Final = """
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --bind "$2" "$1/mnt" || exit 125
root=$1; shift 2
exec chroot "$root" "$@"
"""


class RootError(RuntimeError):
    """A root file system cannot be made here."""


def fetch(suite: str) -> Path:
    """Return the root of a Debian suite."""
    CACHE.mkdir(parents=True, exist_ok=True)
    root = CACHE / f"{suite}-{LAYOUT}"
    with _locked(CACHE / f"{suite}.lock"):
        if not root.exists():
            work = CACHE / f"{suite}.new"
            shutil.rmtree(work, ignore_errors=True)
            try:
                _make(suite, work)
                (work / "root").rename(root)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return root


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(suite: str, work: Path) -> None:
    for folder in ("lists/partial", "cache/archives/partial", "root/usr", "root/proc", "root/dev", "root/mnt"):
        (work / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (work / "root" / "usr" / name).mkdir()
        (work / "root" / name).symlink_to(f"usr/{name}")
    (work / "status").touch()
    (work / "sources.list").write_text(_source(suite))
    options = {
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": work / "none",
        "Dir::Etc::preferencesparts": work / "none",
        "Dir::Etc::preferences": work / "none",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
    }
    apt = ["apt-get", "-q", "-y", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*apt, "update"])
    _run([*apt, "--download-only", "install", *PACKAGES])
    for archive in sorted((work / "cache" / "archives").glob("*.deb")):
        unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"'
        _run(["sh", "-c", unpack, "sh", str(archive), str(work / "root")])
    _make_relative(work / "root")
    for bulky in ("share/doc", "share/locale", "share/man"):
        shutil.rmtree(work / "root" / "usr" / bulky, ignore_errors=True)


def _make_relative(root: Path) -> None:
    """Let the linker's names of libraries lead to those of the root, not to the machine's own."""
    for link in (*root.glob("usr/lib/*/*.so"), *root.glob("usr/lib64/*")):
        if link.is_symlink() and link.readlink().is_absolute():
            inside = root / "usr" / link.readlink().relative_to("/").as_posix().removeprefix("usr/")
            link.unlink()
            link.symlink_to(os.path.relpath(inside, link.parent))


def _source(suite: str) -> str:
    """Write the line of sources.list for another suite, from the machine's own."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    uris = _run([*targets, "Created-By: Packages", "Origin: Debian", "Label: Debian"]).split()
    if not uris:
        raise RootError("this machine's package lists are not Debian's, or empty: apt-get update")
    key = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    return f"deb {key}{uris[0]} {suite} main\n"


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    if done.returncode != 0:
        raise RootError(f"{command[0]} {command[-1]}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


@dataclass(frozen=True)
class RootRunner:
    """Runs programs in a root; the session's folder is at /mnt there, and the first process has the variables."""

    root: Path
    shared: Path
    library: str | None = "libamvgpu.so"

    def __call__(self, *command: str | Path, env: Mapping[str, str]) -> Outcome:
        """Run to the end."""
        given = {"PATH": f"{SHARED}:/usr/bin:/bin", **env}
        if self.library is not None:
            given["LD_AUDIT"] = str(SHARED / self.library)
        entries = [f"{name}={value}" for name, value in given.items()]
        enter: list[str | Path] = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "sh",
            "-c",
            ENTER,
            "sh",
            self.root,
            self.shared,
        ]
        done = subprocess.run(
            [*enter, "/usr/bin/env", "-i", *entries, *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)
