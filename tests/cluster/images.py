"""Container images made from files of this machine: no registry, no image builder."""

import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from tests.cluster.errors import ClusterError
from tests.cluster.packages import BUSYBOX

PAUSE_IMAGE = "docker.io/local/pause:1"
BUSYBOX_IMAGE = "docker.io/local/busybox:1"
APPLETS = ("sh", "cat", "echo", "env", "false", "grep", "hostname", "id", "ls", "mkdir", "printenv", "rm", "sleep",
           "stat", "test", "touch", "true")  # fmt: skip
SEARCH_PATH = "PATH=/usr/local/bin:/usr/bin:/bin"


def build_image(
    name: str,
    files: Mapping[str, Path],
    cmd: Sequence[str],
    *,
    archive: Path,
    links: Mapping[str, str] | None = None,
    env: Sequence[str] = (SEARCH_PATH,),
) -> Path:
    """Write a docker-archive of one layer; the same content always gives the same bytes.

    Args:
        name: the image's full name, registry and tag included.
        files: path in the image -> file of this machine; symbolic links are followed.
        cmd: what a container runs unless told otherwise.
        archive: the file to write.
        links: path in the image -> target of a symbolic link there.
        env: the image's environment, as NAME=value.
    """
    layer = _layer(files, links or {})
    layer_id = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Cmd": list(cmd), "Env": list(env)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_id}"]},
        }
    ).encode()
    config_file, layer_file = f"{hashlib.sha256(config).hexdigest()}.json", f"{layer_id}/layer.tar"
    manifest = json.dumps([{"Config": config_file, "RepoTags": [name], "Layers": [layer_file]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, content in ((config_file, config), (layer_file, layer), ("manifest.json", manifest)):
            _add_file(tar, path, content, 0o644)
    return archive


def busybox_image(name: str = BUSYBOX_IMAGE, *, archive: Path, cmd: Sequence[str] = ("sh",)) -> Path:
    return build_image(name, {"/bin/busybox": BUSYBOX}, cmd, archive=archive, links=_applets())


def pause_image(*, archive: Path) -> Path:
    """Write the image that holds a pod's namespaces: all it does is wait."""
    command = ("/bin/busybox", "sleep", "2147483647")
    return build_image(PAUSE_IMAGE, {"/bin/busybox": BUSYBOX}, command, archive=archive)


def client_image(
    name: str,
    executables: Mapping[str, Path],
    cmd: Sequence[str],
    *,
    archive: Path,
    libraries: Iterable[Path] = (),
    files: Mapping[str, Path] | None = None,
) -> Path:
    """Write an image with programs linked against this machine's glibc, all they load, and busybox's tools.

    Args:
        name: the image's full name.
        executables: path in the image -> program of this machine.
        cmd: what a container runs unless told otherwise.
        archive: the file to write.
        libraries: more shared libraries, such as ones that a program opens by itself; they keep their paths,
            and what they need comes along.
        files: anything else, as in build_image.
    """
    kept = list(libraries)
    content = {"/bin/busybox": BUSYBOX, **(files or {}), **executables}
    content |= {str(library): library for library in kept}
    for file in [*executables.values(), *kept]:
        content |= {str(path): path for path in needed_libraries(file)}
    return build_image(name, content, cmd, archive=archive, links=_applets())


def needed_libraries(file: Path) -> list[Path]:
    """Return the dynamic loader and all shared libraries that a program or library needs."""
    listing = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    if "not a dynamic executable" in listing.stdout + listing.stderr or "statically linked" in listing.stdout:
        return []
    if listing.returncode or "not found" in listing.stdout:
        raise ClusterError(f"ldd {file} fails:\n{listing.stdout}{listing.stderr}")
    # "libc.so.6 => /lib/libc.so.6 (0x...)" or "/lib64/ld-linux-x86-64.so.2 (0x...)"; the vDSO has no path.
    return [Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listing.stdout, re.MULTILINE)]


def _applets() -> dict[str, str]:
    return {f"/bin/{applet}": "busybox" for applet in APPLETS}


def _layer(files: Mapping[str, Path], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    paths = {path.lstrip("/") for path in (*files, *links)}
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents} - {"."} | {"tmp"}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for path, source in sorted(files.items()):
            _add_file(tar, path.lstrip("/"), source.read_bytes(), source.stat().st_mode & 0o777)
        for path, target in sorted(links.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add_file(tar: tarfile.TarFile, path: str, content: bytes, mode: int) -> None:
    # A fresh TarInfo has no owner and no time, which keeps the archive the same on every machine.
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
