"""The five points of the multi-GPU validation, by the manifests that are for real GPUs, with stand-ins for these."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from tests.cli.measuring import ROOT, compile_measure
from tests.cluster.availability import running_cluster
from tests.cluster.cluster import Cluster
from tests.cluster.images import client_image
from tests.cluster.product import MADE_MI300X, Product, installed

IMAGE = "docker.io/local/measure:1"
SPACE = "validate"
PODS = ("validate-one", "validate-two")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    folder = tmp_path_factory.mktemp("measure")
    program = {"/bin/measure": compile_measure(folder / "measure")}
    image = client_image(IMAGE, program, ["/bin/measure"], archive=folder / "measure.tar")
    with running_cluster() as cluster, installed(cluster, [MADE_MI300X, MADE_MI300X]) as product:
        cluster.import_image(image)
        cluster.create_namespace(SPACE)
        yield product


def objects() -> list[dict[str, Any]]:
    """The manifests as `kubectl apply -k` has them; but the program is in the image, and not compiled by hipcc."""
    folder = ROOT / "manifests/examples/validate"
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True)
    items: list[dict[str, Any]] = list(yaml.safe_load_all(done.stdout))
    for item in items:
        item["metadata"]["namespace"] = SPACE
        for container in item.get("spec", {}).get("containers", ()):
            container["image"] = IMAGE
            (script,) = container["args"]
            compiling, *measuring = script.strip().split("\n")
            assert compiling.startswith("hipcc ")
            assert compiling.endswith(" -o /tmp/measure /validate/measure.hip")
            container["args"] = [
                "\n".join(measuring).replace("/tmp/measure", "/bin/measure").replace("infinity", "3600")
            ]
    return items


def test_the_five_points_hold(product: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = product.cluster
    one, two = sorted((item for item in objects() if item["kind"] == "Pod"), key=lambda pod: pod["metadata"]["name"])
    cluster.apply([item for item in objects() if item["kind"] == "ConfigMap"])
    for pod in (one, two):
        cluster.apply(pod)
        cluster.wait_for_pod(SPACE, pod["metadata"]["name"], "Running")
    logs = [_logs(cluster, name, tmp_path) for name in PODS]

    capsys.readouterr()
    status = main(["validate", *map(str, logs)])
    words = capsys.readouterr().out
    assert status == 0, words
    assert words.startswith("amd-vgpu validate: 5 of 5 points hold")
    # Both pods are on one of the GPUs, so the fourth point has something to show.
    assert "76 and 152, 0 in common" in words
    report = json.loads(logs[1].read_text().splitlines()[0])
    assert len(report["devices"]) == 2


def test_a_run_on_the_wrong_cus_is_seen(product: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is not there for the asking: the same pods, one of them without its mask."""
    words = product.cluster.exec(SPACE, PODS[0], "env", "HSA_CU_MASK=", "/bin/measure").stdout
    unmasked = tmp_path / "unmasked"
    unmasked.write_text(words)
    assert main(["validate", str(unmasked), str(_logs(product.cluster, PODS[1], tmp_path))]) == 1
    words = capsys.readouterr().out
    assert "| mask on each GPU | FAILS |" in words, words
    assert "| disjoint between pods | FAILS |" in words, words


def _logs(cluster: Cluster, name: str, folder: Path) -> Path:
    """Save a pod's log once both of its runs are in it."""
    follow = ["kubectl", f"--kubeconfig={cluster.kubeconfig}", "logs", "--follow", f"--namespace={SPACE}", name]
    with subprocess.Popen(["timeout", "60", *follow], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.kill()
    path = folder / name
    path.write_text("".join(lines))
    return path
