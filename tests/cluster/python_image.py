"""The image of manifests/Dockerfile without docker: its layout, from the Python and the packages that run the tests.

What the Dockerfile says of the running image (environment, user, entry point, place of the library) is read from it,
and the project is installed from its source by pip as there. What differs is where the rest comes from: interpreter,
standard library, dependencies and shared libraries are this machine's files instead of those of `FROM` and of an index.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from tests.cluster.errors import ClusterError
from tests.cluster.images import SEARCH_PATH, build_image, needed_libraries
from tests.shim.build import compile_shim

CHECKOUT: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = CHECKOUT / "manifests/Dockerfile"

PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_INTERPRETER: Final = f"/usr/local/bin/{PYTHON}"
_STANDARD: Final = f"/usr/local/lib/{PYTHON}"
_PACKAGES: Final = f"{_STANDARD}/site-packages"
# Debian's Python would look for packages elsewhere.
_PACKAGE_PATH: Final = f"PYTHONPATH={_PACKAGES}"
# Where the loader looks for libraries that lie in no usual folder; entries for files that the image lacks do no harm.
_LOADER_CACHE: Final = Path("/etc/ld.so.cache")

_LEFT_OUT: Final = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter",
                    "turtledemo", "ensurepip", "lib2to3"}  # fmt: skip
_LEFT_OUT_FILES: Final = re.compile(r"\.(a|o|pyc|pyi)$|^(_tkinter|_test|_xxtest|_ctypes_test)")
_IS_LIBRARY: Final = re.compile(r"\.so(\.|$)")
# Flags of a .pyc file whose source is never looked at (PEP 552), then the place of its hash.
_UNCHECKED: Final = (1).to_bytes(4, "little") + bytes(8)


@dataclass(frozen=True)
class Recipe:
    """What the Dockerfile says of the image that it makes.

    Attributes:
        env: NAME=value.
        user: as in `docker run --user`.
        entrypoint: what the arguments of a container are given to.
        library: path of the audit library.
    """

    env: tuple[str, ...]
    user: str
    entrypoint: tuple[str, ...]
    library: str

    @classmethod
    def read(cls, dockerfile: Path = DOCKERFILE) -> "Recipe":
        """Read the last stage, which says each of these once."""
        said: dict[str, str] = {}
        for line in dockerfile.read_text().replace("\\\n", " ").splitlines():
            instruction, _, rest = line.partition(" ")
            if instruction == "FROM":
                said.clear()
            said[instruction] = rest.strip()
        return cls(
            env=tuple(shlex.split(said["ENV"])),
            user=said["USER"],
            entrypoint=tuple(json.loads(said["ENTRYPOINT"])),
            library=said["COPY"].split()[-1],
        )


def product_image(name: str, *, archive: Path) -> Path:
    """Write a docker-archive of the product's image.

    Args:
        name: the image's full name, registry and tag included.
        archive: the file to write.
    """
    recipe = Recipe.read()
    with tempfile.TemporaryDirectory(prefix="python-image-") as folder:
        installed = _install(Path(folder))
        files = _python() | _project(installed) | _dependencies(installed)
        files |= _bytecode(files, Path(folder))
        files[recipe.library] = compile_shim()
        files |= _shared_libraries(files)
        build_image(name, files, (), archive=archive, env=(SEARCH_PATH, _PACKAGE_PATH, *recipe.env))
    return _configured(archive, {"Entrypoint": list(recipe.entrypoint), "User": recipe.user})


def script_image(name: str, files: Mapping[str, Path], script: str, *, archive: Path) -> Path:
    """Write a docker-archive of an image that runs a script which needs nothing but the standard library.

    Args:
        name: the image's full name, registry and tag included.
        files: path in the image -> file of this machine; what shared libraries among them need comes along.
        script: which of them is run.
        archive: the file to write.
    """
    content = {**_python(), **files}
    with tempfile.TemporaryDirectory(prefix="python-image-") as folder:
        content |= _bytecode(content, Path(folder))
        content |= _shared_libraries(content)
        return build_image(name, content, (_INTERPRETER, "-u", script), archive=archive)


def _python() -> dict[str, Path]:
    """The interpreter, which finds its library by its own place, and the standard library."""
    interpreter = Path(sys.executable).resolve()
    files = {_INTERPRETER: interpreter}
    for key in ("stdlib", "platstdlib"):
        # A virtual environment has no standard library, so these are the paths of the Python below it.
        root = Path(sysconfig.get_path(key, vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix}))
        files |= {f"{_STANDARD}/{path.relative_to(root)}": path for path in _kept_files(root)}
    return files


def _dependencies(installed: Path) -> dict[str, Path]:
    """The distributions that the project requires at run time, and those that they require."""
    files: dict[str, Path] = {}
    (project,) = metadata.distributions(path=[str(_packages_in(installed))])
    waiting, done = _required(project), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in done:
            done.add(name)
            distribution = metadata.distribution(name)
            waiting += _required(distribution)
            files |= {f"{_PACKAGES}/{path}": source for path, source in _files_of(distribution)}
    return files


def _required(distribution: metadata.Distribution) -> list[str]:
    requirements = [Requirement(text) for text in distribution.requires or ()]
    return [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def _files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for path in distribution.files or ():
        # ".." leads to commands, which nobody calls here.
        if ".." not in path.parts and not _LEFT_OUT & set(path.parts) and not _LEFT_OUT_FILES.search(path.name):
            yield str(path), Path(str(path.locate()))


def _install(folder: Path) -> Path:
    """Install the project from its source, so that what pyproject.toml forgets is missing here too."""
    source, installed = folder / "source", folder / "installed"
    packages = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for package in {name.partition(".")[0] for name in packages}:
        shutil.copytree(CHECKOUT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    quiet = ("--quiet", "--disable-pip-version-check", "--root-user-action=ignore")
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "install", *quiet, *offline, f"--prefix={installed}", source]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"pip install {source} fails:\n{done.stdout}{done.stderr}")
    return installed


def _packages_in(installed: Path) -> Path:
    return installed / "lib" / PYTHON / "site-packages"


def _project(installed: Path) -> dict[str, Path]:
    """The project's packages and its command."""
    root = _packages_in(installed)
    files = {f"{_PACKAGES}/{path.relative_to(root)}": path for path in _kept_files(root)}
    for command in (installed / "bin").iterdir():
        _, _, code = command.read_text().partition("\n")
        command.write_text(f"#!{_INTERPRETER}\n{code}")
        files[f"/usr/local/bin/{command.name}"] = command
    return files


def _kept_files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith("config-")]
        yield from (Path(folder, name) for name in names if not _LEFT_OUT_FILES.search(name))


def _bytecode(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """What this machine has compiled of them: in a read-only root each start would compile everything anew."""
    made: dict[str, Path] = {}
    for path, source in files.items():
        cached = Path(cache_from_source(source)) if source.suffix == ".py" else source
        if cached == source or not cached.exists():
            continue
        content = cached.read_bytes()
        state = source.stat()
        if content[8:16] != struct.pack("<II", int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF):
            continue
        # An image's files have no times to compare.
        copy = folder / f"{len(made)}.pyc"
        copy.write_bytes(content[:4] + _UNCHECKED + content[16:])
        made[cache_from_source(path)] = copy
    return made


def _shared_libraries(files: Mapping[str, Path]) -> dict[str, Path]:
    """What the interpreter and the extension modules load, at its own place, and how the loader finds it."""
    programs = [source for path, source in files.items() if path == _INTERPRETER or _IS_LIBRARY.search(path)]
    libraries = {str(library): library for program in programs for library in needed_libraries(program)}
    return libraries | {str(path): path for path in (_LOADER_CACHE,) if path.exists()}


def _configured(archive: Path, changes: Mapping[str, Any]) -> Path:
    """Change how containers of a docker-archive run."""
    with tarfile.open(archive) as tar:
        members = {member.name: _content(tar, member) for member in tar}
    (manifest,) = json.loads(members["manifest.json"])
    config = json.loads(members.pop(manifest["Config"]))
    config["config"] |= changes
    content = json.dumps(config).encode()
    manifest["Config"] = f"{hashlib.sha256(content).hexdigest()}.json"
    members |= {manifest["Config"]: content, "manifest.json": json.dumps([manifest]).encode()}
    with tarfile.open(archive, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, BytesIO(data))
    return archive


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""
