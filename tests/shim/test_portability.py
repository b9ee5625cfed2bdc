"""One file for every C library: the same build runs on those of several Debian and Ubuntu generations."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.shim.build import HERE, SHIM, compile_linked, compile_shim, compile_standin_hip, compile_standin_hsa
from tests.shim.children import LIMIT_MIB, OURS, Seen
from tests.shim.needs import need, need_program, need_root
from tests.shim.roots import SHARED, RootError, RootRunner, fetch
from tests.shim.running import Runner
from tests.shim.test_binding import KINDS, LIMITED, UNLIMITED, Kind
from tests.shim.test_children import OWN_ENVIRONMENT, WITH_ENVIRONMENT

# The oldest first: the programs are linked with its C library, and so run on all.
SUITES = {
    "xenial": (2, 23),
    "bionic": (2, 27),
    "bullseye": (2, 31),
    "bookworm": (2, 36),
    "trixie": (2, 41),
    "sid": (2, 42),
}
SPAWN_BY_DESCRIPTOR = (2, 39)
EXECVEAT = (2, 34)
NEEDED_BY = {
    **dict.fromkeys(("pidfd_spawn", "pidfd_spawnp"), SPAWN_BY_DESCRIPTOR),
    **dict.fromkeys(("execveat", "execveat-descriptor"), EXECVEAT),
}
# The loader crashes with any audit library, also with one that does nothing.
BROKEN_NAMESPACES = (2, 32)
Version = tuple[int, int]


def root_of(suite: str) -> Path:
    need_root()
    need(shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None, "needs apt and dpkg")
    try:
        return fetch(suite)
    except RootError as error:
        need(there=False, reason=str(error))
        raise


@pytest.fixture(scope="session")
def shared(shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the roots see: the library, as it is built on this machine."""
    folder = tmp_path_factory.mktemp("roots")
    shutil.copy(shim, folder / "libamvgpu.so")
    compile_shim(folder / "control", defines="-DEXEC_HOOKS=0 -DREGAIN=0")
    return folder


def for_the_oldest() -> list[str]:
    """The compiler's flags for the oldest root."""
    oldest = root_of(next(iter(SUITES)))
    libraries = oldest / "usr" / "lib" / "x86_64-linux-gnu"  # the compiler would prefer its own
    return [f"--sysroot={oldest}", f"-B{libraries}", f"-L{libraries}", f"-Wl,-rpath,{SHARED}"]


@pytest.fixture(scope="session")
def taker(shared: Path) -> Path:
    """A program that takes memory below HIP."""
    below = shared / "below"
    below.mkdir()
    flags = [*for_the_oldest(), f"-Wl,-rpath,{SHARED}/{below.name}"]
    runtime = compile_standin_hsa(below, flags) / "libhsa-runtime64.so.1"
    source = HERE / "programs" / "taker.c"
    compile_linked(source, shared / "taker", runtime, [*flags, f"-Wl,-rpath-link,{below}"])
    return SHARED / "taker"


@pytest.fixture(scope="session")
def portable(shared: Path) -> Callable[..., Path]:
    """Compile a program for the oldest root; the path is that inside of a root."""
    flags_for_all = for_the_oldest()
    hip = compile_standin_hip(shared, flags_for_all)

    def compile_program(name: str, flags: Sequence[str] = (), suffix: str = "") -> Path:
        out = shared / f"{name}{suffix}"
        if not out.exists():
            compile_linked(HERE / "programs" / f"{name}.c", out, hip, [*flags_for_all, *flags])
        return SHARED / out.name

    return compile_program


@pytest.fixture(params=SUITES)
def place(request: pytest.FixtureRequest, shared: Path) -> RootRunner:
    return RootRunner(root_of(request.param), shared)


def bare(place: RootRunner) -> RootRunner:
    return RootRunner(place.root, place.shared, library=None)


def version_of(place: RootRunner) -> Version:
    banner = bare(place)("/lib/x86_64-linux-gnu/libc.so.6", env={}).stdout
    found = re.search(r"release version (\d+)\.(\d+)", banner)
    assert found, banner
    return int(found[1]), int(found[2])


def test_which_c_library_it_is(place: RootRunner, record_property: Callable[[str, object], None]) -> None:
    version = version_of(place)
    suite = place.root.name.split("-", maxsplit=1)[0]
    record_property("glibc", version)
    assert version == SUITES[suite] if suite != "sid" else version >= SUITES[suite]


def kinds_for(version: Version) -> list[Kind]:
    return [kind for kind in KINDS if version >= BROKEN_NAMESPACES or kind.load != "namespace"]


def test_every_way_of_binding(place: RootRunner, portable: Callable[..., Path]) -> None:
    """With the library, and the same without it: the test can see the difference."""
    kinds = kinds_for(version_of(place))

    def totals(runner: RootRunner) -> dict[str, object]:
        env = {"HIP_LIBRARY": f"{SHARED}/libamdhip64.so.6", "HIP_DEVICE_MEMORY_LIMIT": "64m"}
        return {kind.name: runner(*kind.command(portable), env={**env, **kind.env}).line for kind in kinds}

    assert totals(place) == {kind.name: LIMITED for kind in kinds}
    assert totals(bare(place)) == {kind.name: UNLIMITED for kind in kinds}


def test_memory_below_hip(place: RootRunner, taker: Path) -> None:
    env = {"HIP_DEVICE_MEMORY_LIMIT": "10m", "AMVGPU_HSA": "1"}
    assert place(taker, env=env).line == {"codes": [0, 0x1008, 0, 0, 0]}
    assert bare(place)(taker, env=env).line == {"codes": [0] * 5}


def ways_for(version: Version) -> list[str]:
    ways = dict.fromkeys([*WITH_ENVIRONMENT, *OWN_ENVIRONMENT, *NEEDED_BY])
    return [way for way in ways if version >= NEEDED_BY.get(way, version)]


def test_every_way_of_starting_a_program(place: RootRunner, portable: Callable[..., Path]) -> None:
    def children(runner: RootRunner) -> dict[str, Seen]:
        ways = ways_for(version_of(place))
        return {way: Seen(runner(portable("starts"), way, portable("seen"), "word", env=OURS).line) for way in ways}

    wanted = {"KEPT": "1", "LD_AUDIT": f"{SHARED}/libamvgpu.so", **OURS}
    found = children(place)
    assert {way: child.environ for way, child in found.items()} == dict.fromkeys(found, wanted)
    assert {way: child.total_mib for way, child in found.items()} == dict.fromkeys(found, LIMIT_MIB)
    lost = children(RootRunner(place.root, place.shared, library="control/libamvgpu.so"))
    assert {way: child.environ for way, child in lost.items()} == {way: {"KEPT": "1"} for way in found}


PROGRAMS = {
    "env": ["env", "-i", "{seen}"],
    "sh": ["sh", "-c", "unset LD_AUDIT HSA_CU_MASK HIP_DEVICE_MEMORY_LIMIT; exec {seen}"],
    "bash": ["bash", "-c", "exec -c {seen}"],
    # Without a home, and without a list of users as here, older ones complain.
    "python": ["env", "HOME=/", "python3", "-c", "import subprocess; subprocess.run(['{seen}'], env=dict())"],
    "python fork": [
        *("env", "HOME=/", "python3", "-c"),
        "import os; os.fork() or os.execve('{seen}', ['{seen}'], dict()); os.wait()",
    ],
    "by hand": ["sh", "-c", "{starts} by-hand {seen}; exit $?"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_that_generation(place: RootRunner, portable: Callable[..., Path], name: str) -> None:
    words = {"seen": portable("seen"), "starts": portable("starts")}
    outcome = place(*(word.format(**words) for word in PROGRAMS[name]), env=OURS)
    assert outcome.stderr == ""
    child = Seen(outcome.line)
    pinned = {key: OURS[key] for key in ("HIP_DEVICE_MEMORY_LIMIT", "HSA_CU_MASK", "ROCR_VISIBLE_DEVICES")}
    assert child.environ.items() >= pinned.items()
    assert child.total_mib == LIMIT_MIB


def test_aarch64(tmp_path: Path) -> None:
    """The cross build needs nothing from its system either, and works in an emulated process."""
    compiler = need_program("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")
    emulator = need_program("qemu-aarch64-static", "qemu-user-static")
    starts, library = tmp_path / "starts", tmp_path / "library" / "libamvgpu.so"
    make: list[str | Path] = ["make", "-s", "-C", SHIM, f"CC={compiler}", f"BUILD={library.parent}", "all", "check-abi"]
    subprocess.run(make, check=True)
    source = HERE / "programs" / "starts.c"
    subprocess.run([compiler, "-D_GNU_SOURCE", "-Wall", "-Werror", "-o", starts, source], check=True)
    header = subprocess.run(["readelf", "-h", library], capture_output=True, text=True, check=True).stdout
    assert "AArch64" in header
    # The emulated program's child is one of this machine, and tells what it was given.
    command: list[str | Path] = [emulator, "-L", "/usr/aarch64-linux-gnu", starts, "execve", "/usr/bin/env"]
    outcome = Runner(library)(*command, env=OURS)
    given = {"KEPT": "1", "LD_AUDIT": str(library), **OURS}
    found = {line for line in outcome.stdout.splitlines() if not line.startswith("AMVGPU_REGION=")}
    assert found == {f"{name}={value}" for name, value in given.items()}
