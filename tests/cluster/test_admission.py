"""What a user of kubectl reads: the webhook's most important rules, asked of a real API server."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from subprocess import CompletedProcess
from typing import Any

import pytest

from kube.client import KubeClient
from protocol.devices import DeviceInfo, encode_register
from tests.cluster.availability import running_cluster
from tests.cluster.binaries import OLD, RELEASES
from tests.cluster.cluster import Cluster
from tests.cluster.product import NAMESPACE, Product
from webhook.hints import ClusterHints, watch_nodes
from webhook.pod import Pod

Object = dict[str, Any]

SPACE = "team"
TRUSTED_SPACE = "trusted"
USER = "ann"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
LIMITS = "spec.containers[0].resources.limits"
CORES = "must be an integer percentage between 1 and 100"
GPU_NODE = "gpu-node"


@pytest.fixture(scope="module", params=RELEASES)
def api(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster without a node, with the webhook as it is installed; the pod `old` was there before it."""
    gates = ["--feature-gates=EphemeralContainers=true"] if request.param == OLD else []
    with running_cluster(node=False, kubernetes=request.param, apiserver_args=gates) as own:
        own.create_namespace(SPACE)
        own.create_namespace(TRUSTED_SPACE)
        own.kubectl("label", "namespace", TRUSTED_SPACE, "amd-vgpu.io/allow-privileged=true")
        own.kubectl("create", "rolebinding", "ann", "--clusterrole=admin", f"--user={USER}", f"--namespace={SPACE}")
        own.apply(pod("old", {"amd.com/gpu": "1", "amd.com/gpucores": "150"}, finalizers=["example.com/keep"]))
        Product(own).start_webhook()
        yield own


def pod(name: str, limits: Object | None = None, *, space: str = SPACE, **more: Any) -> Object:
    """Return a pod of one container; further fields go to metadata, container or spec by their names."""
    metadata: Object = {key: more.pop(key) for key in ("annotations", "finalizers") if key in more}
    container: Object = {key: more.pop(key) for key in ("env", "envFrom", "securityContext") if key in more}
    main = {"name": "main", "image": "example", "resources": {"limits": limits or {}}, **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, **metadata},
        "spec": {"containers": [main], **more},
    }


def workload(version: str, kind: str, name: str, limits: Object) -> Object:
    labels = {"app": name}
    restart = {"restartPolicy": "Never"} if kind in {"Job", "CronJob"} else {}
    template: Object = {"metadata": {"labels": labels}, "spec": {**pod(name, limits)["spec"], **restart}}
    spec: Object = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    elif kind == "ReplicationController":
        spec["selector"] = labels
    elif kind != "Job":
        spec["selector"] = {"matchLabels": labels}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def create(api: Cluster, item: Object, *options: str, user: str = "") -> CompletedProcess[str]:
    who = [f"--as={user}", "--as-group=system:authenticated"] if user else []
    return api.kubectl("create", "--filename", "-", *options, *who, input=json.dumps(item), check=False)


def refused(api: Cluster, item: Object, *options: str, user: str = "") -> str:
    """Create something that must be refused, and return kubectl's words."""
    done = create(api, item, *options, user=user)
    assert done.returncode != 0, done.stdout
    name = item["metadata"]["name"]
    assert api.kubectl("get", item["kind"], name, f"--namespace={SPACE}", check=False).returncode != 0, "it is stored"
    return done.stderr


def created(api: Cluster, item: Object, *options: str, user: str = "") -> str:
    """Create something that must be allowed, and return the warnings that kubectl prints."""
    done = create(api, item, *options, user=user)
    assert done.returncode == 0, done.stderr
    return done.stderr


def stored(api: Cluster, name: str, space: str = SPACE) -> Object:
    found = api.get(f"/api/v1/namespaces/{space}/pods/{name}")
    assert found is not None
    return found


def changed(api: Cluster, *command: str, user: str = USER) -> CompletedProcess[str]:
    return api.kubectl(*command, f"--namespace={SPACE}", f"--as={user}", check=False)


def test_every_fault_is_named_at_once(api: Cluster) -> None:
    item = pod("wrong", {"amd.com/gpu": "0", "amd.com/gpucores": "150", "amd.com/gpumem": "16Gi"}, nodeName="n1")
    words = refused(api, item)
    assert 'admission webhook "mutate.amd-vgpu.io" denied the request' in words
    for fault in (
        f'{LIMITS}[amd.com/gpu]: Invalid value: "0": must be an integer from 1 to 64',
        f'{LIMITS}[amd.com/gpucores]: Invalid value: "150": {CORES}',
        f'{LIMITS}[amd.com/gpumem]: Invalid value: "16Gi": must be an integer number of MiB',
        "greater than 0, without a suffix: for 16Gi write 16384",
        "spec.nodeName: Forbidden: must not be set on a pod that asks for amd.com resources",
    ):
        assert fault in words


def test_quantities_that_kubernetes_spells_anew(api: Cluster) -> None:
    created(api, pod("spelt", {"amd.com/gpu": "1", "amd.com/gpumem": "16000", "amd.com/gpucores": "1e1"}))
    limits = stored(api, "spelt")["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"amd.com/gpu": "1", "amd.com/gpumem": "16k", "amd.com/gpucores": "10"}


def test_a_request_without_a_limit(api: Cluster) -> None:
    item = pod("unlimited")
    item["spec"]["containers"][0]["resources"] = {"requests": {"amd.com/gpu": "1"}}
    field = "spec.containers[0].resources.requests[amd.com/gpu]"
    expected = f'{field}: Invalid value: "1": must not be set without resources.limits[amd.com/gpu]'
    assert expected in refused(api, item)


def test_memory_alone_means_one_gpu(api: Cluster) -> None:
    created(api, pod("memory", {"amd.com/gpumem": "1024"}), user=USER)
    found = stored(api, "memory")["spec"]
    assert found["schedulerName"] == "amd-vgpu-scheduler"
    resources = found["containers"][0]["resources"]
    assert resources["limits"]["amd.com/gpu"] == resources["requests"]["amd.com/gpu"] == "1"


def test_reserved_variables(api: Cluster) -> None:
    words = refused(api, pod("masked", {"amd.com/gpu": "1"}, env=[{"name": "HSA_CU_MASK", "value": "0:0-303"}]))
    assert (
        'spec.containers[0].env[0].name: Invalid value: "HSA_CU_MASK": must not be set in a container with amd.com '
        "resources: it would take the place of what the device plugin sets" in words
    )


def test_an_own_ld_audit_is_joined(api: Cluster) -> None:
    variables = [{"name": "LD_AUDIT", "value": "/mine.so"}, {"name": "GLIBC_TUNABLES", "value": "glibc.malloc.check=1"}]
    created(api, pod("audited", {"amd.com/gpu": "1"}, env=variables))
    env = stored(api, "audited")["spec"]["containers"][0]["env"]
    assert [variable["value"] for variable in env] == [
        "/usr/local/vgpu/libamvgpu.so:/mine.so",
        "glibc.malloc.check=1:glibc.rtld.optional_static_tls=4096",
    ]


def test_env_from_is_warned_about(api: Cluster) -> None:
    words = created(api, pod("from", {"amd.com/gpu": "1"}, envFrom=[{"configMapRef": {"name": "any"}}]), user=USER)
    assert "Warning: spec.containers[0].envFrom: cannot be checked" in words


def test_another_scheduler_is_warned_about(api: Cluster) -> None:
    words = created(api, pod("elsewhere", {"amd.com/gpu": "1"}, schedulerName="volcano"))
    assert "Warning: spec.schedulerName: the amd.com resources of this pod are not handled by" in words
    assert stored(api, "elsewhere")["spec"]["schedulerName"] == "volcano"


def test_a_privileged_container(api: Cluster) -> None:
    privileged: Object = {"securityContext": {"privileged": True}}
    words = refused(api, pod("privileged", {"amd.com/gpu": "1"}, **privileged))
    assert "spec.containers[0].securityContext.privileged: Forbidden: must not be true with amd.com resources" in words
    assert "namespaces labelled amd-vgpu.io/allow-privileged=true" in words
    words = created(api, pod("privileged", {"amd.com/gpu": "1"}, space=TRUSTED_SPACE, **privileged))
    assert "Warning: spec.containers[0].securityContext.privileged: a privileged container sees every GPU" in words
    assert stored(api, "privileged", TRUSTED_SPACE)["spec"]["schedulerName"] == "amd-vgpu-scheduler"


def test_other_faults_in_a_namespace_that_allows_privileged_containers(api: Cluster) -> None:
    words = refused(api, pod("wrong", {"amd.com/gpucores": "150"}, space=TRUSTED_SPACE))
    assert f'{LIMITS}[amd.com/gpucores]: Invalid value: "150": {CORES}' in words


@pytest.mark.parametrize("limits", [{}, {"amd.com/gpu": "1"}], ids=["without-gpus", "with-gpus"])
def test_reserved_annotations_at_creation(api: Cluster, limits: Object) -> None:
    item = pod("forged", limits, annotations={"hami.io/amd-cu-allocated": "{}"}, schedulerName="any")
    expected = "metadata.annotations[hami.io/amd-cu-allocated]: Forbidden: must not be set, only the scheduler and the"
    assert expected in refused(api, item, user=USER)
    assert expected in refused(api, item), "the administrator is no exception"


def test_reserved_annotations_of_a_stored_pod(api: Cluster) -> None:
    created(api, pod("held", {"amd.com/gpu": "1"}))
    note = "hami.io/amd-cu-allocated"
    done = changed(api, "annotate", "pod", "held", note + '={"GPU-1": "0-75"}')
    assert f"metadata.annotations[{note}]: Forbidden: must not be changed" in done.stderr
    own = f"system:serviceaccount:{NAMESPACE}:scheduler"
    done = changed(api, "annotate", "pod", "held", note + '={"GPU-1": "0-75"}', user=own)
    assert done.returncode == 0, done.stderr
    done = changed(api, "annotate", "pod", "held", f"{note}-")
    assert f"metadata.annotations[{note}]: Forbidden: must not be changed" in done.stderr
    assert changed(api, "annotate", "pod", "held", "note=mine").returncode == 0
    assert changed(api, "label", "pod", "held", "color=red").returncode == 0


def test_selection_annotations(api: Cluster) -> None:
    item = pod("picky", {"amd.com/gpu": "1"}, annotations={"hami.io/gpu-scheduler-policy": "binpak"})
    expected = 'metadata.annotations[hami.io/gpu-scheduler-policy]: Invalid value: "binpak": must be binpack, spread,'
    assert expected in refused(api, item)


def test_a14_a_pod_from_before_the_rules_can_still_be_relabelled_and_go(api: Cluster) -> None:
    assert changed(api, "label", "pod", "old", "color=red").returncode == 0
    api.kubectl("delete", "pod", "old", f"--namespace={SPACE}", "--wait=false")
    assert stored(api, "old")["metadata"]["deletionTimestamp"]
    done = changed(api, "patch", "pod", "old", "--type=merge", '--patch={"metadata": {"finalizers": null}}')
    assert done.returncode == 0, done.stderr


def test_a16_a_debug_container(api: Cluster) -> None:
    created(api, pod("debugged", {"amd.com/gpu": "1"}))
    path = f"{PODS}/debugged/ephemeralcontainers"
    debug = {"name": "debug", "image": "busybox", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
    if api.binaries.minor < 22:
        body: Object = {"apiVersion": "v1", "kind": "EphemeralContainers", "metadata": {"name": "debugged"}}
        body["ephemeralContainers"] = [debug]
    else:
        body = stored(api, "debugged")
        body["spec"]["ephemeralContainers"] = [debug]
    api.kubectl("replace", f"--raw={path}", "--filename", "-", input=json.dumps(body))
    assert [one["name"] for one in stored(api, "debugged")["spec"]["ephemeralContainers"]] == ["debug"]


WORKLOADS = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1beta1", "CronJob"),
    ("v1", "ReplicationController"),
]


@pytest.mark.parametrize(("version", "kind"), WORKLOADS, ids=[kind for _, kind in WORKLOADS])
def test_a27_workloads_are_refused_themselves(api: Cluster, version: str, kind: str) -> None:
    if kind == "CronJob" and api.binaries.minor > 20:
        version = "batch/v1"
    words = refused(api, workload(version, kind, "bad", {"amd.com/gpucores": "150"}))
    prefix = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    assert 'admission webhook "workloads.amd-vgpu.io" denied the request' in words
    assert f'{prefix}.{LIMITS}[amd.com/gpucores]: Invalid value: "150": {CORES}' in words


def test_a27_a_right_deployment_stays_as_it_is_and_its_pods_are_completed(api: Cluster) -> None:
    created(api, workload("apps/v1", "Deployment", "good", {"amd.com/gpumem": "1024"}))
    deployment = api.get(f"/apis/apps/v1/namespaces/{SPACE}/deployments/good")
    assert deployment is not None
    template = deployment["spec"]["template"]["spec"]
    assert template["schedulerName"] == "default-scheduler"
    assert template["containers"][0]["resources"]["limits"] == {"amd.com/gpumem": "1024"}
    replicas = f"/apis/apps/v1/namespaces/{SPACE}/deployments"
    api.wait_for(replicas, "good", lambda one: one is not None and one.get("status", {}).get("replicas") == 1)
    (made,) = [one for one in _pods(api) if one["metadata"]["labels"].get("app") == "good"]
    assert made["spec"]["schedulerName"] == "amd-vgpu-scheduler"
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1", "amd.com/gpumem": "1024"}


def test_a_deployment_is_judged_again_when_its_template_changes(api: Cluster) -> None:
    created(api, workload("apps/v1", "Deployment", "later", {"amd.com/gpu": "1"}))
    assert changed(api, "scale", "deployment", "later", "--replicas=0").returncode == 0
    done = changed(api, "set", "resources", "deployment", "later", "--limits=amd.com/gpu=1,amd.com/gpucores=101")
    assert f'spec.template.{LIMITS}[amd.com/gpucores]: Invalid value: "101": {CORES}' in done.stderr


def test_a_dry_run_says_the_same_and_stores_nothing(api: Cluster) -> None:
    words = refused(api, pod("dry", {"amd.com/gpucores": "150"}), "--dry-run=server")
    assert f'{LIMITS}[amd.com/gpucores]: Invalid value: "150": {CORES}' in words
    done = create(api, pod("dry", {"amd.com/gpumem": "5"}), "--dry-run=server", "--output=json")
    assert json.loads(done.stdout)["spec"]["schedulerName"] == "amd-vgpu-scheduler"
    assert api.get(f"{PODS}/dry") is None


def test_pods_without_gpus_are_stored_as_they_are(api: Cluster) -> None:
    item = pod("plain", {"cpu": "1"}, env=[{"name": "HSA_CU_MASK", "value": "0:0"}])
    assert created(api, item, user=USER) == ""
    found = stored(api, "plain")["spec"]
    assert found["schedulerName"] == "default-scheduler"
    assert "amd-vgpu" not in json.dumps(found)


def test_a9_while_every_webhook_is_down(api: Cluster) -> None:
    """Match conditions spare what concerns no AMD GPU; servers without them refuse every pod."""
    api.stop_process("webhook", 0)
    try:
        for item in (pod("gpu", {"amd.com/gpu": "1"}), pod("gpumem", {"amd.com/gpumem": "1"})):
            assert 'failed calling webhook "mutate.amd-vgpu.io"' in refused(api, item)
        plain = pod("spared", {"cpu": "1"}, initContainers=[{"name": "init", "image": "example"}])
        if api.binaries.minor < 28:
            assert 'failed calling webhook "mutate.amd-vgpu.io"' in refused(api, plain)
        else:
            created(api, plain)
            assert changed(api, "label", "pod", "spared", "color=red").returncode == 0
            assert changed(api, "delete", "pod", "spared", "--now").returncode == 0
            noted = pod("noted", {}, annotations={"hami.io/amd-cu-allocated": "{}"})
            assert 'failed calling webhook "mutate.amd-vgpu.io"' in refused(api, noted)
        assert created(api, workload("apps/v1", "Deployment", "unseen", {"amd.com/gpu": "1"})) == "", "their pods wait"
    finally:
        Product(api).start_webhook()


async def test_the_webhooks_rights_are_enough_to_know_the_nodes(api: Cluster) -> None:
    device = DeviceInfo("GPU-1", 0, 10, 196608, 304, "MI300X")
    notes = {"hami.io/node-amd-register": encode_register([device])}
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": GPU_NODE, "annotations": notes}})
    read = asyncio.Event()

    class Heard(ClusterHints):
        """Tells when the nodes are read."""

        def replace(self, nodes: Iterable[Mapping[str, Any]]) -> None:
            super().replace(nodes)
            read.set()

    hints = Heard()
    async with KubeClient.connect(api.kubeconfig_for_service_account(NAMESPACE, "webhook")) as client:
        watching = asyncio.create_task(watch_nodes(client, hints))
        await asyncio.wait_for(read.wait(), 60)
        watching.cancel()
        await asyncio.wait({watching})
    wants = Pod.of(pod("any", {"amd.com/gpumem": "200000"}))
    assert hints.warnings(wants) == [
        f"{LIMITS}[amd.com/gpumem]: no node has a GPU of that much memory: the largest has 196608 MiB"
    ]


def _pods(api: Cluster) -> list[Object]:
    found = api.get(PODS)
    assert found is not None
    items: list[Object] = found["items"]
    return [item for item in items if "labels" in item["metadata"]]
