"""A Python program in a real pod, held by the real library, which webhook and device plugin brought there."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.availability import running_cluster
from tests.cluster.product import Product, installed
from tests.cluster.python_image import script_image
from tests.cluster.torch_steps import LIBRARY, OUT_OF_MEMORY
from tests.shim.build import compile_standin_hip

IMAGE = "docker.io/local/torch-steps:1"
SCRIPT = "/app/torch_steps.py"
SPACE = "audit-library"
MIB = 1 << 20
GPUMEM = 16384
Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    """A cluster of this module's own: the product is installed once on each."""
    with running_cluster() as cluster, installed(cluster) as product:
        with tempfile.TemporaryDirectory(prefix="torch-steps-") as folder:
            hip = compile_standin_hip(Path(folder))
            files = {LIBRARY: hip, SCRIPT: Path(__file__).with_name("torch_steps.py")}
            cluster.import_image(script_image(IMAGE, files, SCRIPT, archive=Path(folder) / "image.tar"))
        cluster.create_namespace(SPACE)
        yield product


def run(product: Product, name: str, resources: dict[str, str]) -> Steps:
    """Run the program in a pod with these resources to its end."""
    container = {"name": "main", "image": IMAGE, "resources": {"limits": resources}}
    product.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
    )
    product.cluster.wait_for_pod(SPACE, name, "Succeeded", timeout=120)
    # Nothing but the program's own lines: the library prints nothing, on either stream.
    lines = [json.loads(line) for line in product.cluster.logs(SPACE, name).splitlines()]
    return {line.pop("step"): line for line in lines}


def test_a_python_program_is_held_to_its_share(product: Product) -> None:
    steps = run(product, "share", {"amd.com/gpu": "1", "amd.com/gpumem": str(GPUMEM), "amd.com/gpucores": "25"})
    limit = GPUMEM * MIB
    assert steps.pop("after-kill")["seconds"] < 1
    assert steps == {
        "start": {"free": limit, "total": limit},
        "all": {"code": 0, "free": 0},
        "over": {"code": OUT_OF_MEMORY, "last": OUT_OF_MEMORY},
        "workers-refused": {"spawned": OUT_OF_MEMORY, "without_environment": OUT_OF_MEMORY},
        "free": {"code": 0, "free": limit},
        "workers-granted": {"spawned": 0, "without_environment": 0},
        "again": {"code": 0, "freed": 0},
    }


def test_what_a_killed_worker_held_is_back_within_a_second(product: Product) -> None:
    steps = run(product, "killed", {"amd.com/gpu": "1", "amd.com/gpumem": str(GPUMEM), "amd.com/gpucores": "25"})
    back = steps["after-kill"]
    assert back.pop("seconds") < 1
    assert back == {"refused": OUT_OF_MEMORY, "code": 0, "freed": 0}


def test_a_pod_without_a_gpu_is_left_alone(product: Product) -> None:
    """The stand-in for HIP then shows the whole GPU: the figures above are the library's."""
    steps = run(product, "plain", {"cpu": "1"})
    assert steps["start"]["total"] == 196608 * MIB
    assert steps["workers-refused"] == {"spawned": 0, "without_environment": 0}
