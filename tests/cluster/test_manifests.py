"""The shipped manifests as they are: every service in its own pod, with the rights and limits that they give it."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from protocol.names import LIBRARY_DIR, LIBRARY_NAME, RESOURCE_GPU
from tests.cluster.cluster import Cluster
from tests.cluster.conditions import has_condition
from tests.cluster.deployed import APISERVER_ARGS, WORKLOADS, Deployed, deployed, install
from tests.cluster.product import BASE, NAMESPACE, PODS, render
from tests.cluster.python_image import PYTHON
from tests.cluster.seen import MIB

USER = 65532
EXTENDER_PORT = 8888
GPU = "GPU-8e1bb56457addd1b"
HOST_DEVICES = Path("/dev")
# Containers with GPUs do all their tries to allocate and free, and end holding what they asked for.
WITHIN_LIMIT = {"allocate-total": 0, "one-byte-over": 2, "free": 0, "allocate-again": 0, "free-again": 0}


@pytest.fixture(scope="module", autouse=True)
def devices_before() -> set[str]:
    """What the host has in /dev before there is a plugin, which has the folder mounted."""
    return {path.name for path in HOST_DEVICES.iterdir()}


@pytest.fixture(scope="module")
def product(cluster: Cluster) -> Iterator[Deployed]:
    """The product on a cluster of its own: on the session's one it may run as processes.

    Where no cluster can run, the session's says so, and whether that is a failure.
    """
    with Cluster(apiserver_args=APISERVER_ARGS, log_folder=_own_logs(cluster)) as own, deployed(own) as product:
        yield product


def _own_logs(cluster: Cluster) -> Path | None:
    """A folder beside the session's logs, if those survive the tests."""
    inside = cluster.log_folder.is_relative_to(cluster.state)
    return None if inside else cluster.log_folder / "manifests"


@pytest.fixture
def space(product: Deployed, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, whose pods are gone when the next test begins."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:60].strip("-")
    product.cluster.create_namespace(name)
    yield name
    product.cluster.kubectl("delete", "pods", "--all", "--namespace", name, "--wait", "--timeout=60s")


def webhooks(product: Deployed) -> list[dict[str, Any]]:
    path = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/amd-vgpu"
    found = [product.cluster.get(path.format(kind)) for kind in ("mutating", "validating")]
    return [webhook for one in found if one for webhook in one["webhooks"]]


def component(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def containers(product: Deployed) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pod's name with each of its containers."""
    for pod in product.service_pods():
        for container in pod["spec"]["containers"]:
            yield pod["metadata"]["name"], container


def process_status(product: Deployed, pod: str, container: str) -> dict[str, str]:
    """What the kernel says of a container's first process."""
    file = "/proc/1/status"
    # The product's image has no tools but Python, as kube-scheduler's here has no Python but tools.
    command = ["cat", file] if container == "kube-scheduler" else [PYTHON, "-c", f"print(open('{file}').read())"]
    lines = product.cluster.exec(NAMESPACE, pod, *command, container=container).stdout.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_every_pod_is_ready_and_none_was_started_twice(product: Deployed) -> None:
    pods = product.service_pods()
    assert sorted(component(pod) for pod in pods) == ["plugin", "scheduler", "scheduler", "webhook", "webhook"]
    for pod in pods:
        assert has_condition(pod, "Ready"), pod["metadata"]["name"]
        assert {one["restartCount"] for one in pod["status"]["containerStatuses"]} == {0}
        assert pod["spec"]["serviceAccountName"] == component(pod)


def test_only_the_plugin_is_privileged(product: Deployed) -> None:
    privileged = {one["name"] for _, one in containers(product) if one["securityContext"].get("privileged")}
    assert privileged == {"plugin"}


def test_processes_have_no_rights_but_those_they_need(product: Deployed) -> None:
    for pod, container in containers(product):
        status = process_status(product, pod, container["name"])
        if container["name"] == "plugin":
            assert status["Uid"].split() == ["0"] * 4
            continue
        expected = {"CapEff": 0, "CapPrm": 0, "CapBnd": 0, "NoNewPrivs": 1, "Seccomp": 2}
        assert {name: int(status[name], 16) for name in expected} == expected, (pod, container["name"])
        assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
        assert status["Groups"].split() == [str(USER)]


def test_nobody_can_write_to_a_root_file_system(product: Deployed) -> None:
    for pod, container in containers(product):
        tools = container["name"] == "kube-scheduler"
        command = ["touch", "/tmp/new"] if tools else [PYTHON, "-c", "open('/tmp/new', 'w')"]
        done = product.cluster.exec(NAMESPACE, pod, *command, container=container["name"], check=False)
        assert done.returncode != 0
        assert "Read-only file system" in done.stderr, (pod, container["name"])


def test_only_the_pod_itself_reaches_the_extender(product: Deployed) -> None:
    for pod in product.service_pods("scheduler"):
        address = pod["status"]["podIP"]
        (health,) = (port["containerPort"] for one in pod["spec"]["containers"] for port in one.get("ports", ()))
        socket.create_connection((address, health), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, EXTENDER_PORT), timeout=5)


def test_nothing_that_they_try_is_forbidden(product: Deployed) -> None:
    for pod, container in containers(product):
        log = product.cluster.logs(NAMESPACE, pod, container["name"])
        assert log, (pod, container["name"])
        assert [line for line in log.splitlines() if "forbidden" in line.lower()] == []


def test_the_plugin_leaves_the_hosts_devices_alone(product: Deployed, devices_before: set[str]) -> None:
    assert product.service_pods("plugin")
    assert {path.name for path in HOST_DEVICES.iterdir()} - devices_before == set()


def test_applying_them_again_changes_nothing(product: Deployed, tmp_path: Path) -> None:
    pods, called = {pod["metadata"]["uid"] for pod in product.service_pods()}, webhooks(product)
    words = install(product, tmp_path).splitlines()
    assert len(words) > 15
    assert [line for line in words if not line.endswith(" unchanged")] == []
    assert webhooks(product) == called
    for workload in WORKLOADS:
        product.rollout(workload)
    assert {pod["metadata"]["uid"] for pod in product.service_pods()} == pods


def test_the_options_of_the_plugin_can_be_put_together(product: Deployed, tmp_path: Path) -> None:
    components = BASE.parent / "components"
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(BASE.resolve(), tmp_path.resolve())],
        "components": [os.path.relpath(one.resolve(), tmp_path.resolve()) for one in sorted(components.iterdir())],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    (plugin,) = (item for item in render(tmp_path) if item["kind"] == "DaemonSet")
    pod = plugin["spec"]["template"]["spec"]
    assert pod["hostPID"] is True
    assert {"--require-audit", "--cdi=/var/run/cdi"} < set(pod["containers"][0]["args"])
    mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted["cdi"] == "/var/run/cdi"
    file = tmp_path / "plugin.json"
    file.write_text(json.dumps(plugin))
    words = product.cluster.kubectl("apply", "--dry-run=server", "--filename", file).stdout
    assert words.strip() == "daemonset.apps/plugin configured (server dry run)"


def test_a_gpu_pod_goes_its_whole_way(product: Deployed, space: str) -> None:
    product.apply(space, "large")
    product.cluster.wait_for_pod(space, "large", "Running")
    seen = product.seen(space, "large")
    pod = product.pod(space, "large")
    notes = pod["metadata"]["annotations"]

    assert pod["spec"]["schedulerName"] == "amd-vgpu-scheduler"
    assert notes["hami.io/bind-phase"] == "success"
    assert notes["hami.io/amd-devices-allocated"] == f"{GPU},AMD Instinct MI300X VF,49152,76:;"
    assert seen.devices == [dict.fromkeys(("totalGlobalMem", "totalMem", "free", "total"), 49152 * MIB)]
    assert seen.steps == [WITHIN_LIMIT]
    assert seen.ready
    assert seen.kfd
    assert seen.dri == ["renderD128"]
    assert seen.env["ROCR_VISIBLE_DEVICES"] == GPU
    assert seen.env["HSA_CU_MASK"] == f"0:{json.loads(notes['hami.io/amd-cu-allocated'])[GPU]}" == "0:0-75"
    assert seen.env["LD_AUDIT"] == f"{LIBRARY_DIR}/{LIBRARY_NAME}"
    assert "hami.io/mutex.lock" not in product.cluster.node()["metadata"]["annotations"]


def test_the_plugin_sees_in_its_pod_who_runs_on_the_node(product: Deployed, space: str) -> None:
    """By the mounts of its DaemonSet: the host's cgroups, and the kubelet's PodResources API."""
    product.apply(space, "small")
    product.cluster.wait_for_pod(space, "small", "Running")
    code = """if True:
        import asyncio, json
        from pathlib import Path
        from plugin.cgroups import pods_with_processes
        from plugin.podresources import kubelet_shares
        from plugin.settings import PluginSettings
        shares = asyncio.run(kubelet_shares(PluginSettings("-", Path("-")).pod_resources))
        running = sorted(pods_with_processes(Path("/host/cgroup")))
        print(json.dumps({"running": running, "shares": [[one.namespace, one.pod, one.container] for one in shares]}))
    """
    (plugin,) = (pod["metadata"]["name"] for pod in product.service_pods("plugin"))
    seen = json.loads(product.cluster.exec(NAMESPACE, plugin, PYTHON, "-c", code).stdout)
    uid = product.pod(space, "small")["metadata"]["uid"]
    assert uid in seen["running"]
    assert [space, "small", "main"] in seen["shares"]
    folder = product.run_dir / "pods" / uid
    assert (folder / "main.region").stat().st_size > 0
    product.cluster.kubectl("delete", "pod", "small", "--namespace", space, "--wait")
    deadline = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < deadline, "the folder of a pod that is over stays"
        time.sleep(0.05)


def test_a_wrong_pod_is_refused_by_the_webhook_in_the_cluster(product: Deployed, space: str) -> None:
    for webhook in webhooks(product):
        assert webhook["clientConfig"]["service"]["name"] == "webhook", "through the Service, as shipped"
    manifest = yaml.safe_load((PODS / "large.yaml").read_text())
    manifest["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpucores"] = 101
    words = product.cluster.kubectl(
        "apply", "--namespace", space, "--filename", "-", input=json.dumps(manifest), check=False
    ).stderr
    assert 'admission webhook "mutate.amd-vgpu.io" denied the request' in words
    assert 'Invalid value: "101": must be an integer percentage between 1 and 100' in words
    assert product.cluster.get(f"/api/v1/namespaces/{space}/pods/large") is None


def test_a_new_plugin_pod_serves_on_and_gpu_pods_do_not_notice(product: Deployed, space: str) -> None:
    product.apply(space, "large")
    before = product.cluster.wait_for_pod(space, "large", "Running")
    assert before is not None
    (old,) = (pod["metadata"]["name"] for pod in product.service_pods("plugin"))

    product.cluster.kubectl("delete", "pod", old, "--namespace", NAMESPACE, "--wait=false")
    # The kubelet notices the end of the old one; without this the slots it offered could be taken for the new one's.
    product.cluster.wait_for("/api/v1/nodes", product.cluster.node_name, _offers_nothing)
    # A kubelet that has removed the container before it looked (`ContainerStatusUnknown`) looks again a minute later.
    product.cluster.wait_for_pod(NAMESPACE, old, "Deleted", timeout=150)
    product.rollout("daemonset/plugin")
    product.wait_for_gpu()

    product.apply(space, "small")
    product.cluster.wait_for_pod(space, "small", "Running")
    assert product.seen(space, "small").env["HSA_CU_MASK"] == "0:76-111"
    assert product.pod(space, "large")["status"] == before["status"]


def _offers_nothing(node: dict[str, Any] | None) -> bool:
    return node is not None and node["status"]["allocatable"].get(RESOURCE_GPU) == "0"


def test_a_new_scheduler_pod_takes_over(product: Deployed, space: str) -> None:
    old = [pod["metadata"]["name"] for pod in product.service_pods("scheduler")]
    product.cluster.kubectl("rollout", "restart", "deployment/scheduler", "--namespace", NAMESPACE)
    product.rollout("deployment/scheduler")
    product.apply(space, "small")
    # Its kube-scheduler leads when the old one has not renewed its lease for 15 s.
    product.cluster.wait_for_pod(space, "small", "Running")
    for name in old:
        product.cluster.wait_for_pod(NAMESPACE, name, "Deleted")
    assert product.seen(space, "small").env["HSA_CU_MASK"] == "0:0-35"


def test_a_rolled_restart_of_the_webhook_loses_no_admission(product: Deployed, space: str) -> None:
    old = [pod["metadata"]["name"] for pod in product.service_pods("webhook")]
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        admitted = pool.submit(_admit_until, product, space, done)
        try:
            product.cluster.kubectl("rollout", "restart", "deployment/webhook", "--namespace", NAMESPACE)
            product.rollout("deployment/webhook")
            for name in old:
                product.cluster.wait_for_pod(NAMESPACE, name, "Deleted")
        finally:
            done.set()
    assert admitted.result() > 20
    assert not set(old) & {pod["metadata"]["name"] for pod in product.service_pods("webhook")}


def _admit_until(product: Deployed, space: str, done: threading.Event) -> int:
    """Have the API server admit a pod again and again, without making it, and return how often the webhook did so."""
    pod = json.dumps(yaml.safe_load((PODS / "large.yaml").read_text()))
    path = f"/api/v1/namespaces/{space}/pods?dryRun=All"
    times = 0
    while not done.is_set():
        answer = json.loads(product.cluster.kubectl("create", "--raw", path, "--filename", "-", input=pod).stdout)
        assert answer["spec"]["schedulerName"] == "amd-vgpu-scheduler"
        times += 1
    return times
