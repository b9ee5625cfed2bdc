"""Root file systems of several Debian and Ubuntu generations, to run programs on their C libraries.

Fetched with apt from where this machine gets its own packages, or from Ubuntu's archive, unpacked without installing
anything, and kept in
~/.cache/amd-vgpu/roots (about 75 MB each).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.request
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
# Older C libraries than Debian still serves. Debian has no keys of Ubuntu's, so their package is known by its hash.
UBUNTU: Final = frozenset({"xenial", "bionic"})
UBUNTU_ARCHIVE: Final = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYS: Final = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb"
UBUNTU_KEYS_SHA256: Final = "0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f"
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


def fetch_symbols(suite: str, package: str) -> frozenset[str]:
    """Return the names of the functions that the shared library of a suite's package exports."""
    kept = CACHE.parent / "symbols" / f"{suite}-{package}.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with _locked(kept.with_suffix(".lock")):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
                names = _read_symbols(suite, package, Path(folder))
            kept.write_text("\n".join(sorted(names)))
    return frozenset(kept.read_text().split())


def _read_symbols(suite: str, package: str, work: Path) -> set[str]:
    _run([*apt_of(suite, work), "download", package], folder=work)
    (archive,) = work.glob("*.deb")
    _run(["dpkg-deb", "--extract", str(archive), str(work / "unpacked")])
    (library,) = [
        file for file in work.glob("unpacked/usr/lib/*/lib*.so.*") if file.is_file() and not file.is_symlink()
    ]
    lines = _run(["nm", "-D", "--defined-only", str(library)]).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line.split()[-2] in {"T", "W", "i"}}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(suite: str, work: Path) -> None:
    (work / "root" / "usr").mkdir(parents=True)
    for name in ("proc", "dev", "mnt"):
        (work / "root" / name).mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        (work / "root" / "usr" / name).mkdir()
        (work / "root" / name).symlink_to(f"usr/{name}")
    apt = apt_of(suite, work)
    _run([*apt, "--download-only", "install", *PACKAGES])
    for archive in sorted((work / "cache" / "archives").glob("*.deb")):
        unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"'
        _run(["sh", "-c", unpack, "sh", str(archive), str(work / "root")])
    _make_relative(work / "root")
    for bulky in ("share/doc", "share/locale", "share/man"):
        shutil.rmtree(work / "root" / "usr" / bulky, ignore_errors=True)


def apt_of(suite: str, work: Path) -> list[str]:
    """Return apt-get's command for a suite, with all that it keeps in the folder, and its lists fetched."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    (work / "sources.list").write_text(_source(suite, work))
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
    return apt


def _make_relative(root: Path) -> None:
    """Let the linker's names of libraries lead to those of the root, not to the machine's own."""
    for link in (*root.glob("usr/lib/*/*.so"), *root.glob("usr/lib64/*")):
        if link.is_symlink() and link.readlink().is_absolute():
            inside = root / "usr" / link.readlink().relative_to("/").as_posix().removeprefix("usr/")
            link.unlink()
            link.symlink_to(os.path.relpath(inside, link.parent))


def _source(suite: str, work: Path) -> str:
    """Write the line of sources.list for a suite; Debian's from the machine's own."""
    if suite in UBUNTU:
        return f"deb [signed-by={_ubuntu_keys(work)}] {UBUNTU_ARCHIVE} {suite} main\n"
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    uris = _run([*targets, "Created-By: Packages", "Origin: Debian", "Label: Debian"]).split()
    if not uris:
        raise RootError("this machine's package lists are not Debian's, or empty: apt-get update")
    key = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    return f"deb {key}{uris[0]} {suite} main\n"


def _ubuntu_keys(work: Path) -> Path:
    try:
        with urllib.request.urlopen(f"{UBUNTU_ARCHIVE}/{UBUNTU_KEYS}", timeout=FETCH_SECONDS) as answer:  # noqa: S310
            package = answer.read()
    except OSError as error:
        raise RootError(f"{UBUNTU_ARCHIVE}/{UBUNTU_KEYS}: {error}") from error
    found = hashlib.sha256(package).hexdigest()
    if found != UBUNTU_KEYS_SHA256:
        raise RootError(f"{UBUNTU_ARCHIVE}/{UBUNTU_KEYS} has SHA-256 {found}, not {UBUNTU_KEYS_SHA256}")
    archive = work / "keys.pkg"
    archive.write_bytes(package)
    _run(["dpkg-deb", "--extract", str(archive), str(work / "keys")])
    return work / "keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS, cwd=folder)
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
