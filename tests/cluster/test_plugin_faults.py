"""The device plugin and a real kubelet, when things break: both are killed, GPUs fall ill, machines differ."""

import json
import os
import time
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from protocol.cumask import read_mask
from protocol.cuset import parse_ids
from protocol.devices import DeviceInfo, decode_register
from protocol.names import NODE_REGISTER, RESOURCE_GPU
from tests.cluster.availability import running_cluster
from tests.cluster.images import BUSYBOX_IMAGE
from tests.cluster.product import CLIENT_IMAGE, Product, installed
from tests.cluster.seen import Seen
from tests.trees import MACHINES, MadeGpu, make_tree, partitions
from tests.trees.changes import report_errors

Object = dict[str, Any]

ROUNDS = int(os.environ.get("PLUGIN_FAULT_ROUNDS", "3"))
NODES = "/api/v1/nodes"
WITHIN_SECONDS = 5.0
INTEGRATED = "Raphael"


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with running_cluster() as cluster, installed(cluster) as product:
        yield product


@pytest.fixture
def space(product: Product) -> Iterator[str]:
    """A namespace without pods; they are gone when the test ends."""
    name = "faults"
    if product.cluster.get(f"/api/v1/namespaces/{name}") is None:
        product.cluster.create_namespace(name)
    yield name
    product.cluster.kubectl("delete", "pods", "--all", "--namespace", name, "--wait", "--timeout=110s")


def start(product: Product, space: str, name: str, *, gpu: int = 1, mem: int = 1024, cores: int = 25) -> None:
    """Apply a pod that asks for shares of GPUs."""
    limits = {"amd.com/gpu": str(gpu), "amd.com/gpumem": str(mem), "amd.com/gpucores": str(cores)}
    container = {"name": "main", "image": CLIENT_IMAGE, "resources": {"limits": limits}}
    spec = {"terminationGracePeriodSeconds": 2, "containers": [container]}
    metadata = {"name": name, "namespace": space}
    product.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def run(product: Product, space: str, name: str, **share: int) -> Seen:
    """Run a pod and return what it sees."""
    start(product, space, name, **share)
    product.cluster.wait_for_pod(space, name, "Running")
    return product.seen(space, name)


def held(product: Product, space: str) -> dict[str, set[tuple[str, int]]]:
    """GPU and CU of all that each pod of a namespace holds, as its annotation says."""
    pods = product.cluster.get(f"/api/v1/namespaces/{space}/pods")
    assert pods is not None
    return {
        pod["metadata"]["name"]: {
            (gpu, cu)
            for gpu, ids in json.loads(pod["metadata"]["annotations"]["hami.io/amd-cu-allocated"]).items()
            for cu in parse_ids(ids)
        }
        for pod in pods["items"]
    }


def containers(product: Product, space: str, name: str) -> list[tuple[str, int]]:
    """Ids and restarts of a pod's containers."""
    return [
        (one["containerID"], one["restartCount"]) for one in product.pod(space, name)["status"]["containerStatuses"]
    ]


def devices(node: Object) -> dict[str, DeviceInfo]:
    return {device.id: device for device in decode_register(node["metadata"]["annotations"][NODE_REGISTER])}


def shows(node: Object | None, *, capacity: int, healthy: int) -> bool:
    """Whether the kubelet counts these slots, and the registration agrees on the healthy ones."""
    if node is None:
        return False
    slots = (node["status"]["capacity"].get(RESOURCE_GPU), node["status"]["allocatable"].get(RESOURCE_GPU))
    well = sum(device.count for device in devices(node).values() if device.healthy)
    return slots == (str(capacity), str(healthy)) and well == healthy


def test_kubelet_and_plugin_die_again_and_again(product: Product, space: str) -> None:
    product.plug_in([MadeGpu("MI300X VF"), MadeGpu("MI300X VF")])
    first = run(product, space, "survivor", cores=10)
    before = containers(product, space, "survivor")
    took = []
    for number in range(ROUNDS):
        if number % 2:
            product.cluster.restart_kubelet()
            product.kill_plugin()
        else:
            product.kill_plugin()
            product.cluster.restart_kubelet()
        product.wait_for_no_slots()
        start(product, space, f"round-{number}", cores=5)
        product.start_plugin()
        begin = time.monotonic()
        product.cluster.wait_for_pod(space, f"round-{number}", "Running")
        took.append(time.monotonic() - begin)
        shares = held(product, space)
        assert len(shares) == number + 2
        assert all(not one & other for one, other in combinations(shares.values(), 2)), "no pod has another's CUs"
        (mask,) = read_mask(product.seen(space, f"round-{number}").env["HSA_CU_MASK"], gpus=1, cus=304).masks.values()
        assert {cu for _, cu in shares[f"round-{number}"]} == mask, "the container has what the annotation says"
    assert containers(product, space, "survivor") == before, "a running container is not touched"
    assert product.seen(space, "survivor").env == first.env
    assert max(took) < WITHIN_SECONDS, [f"{seconds:.1f} s" for seconds in took]


def test_a_gpu_falls_ill_and_recovers(product: Product, space: str) -> None:
    gpus = [MadeGpu("MI300X", uncorrectable={"umc": 0}), MadeGpu("MI300X", uncorrectable={"umc": 0})]
    product.plug_in(gpus)
    ill = run(product, space, "before").env["ROCR_VISIBLE_DEVICES"]
    before = containers(product, space, "before")
    address = devices(product.cluster.node())[ill].pci_address
    report_errors(product.tree, address, "umc", 1)
    product.cluster.wait_for(NODES, product.cluster.node_name, lambda node: shows(node, capacity=20, healthy=10))
    assert run(product, space, "meanwhile").env["ROCR_VISIBLE_DEVICES"] != ill
    assert containers(product, space, "before") == before, "a running container is not touched"
    report_errors(product.tree, address, "umc", 0)
    product.cluster.wait_for(NODES, product.cluster.node_name, lambda node: shows(node, capacity=20, healthy=20))
    assert len(run(product, space, "both", gpu=2).env["ROCR_VISIBLE_DEVICES"].split(",")) == 2


def test_partitions_changed_under_a_running_pod(product: Product, space: str) -> None:
    product.plug_in([MadeGpu("MI300X", unique_id=7)])
    run(product, space, "on-the-whole")
    before = containers(product, space, "on-the-whole")
    make_tree(product.tree, partitions("MI300X CPX", 8, unique_id=7))
    product.cluster.wait_for(NODES, product.cluster.node_name, lambda node: shows(node, capacity=90, healthy=80))
    seen = run(product, space, "on-a-part", cores=100)
    assert seen.env["HSA_CU_MASK"] == "0:0-37"
    assert containers(product, space, "on-the-whole") == before, "a running container is not touched"


def test_a_node_of_mixed_types(product: Product, space: str) -> None:
    product.plug_in(MACHINES["mixed"])
    seen = [run(product, space, f"pod-{number}", cores=100) for number in range(3)]
    types = {device.id: device.product for device in devices(product.cluster.node()).values()}
    assert {types[one.env["ROCR_VISIBLE_DEVICES"]]: one.env["HSA_CU_MASK"] for one in seen} == {
        "AMD Instinct MI300X OAM": "0:0-303",
        "AMD Instinct MI210": "0:0-103",
        "AMD Radeon RX 7900 XTX": "0:0-95",
    }
    assert sorted(node for one in seen for node in one.dri) == ["renderD128", "renderD136", "renderD144"]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_named_machine_runs_a_pod(product: Product, space: str, machine: str) -> None:
    gpus = MACHINES[machine]
    product.plug_in(gpus, offered=sum(gpu.product_key != INTEGRATED for gpu in gpus))
    seen = run(product, space, "pod", cores=50)
    share = held(product, space)["pod"]
    (gpu,) = {gpu for gpu, _ in share}
    cus = {cu for _, cu in share}
    device = devices(product.cluster.node())[gpu]
    assert len(cus) == device.cus_for(50) < device.cu_count
    assert seen.env["ROCR_VISIBLE_DEVICES"] == (device.rocr_id or "0")
    (mask,) = read_mask(seen.env["HSA_CU_MASK"], gpus=1, cus=device.cu_count).masks.values()
    assert mask == cus
    assert len(seen.dri) == 1
    assert seen.ready


def test_standalone(product: Product) -> None:
    """Before 1.21 nobody labels kube-system, which is how the webhook knows what to leave alone."""
    product.cluster.kubectl(
        "label", "namespace", "kube-system", "kubernetes.io/metadata.name=kube-system", "--overwrite"
    )
    product.plug_in(MACHINES["w7900-x2-apu"], "--standalone", offered=2)
    limits = {RESOURCE_GPU: "2"}
    container = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sleep", "1000"], "resources": {"limits": limits}}
    metadata = {"name": "alone", "namespace": "kube-system"}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    product.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        product.cluster.wait_for_pod("kube-system", "alone", "Running")
        shown = product.cluster.exec("kube-system", "alone", "sh", "-c", "ls /dev/dri; env").stdout.split()
        assert {"renderD128", "renderD136", "ROCR_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=0,1"} <= set(shown)
        assert not any(word.startswith(("HSA_CU_MASK=", "LD_AUDIT=")) for word in shown)
    finally:
        product.cluster.kubectl("delete", "pod", "alone", "--namespace", "kube-system", "--wait")
