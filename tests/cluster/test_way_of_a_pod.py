"""The product's main job, from `kubectl apply` to what a program in the container sees."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.cumask import read_mask
from protocol.cuset import format_ids
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.product import MADE_MI300X, NAMESPACE, Product, installed
from tests.cluster.seen import MIB, Seen
from tests.trees import MadeGpu

SECOND = MadeGpu("MI300X VF", memory_mib=196608)
OURS = {
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "HSA_CU_MASK",
    "HIP_DEVICE_MEMORY_LIMIT",
    "LD_AUDIT",
    "GLIBC_TUNABLES",
    "AMVGPU_REGION",
}
KUBERNETES = ("KUBERNETES_", "PATH", "HOSTNAME", "HOME")
WITHIN_LIMIT = {"allocate-total": 0, "one-byte-over": 2, "free": 0, "allocate-again": 0, "free-again": 0}


@pytest.fixture(scope="module")
def product(cluster: Cluster) -> Iterator[Product]:
    with installed(cluster) as product:
        yield product


@pytest.fixture
def space(product: Product, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, whose pods are gone when the next test begins."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:60].strip("-")
    product.cluster.create_namespace(name)
    yield name
    # Not the namespace itself: its end takes the controllers up to a minute, and it goes with the cluster.
    product.cluster.kubectl("delete", "pods", "--all", "--namespace", name, "--wait", "--timeout=60s")


def cus(seen: Seen) -> list[frozenset[int]]:
    """The CUs that ROCr makes of the container's mask, for each of its GPUs."""
    visible = seen.env["ROCR_VISIBLE_DEVICES"].split(",")
    mask = read_mask(seen.env["HSA_CU_MASK"], gpus=len(visible), cus=304)
    assert not mask.dropped
    return [mask.masks[index] for index in range(len(visible))]


def assert_limits_hold(seen: Seen, mib: int) -> None:
    for device, steps in zip(seen.devices, seen.steps, strict=True):
        assert device == dict.fromkeys(("totalGlobalMem", "totalMem", "free", "total"), mib * MIB)
        assert steps == WITHIN_LIMIT


def test_three_pods_share_one_gpu(product: Product, space: str) -> None:
    product.apply(space, "large", "medium", "small")
    for name in ("large", "medium", "small"):
        product.cluster.wait_for_pod(space, name, "Running")
    seen = {name: product.seen(space, name) for name in ("large", "medium", "small")}

    held = {name: cus(one)[0] for name, one in seen.items()}
    assert {name: len(ids) for name, ids in held.items()} == {"large": 76, "medium": 36, "small": 36}
    assert len(frozenset().union(*held.values())) == 76 + 36 + 36, "no two pods share a CU"
    assert all(format_ids(sorted(ids)).count(",") == 0 for ids in held.values()), "each has one range"
    for name, mib in (("large", 49152), ("medium", 24576), ("small", 16384)):
        assert_limits_hold(seen[name], mib)
        assert seen[name].ready
        assert seen[name].dri == ["renderD128"]
        assert seen[name].kfd
        ours = {key: value for key, value in seen[name].env.items() if not key.startswith(KUBERNETES)}
        assert set(ours) == OURS
        assert ours["ROCR_VISIBLE_DEVICES"] == "GPU-8e1bb56457addd1b"
        assert ours["HIP_VISIBLE_DEVICES"] == "0"
        assert ours["HIP_DEVICE_MEMORY_LIMIT"] == f"{mib}m"
        assert ours["LD_AUDIT"] == "/usr/local/vgpu/libamvgpu.so"
        assert ours["GLIBC_TUNABLES"] == "glibc.rtld.optional_static_tls=4096"
        assert ours["AMVGPU_REGION"] == "/run/amd-vgpu"


def test_the_webhook_says_who_schedules_and_brings_the_library(product: Product, space: str) -> None:
    product.apply(space, "large")
    spec = product.pod(space, "large")["spec"]
    # This kubelet takes a minute over a pod that is deleted while its container is being made.
    product.cluster.wait_for_pod(space, "large", "Running")
    assert spec["schedulerName"] == "amd-vgpu-scheduler"
    assert {"name": "amd-vgpu", "hostPath": {"path": str(product.library_dir), "type": "Directory"}} in spec["volumes"]
    (container,) = spec["containers"]
    mount = {"name": "amd-vgpu", "mountPath": "/usr/local/vgpu", "readOnly": True}
    assert mount in container["volumeMounts"]


def test_the_node_lock_is_free_when_pods_run(product: Product, space: str) -> None:
    product.apply(space, "small")
    product.cluster.wait_for_pod(space, "small", "Running")
    assert "hami.io/mutex.lock" not in product.cluster.node()["metadata"]["annotations"]
    notes = product.pod(space, "small")["metadata"]["annotations"]
    assert notes["hami.io/bind-phase"] == "success"
    assert notes["hami.io/vgpu-node"] == product.cluster.node_name
    assert notes["hami.io/amd-devices-to-allocate"] == ";"
    assert notes["hami.io/amd-devices-allocated"] == "GPU-8e1bb56457addd1b,AMD Instinct MI300X VF,16384,36:;"


def refused(cluster: Cluster, space: str, cores: str) -> str:
    """Apply a pod with this gpucores, as it would stand in a file, and return kubectl's words."""
    manifest = f"""
apiVersion: v1
kind: Pod
metadata: {{name: refused}}
spec:
  containers:
    - name: main
      image: docker.io/local/hip-client:1
      resources:
        limits: {{amd.com/gpu: 1, amd.com/gpucores: {cores}}}
"""
    done = cluster.kubectl("apply", "--namespace", space, "--filename", "-", input=manifest, check=False)
    assert done.returncode != 0
    assert cluster.get(f"/api/v1/namespaces/{space}/pods/refused") is None, "nothing is stored"
    return done.stderr


FIELD = "spec.containers[0].resources.limits[amd.com/gpucores]"


@pytest.mark.parametrize(
    ("cores", "shown"),
    # The API server hands quantities on in its own spelling: 25.5 reaches the webhook as 25500m.
    [("0", "0"), ("101", "101"), ("25.5", "25500m"), ("-1", "-1")],
)
def test_a_wrong_percentage_is_refused_by_the_webhook(product: Product, space: str, cores: str, shown: str) -> None:
    words = refused(product.cluster, space, cores)
    assert f'{FIELD}: Invalid value: "{shown}": must be an integer percentage between 1 and 100' in words


def test_what_is_no_quantity_is_refused_by_the_api_server_itself(product: Product, space: str) -> None:
    # It cannot read the object, so no webhook is asked.
    words = refused(product.cluster, space, "abc")
    assert "quantities must match the regular expression" in words
    # Newer API servers leave out where it stands.
    assert product.cluster.binaries.minor > 20 or "amd.com/gpucores" in words or "Resources" in words


def test_a_deleted_pods_cus_fit_another_pod_and_not_before(product: Product, space: str) -> None:
    product.apply(space, "large", "medium", "small")
    for name in ("large", "medium", "small"):
        product.cluster.wait_for_pod(space, name, "Running")
    product.apply(space, "fourth")
    waiting = product.cluster.wait_for_pod(space, "fourth", _unschedulable)
    assert waiting is not None
    (condition,) = [one for one in waiting["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert "GPU compute units: 156 free, 231 asked" in condition["message"]

    product.cluster.kubectl("delete", "pod", "large", "--namespace", space, "--wait")
    product.cluster.wait_for_pod(space, "fourth", "Running", timeout=120)
    fourth = product.seen(space, "fourth")
    (held,) = cus(fourth)
    assert len(held) == 231
    assert not held & (cus(product.seen(space, "medium"))[0] | cus(product.seen(space, "small"))[0])
    assert_limits_hold(fourth, 16384)


def _unschedulable(pod: dict[str, Any] | None) -> bool:
    conditions = pod["status"].get("conditions", []) if pod else []
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def test_two_containers_get_an_environment_each(product: Product, space: str) -> None:
    product.apply(space, "two-containers")
    product.cluster.wait_for_pod(space, "two-containers", "Running")
    first = product.seen(space, "two-containers", "first")
    second = product.seen(space, "two-containers", "second")
    assert_limits_hold(first, 1024)
    assert_limits_hold(second, 2048)
    assert (len(cus(first)[0]), len(cus(second)[0])) == (30, 60)
    assert not cus(first)[0] & cus(second)[0]
    plain = product.cluster.exec(space, "two-containers", "env", container="plain").stdout
    assert not any(f"{name}=" in plain for name in OURS)


def test_an_init_container_has_an_environment_of_its_own(product: Product, space: str) -> None:
    product.apply(space, "init-container")
    product.cluster.wait_for_pod(space, "init-container", "Running")
    prepare = product.seen(space, "init-container", "prepare")
    main = product.seen(space, "init-container", "main")
    assert prepare.devices[0]["total"] == 4096 * MIB
    assert len(cus(prepare)[0]) == 152
    assert_limits_hold(main, 2048)
    assert len(cus(main)[0]) == 30
    assert cus(main)[0] < cus(prepare)[0], "they never run at once, so one share serves both"


def test_a_pod_with_two_gpus_sees_them_in_one_order(product: Product, space: str) -> None:
    product.plug_in([MADE_MI300X, SECOND])
    try:
        # Something on one of the GPUs, so that the two masks differ.
        product.apply(space, "large")
        product.cluster.wait_for_pod(space, "large", "Running")
        product.apply(space, "two-gpus")
        product.cluster.wait_for_pod(space, "two-gpus", "Running")
        seen = product.seen(space, "two-gpus")
        notes = product.pod(space, "two-gpus")["metadata"]["annotations"]
        chosen = [part.split(",")[0] for part in notes["hami.io/amd-devices-allocated"].split(":")[:2]]
        assert seen.env["ROCR_VISIBLE_DEVICES"].split(",") == chosen
        assert seen.env["HIP_VISIBLE_DEVICES"] == "0,1"
        masks = cus(seen)
        recorded = json.loads(notes["hami.io/amd-cu-allocated"])
        assert [format_ids(sorted(ids)) for ids in masks] == [recorded[device] for device in chosen]
        assert masks[0] != masks[1], "the large pod moved one of the two ranges"
        assert [len(ids) for ids in masks] == [152, 152]
        assert sorted(seen.dri) == ["renderD128", "renderD136"]
        assert len(seen.devices) == 2
        assert_limits_hold(seen, 8192)
    finally:
        product.cluster.kubectl("delete", "pods", "--all", "--namespace", space, "--wait")
        product.plug_in([MADE_MI300X])


def test_the_manifests_pass_the_api_server(product: Product) -> None:
    base = "manifests/base"
    done = product.cluster.kubectl("apply", "--kustomize", base, "--dry-run=server")
    assert done.stdout.count("server dry run") == len(done.stdout.splitlines()) > 15


def test_services_may_do_no_more_than_they_need(product: Product) -> None:
    for account, verb, resource in (
        ("webhook", "list", "secrets"),
        ("webhook", "get", "secrets/other"),
        ("webhook", "patch", "pods"),
        ("scheduler", "get", "secrets"),
        ("plugin", "create", "pods/binding"),
        ("plugin", "delete", "pods"),
    ):
        user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        done = product.cluster.kubectl("auth", "can-i", verb, resource, user, "--namespace", NAMESPACE, check=False)
        assert done.stdout.strip() == "no", (account, verb, resource)


def test_a_pod_that_names_its_node_is_refused(product: Product, space: str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pinned", "namespace": space},
        "spec": {
            "nodeName": product.cluster.node_name,
            "containers": [{"name": "main", "image": "example", "resources": {"limits": {"amd.com/gpu": "1"}}}],
        },
    }
    with pytest.raises(ClusterError, match=r"spec\.nodeName: Forbidden"):
        product.cluster.apply(manifest)
