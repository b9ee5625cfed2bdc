"""The tests' stand-ins for hardware and images: made GPUs, a library in place of AMD's runtime, a small HIP program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from embedded.kubelet.runtime import ProcessRuntime
from embedded.product import Machine, Setup
from tests.shim.build import compile_client, compile_shim, compile_standin_hip
from tests.trees import MadeGpu, make_tree

_ROOT: Final = Path(__file__).resolve().parents[1]
_PODS: Final = _ROOT / "tests/cluster/pods"
_IMAGE: Final = "docker.io/local/hip-client:1"
_MACHINES: Final[Mapping[str, Sequence[MadeGpu]]] = {
    "node-a": [MadeGpu("MI300X VF", memory_mib=196608)],
    "node-b": [MadeGpu("RX 7900 XTX"), MadeGpu("RX 7900 XTX")],
}


@dataclass(frozen=True, slots=True)
class StandIns:
    """A cluster's setup, and the runtime that its containers run on."""

    setup: Setup
    runtime: ProcessRuntime


def prepare(state: Path) -> StandIns:
    """Compile what is to be compiled and make the machines.

    Raises:
        CompileError: a compiler is missing, or has refused something.
    """
    hip, containers = state / "hip", state / "containers"
    hip.mkdir()
    containers.mkdir()
    client = compile_client(hip / "client", compile_standin_hip(hip))
    runtime = ProcessRuntime(containers, {_IMAGE: (str(client), "hold")})
    machines = [_machine(state / f"{node}-tree", node, gpus) for node, gpus in _MACHINES.items()]
    return StandIns(Setup(state, _ROOT / "manifests/base", compile_shim(), machines, runtime), runtime)


def _machine(root: Path, node: str, gpus: Sequence[MadeGpu]) -> Machine:
    make_tree(root, gpus)
    return Machine(node, root / "sys", root / "dev", len(gpus))


def example(name: str) -> dict[str, Any]:
    """Return the manifest of an example pod."""
    manifest: dict[str, Any] = yaml.safe_load((_PODS / f"{name}.yaml").read_text())
    return manifest
