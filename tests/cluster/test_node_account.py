"""What the plugin keeps on the node for each pod: the containers' memory accounts, and who holds which CUs."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.cumask import read_mask
from protocol.survivors import decode_survivors
from tests.cluster.availability import running_cluster
from tests.cluster.images import client_image
from tests.cluster.product import Product, installed
from tests.cluster.seen import MIB
from tests.shim.build import compile_c

SURVIVORS = "amd-vgpu.io/survivors"


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with running_cluster() as cluster, installed(cluster) as product:
        yield product


@pytest.fixture
def space(product: Product, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, whose pods are gone when the next test begins."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    product.cluster.create_namespace(name)
    yield name
    product.cluster.kubectl("delete", "pods", "--all", "--namespace", name, "--wait", "--timeout=60s")


def account(product: Product, pod: dict[str, Any], container: str) -> Path:
    return product.run_dir / "pods" / str(pod["metadata"]["uid"]) / f"{container}.region"


def report(product: Product, space: str, pod: str, container: str) -> dict[str, int]:
    """What another process in the container sees of the GPU."""
    words = product.cluster.exec(space, pod, "/bin/client", "report", container=container).stdout
    (device,) = [line for line in map(json.loads, words.splitlines()) if "device" in line]
    return {key: device[key] for key in ("free", "total")}


def held_by(product: Product) -> str:
    notes: dict[str, str] = product.cluster.node()["metadata"].get("annotations") or {}
    return notes.get(SURVIVORS, "")


def test_all_processes_of_a_container_count_together_and_two_containers_never(product: Product, space: str) -> None:
    """Without any privilege: not root, no capability, and a root file system that is read-only."""
    product.apply(space, "two-users")
    product.cluster.wait_for_pod(space, "two-users", "Running")
    for container, mib in (("main", 1024), ("other", 2048)):
        seen = product.seen(space, "two-users", container)
        assert seen.ready
        assert seen.devices[0]["total"] == mib * MIB
        # The first process has it all; the second one, started by another way, knows.
        assert report(product, space, "two-users", container) == {"free": 0, "total": mib * MIB}
    pod = product.pod(space, "two-users")
    files = [account(product, pod, container).stat() for container in ("main", "other")]
    assert all(file.st_size > 0 for file in files), "the audit library uses the files that were mounted"
    assert files[0].st_ino != files[1].st_ino
    shm = product.cluster.exec(space, "two-users", "ls", "-a", "/dev/shm", container="main").stdout
    assert "amvgpu" not in shm, "nothing falls back"


def test_a_container_that_starts_again_has_all_its_memory(product: Product, space: str) -> None:
    product.apply(space, "small")
    pod = product.cluster.wait_for_pod(space, "small", "Running")
    assert pod is not None
    assert product.seen(space, "small").ready
    before = account(product, pod, "main").stat().st_ino
    # It is killed with its memory in its hands, so nothing is given back by itself.
    (process,) = _processes("client", str(pod["metadata"]["uid"]))
    os.kill(process, signal.SIGKILL)
    product.cluster.wait_for_pod(space, "small", _restarted)
    seen = product.seen(space, "small")
    assert seen.ready
    assert seen.devices[0] == dict.fromkeys(("totalGlobalMem", "totalMem", "free", "total"), 16384 * MIB)
    assert account(product, pod, "main").stat().st_ino == before


def test_a_deleted_pod_leaves_nothing(product: Product, space: str) -> None:
    product.apply(space, "small")
    pod = product.cluster.wait_for_pod(space, "small", "Running")
    assert pod is not None
    folder = account(product, pod, "main").parent
    assert (folder / "held.json").exists()
    product.cluster.kubectl("delete", "pod", "small", "--namespace", space, "--wait")
    eventually(lambda: not folder.exists(), "the pod's folder is removed")
    assert held_by(product) == ""


def test_a_force_deleted_pod_keeps_its_cus_until_its_processes_are_gone(product: Product, space: str) -> None:
    """The kubelet hangs, the API server forgets the pod, and its processes run on."""
    product.apply(space, "large")
    pod = product.cluster.wait_for_pod(space, "large", "Running")
    assert pod is not None
    large = product.seen(space, "large")
    with _hanging(product):
        product.cluster.kubectl("delete", "pod", "large", "--namespace", space, "--force", "--grace-period=0")
        eventually(lambda: bool(held_by(product)), "the node says who is left")
        (survivor,) = decode_survivors(held_by(product))
        assert survivor.pod.uid == pod["metadata"]["uid"]
        assert survivor.parts is not None
        (part,) = survivor.parts.values()
        assert frozenset(part.cus) == read_mask(large.env["HSA_CU_MASK"], gpus=1, cus=304).masks[0]
        # 231 CUs do not fit beside 76 of 304.
        product.apply(space, "fourth")
        product.cluster.wait_for_pod(space, "fourth", _unschedulable)
    # The kubelet finds that the pod is gone, and ends its processes; then there is room.
    product.cluster.wait_for_pod(space, "fourth", "Running", timeout=120)
    eventually(lambda: held_by(product) == "", "nobody is left")
    assert not account(product, pod, "main").parent.exists()


def test_the_ledger_comes_back_when_it_is_lost_or_damaged(product: Product, space: str) -> None:
    product.apply(space, "small", "medium")
    folders = []
    for name in ("small", "medium"):
        pod = product.cluster.wait_for_pod(space, name, "Running")
        assert pod is not None
        folders.append(account(product, pod, "main").parent)
    before = [json.loads((folder / "held.json").read_text())["gpus"] for folder in folders]
    (folders[0] / "held.json").write_text('{"half')
    (folders[1] / "held.json").unlink()
    restart(product)
    eventually(lambda: all(_gpus(folder) for folder in folders), "both entries are written again")
    assert [_gpus(folder) for folder in folders] == before


def _gpus(folder: Path) -> Any:
    try:
        return json.loads((folder / "held.json").read_text())["gpus"]
    except (OSError, ValueError):
        return None


@contextmanager
def _hanging(product: Product) -> Iterator[None]:
    """The kubelet does nothing for a while; nothing on the node is told to end."""
    (pid,) = _processes("kubelet", str(product.cluster.state))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def restart(product: Product, *options: str) -> None:
    """Kill the plugin and start it again; return when the kubelet has its devices, and not only remembers them."""
    cluster = product.cluster
    product.kill_plugin()
    cluster.wait_for("/api/v1/nodes", cluster.node_name, lambda node: _slots(node) == 0)
    product.start_plugin(*options)
    cluster.wait_for("/api/v1/nodes", cluster.node_name, lambda node: _slots(node) > 0)


def _slots(node: dict[str, Any] | None) -> int:
    return int(node["status"]["allocatable"].get("amd.com/gpu", "0")) if node else 0


def _processes(command: str, mark: str) -> list[int]:
    """The host's processes of a name with a mark in their command line or cgroup."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            about = (entry / "cmdline").read_text() + (entry / "cgroup").read_text()
            if (entry / "comm").read_text().strip() == command and mark in about:
                found.append(int(entry.name))
    return found


def eventually(condition: Callable[[], bool], what: str, timeout: float = 30) -> None:
    """Wait for what no watch of the API server tells."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


def _restarted(pod: dict[str, Any] | None) -> bool:
    statuses = pod["status"].get("containerStatuses", []) if pod else []
    return any(one["restartCount"] > 0 and "running" in one["state"] for one in statuses)


def _unschedulable(pod: dict[str, Any] | None) -> bool:
    conditions = pod["status"].get("conditions", []) if pod else []
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def test_a_static_program_fails_where_the_audit_library_is_required(
    product: Product, space: str, tmp_path: Path
) -> None:
    """It has LD_AUDIT and a memory limit in its environment, and neither means anything to it."""
    source = Path(__file__).parents[1] / "plugin/programs/opens.c"
    image = "docker.io/local/static:1"
    program = {"/bin/opens": compile_c([source], tmp_path / "opens", ["-static"])}
    product.cluster.import_image(client_image(image, program, ["/bin/opens", "/dev/kfd"], archive=tmp_path / "tar"))
    limits = {"amd.com/gpu": "1", "amd.com/gpumem": "1024", "amd.com/gpucores": "10"}
    container = {"name": "main", "image": image, "resources": {"limits": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "static", "namespace": space},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    restart(product, "--require-audit")
    try:
        product.apply(space, "small")
        product.cluster.wait_for_pod(space, "small", "Running", timeout=90)
        product.cluster.apply(pod)
        ended = product.cluster.wait_for_pod(space, "static", "Failed", timeout=90)
        assert ended is not None
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert product.seen(space, "small").ready, "a program that is held runs on"
    finally:
        restart(product)
