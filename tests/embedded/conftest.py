"""A small cluster with the product on it: two machines with made GPUs, and a HIP program as the only image."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from embedded.kubelet.runtime import ProcessRuntime
from embedded.product import Cluster, Machine, Setup, running
from tests.shim.build import compile_client, compile_shim, compile_standin_hip
from tests.trees import MadeGpu, make_tree

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests/base"
IMAGE = "local/hip-client:1"


@dataclass(frozen=True)
class Built:
    """What was compiled for the session."""

    library: Path
    client: Path


@dataclass(frozen=True)
class World:
    """A cluster, where its containers' logs are, and the path of the HIP program."""

    cluster: Cluster
    runtime: ProcessRuntime
    client: str


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("hip")
    return Built(compile_shim(folder / "library"), compile_client(folder / "client", compile_standin_hip(folder)))


@pytest.fixture
def state() -> Iterator[Path]:
    """Not below tmp_path, which can be too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        yield Path(folder)


def machine(state: Path, node: str, gpus: Sequence[MadeGpu]) -> Machine:
    root = state / f"{node}-tree"
    make_tree(root, gpus)
    return Machine(node, root / "sys", root / "dev", len(gpus))


@pytest.fixture
async def world(state: Path, built: Built) -> AsyncIterator[World]:
    runtime = ProcessRuntime(state / "containers", {IMAGE: (str(built.client), "hold")})
    (state / "containers").mkdir()
    machines = [
        machine(state, "node-a", [MadeGpu("MI300X VF", memory_mib=196608)]),
        machine(state, "node-b", [MadeGpu("RX 7900 XTX"), MadeGpu("RX 7900 XTX")]),
    ]
    async with running(Setup(state, MANIFESTS, built.library, machines, runtime)) as cluster:
        yield World(cluster, runtime, str(built.client))
    assert not processes_of(built.client), "no container outlives its machine"


def processes_of(program: Path) -> list[str]:
    """Return the ids of the processes that run a program."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(f"{program}\0".encode()):
                found.append(entry.name)
    return found
