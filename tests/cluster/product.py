"""The product, installed on a cluster: its own manifests, its own services, and a made machine with AMD GPUs.

What is real: every object of manifests/base, each service under its own service account, the library, the kubelet's
device plugin API, the containers. What is a stand-in: the GPU (a made sysfs tree and null devices) and AMD's runtime in
the container. The services run beside the cluster instead of in pods, as the harness has no kube-proxy for Services.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from protocol.names import NODE_REGISTER, RESOURCE_GPU, SCHEDULER_NAME
from tests.cluster.cluster import Cluster
from tests.cluster.images import client_image
from tests.cluster.network import free_port
from tests.cluster.seen import Seen, follow
from tests.command import COMMAND
from tests.shim.build import compile_client, compile_shim, compile_standin_hip
from tests.trees import MadeGpu, make_tree

Object = dict[str, Any]

BASE: Final = Path(__file__).resolve().parents[2] / "manifests/base"
WITH_MATCH_CONDITIONS: Final = BASE.parent / "overlays/kubernetes-1.28"
PODS: Final = Path(__file__).parent / "pods"
CLIENT_IMAGE: Final = "docker.io/local/hip-client:1"
NAMESPACE: Final = "amd-vgpu"
MADE_MI300X: Final = MadeGpu("MI300X VF", memory_mib=196608)
SLOTS: Final = 10

_RUN_ELSEWHERE: Final = {"Deployment", "DaemonSet", "Service"}


class Product:
    """The product's services on a cluster; made by `installed`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tree = cluster.state / "tree"
        self.library_dir = cluster.state / "vgpu"
        self.run_dir = cluster.state / "run-vgpu"
        self._plugged = False

    def plug_in(self, gpus: Sequence[MadeGpu], *options: str, offered: int | None = None) -> None:
        """Give the machine these GPUs and start its device plugin, or start it again.

        Args:
            gpus: all GPUs of the machine.
            options: more options for the plugin.
            offered: how many of them it offers, if not all.
        """
        if self._plugged:
            self.cluster.stop_process("plugin")
            self.wait_for_no_slots()
        make_tree(self.tree, gpus)
        self.start_plugin(*options)
        self._plugged = True
        expected = len(gpus) if offered is None else offered
        self.cluster.wait_for("/api/v1/nodes", self.cluster.node_name, lambda node: _offers(node, expected))

    def start_plugin(self, *options: str) -> None:
        """Start the device plugin on the machine as it is."""
        self._start(
            "plugin",
            f"--node-name={self.cluster.node_name}",
            f"--kubelet-dir={self.cluster.device_plugin_dir}",
            f"--sysfs-root={self.tree / 'sys'}",
            f"--dev-root={self.tree / 'dev'}",
            f"--library={compile_shim()}",
            f"--library-dir={self.library_dir}",
            f"--run-dir={self.run_dir}",
            f"--pod-resources={self.cluster.pod_resources_socket}",
            *options,
        )

    def wait_for_no_slots(self) -> None:
        """Wait until everybody knows that there is no plugin: pods that come before would be refused by the kubelet."""
        self.cluster.wait_for("/api/v1/nodes", self.cluster.node_name, lambda node: _slots(node) == "0")

    def kill_plugin(self) -> None:
        """End the device plugin with SIGKILL."""
        self.cluster.stop_process("plugin", grace=0)

    def apply(self, namespace: str, *names: str) -> None:
        """`kubectl apply` files of the folder pods, at once."""
        files = [argument for name in names for argument in ("--filename", str(PODS / f"{name}.yaml"))]
        self.cluster.kubectl("apply", "--namespace", namespace, *files)

    def pod(self, namespace: str, name: str) -> Object:
        """Return a pod as the API server has it."""
        pod = self.cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        assert pod is not None, f"there is no pod {namespace}/{name}"
        return pod

    def seen(self, namespace: str, name: str, container: str = "main") -> Seen:
        """Return what the HIP program in a container saw, once it is through with its tries."""
        return follow(self.cluster, namespace, name, container)

    def start_webhook(self) -> None:
        port = free_port()
        self.cluster.apply(manifests(webhook_port=port, minor=self.cluster.binaries.minor))
        self._start(
            "webhook",
            "--host=127.0.0.1",
            f"--port={port}",
            "--cert-name=127.0.0.1",
            f"--library-dir={self.library_dir}",
            "--drain=0",
            ready=f"https://127.0.0.1:{port}/readyz",
        )

    def start_scheduler(self) -> None:
        port, health = free_port(), free_port()
        self._start("scheduler", f"--port={port}", f"--health-port={health}", ready=f"http://127.0.0.1:{health}/readyz")
        config = scheduler_configuration()
        for extender in config["extenders"]:
            extender["urlPrefix"] = f"http://127.0.0.1:{port}"
        kubeconfig = self.cluster.kubeconfig_for_service_account(NAMESPACE, "scheduler")
        self.cluster.start_scheduler(SCHEDULER_NAME, config, kubeconfig)

    def _start(self, service: str, *options: str, ready: str | None = None) -> None:
        """Start one of the commands with the rights of the service account that the manifests give it."""
        self.cluster.wait_for_service_account(NAMESPACE, service)
        kubeconfig = self.cluster.kubeconfig_for_service_account(NAMESPACE, service)
        self.cluster.start_process(service, [*COMMAND, service, f"--kubeconfig={kubeconfig}", *options], ready=ready)


@contextmanager
def installed(cluster: Cluster, gpus: Sequence[MadeGpu] = (MADE_MI300X,)) -> Iterator[Product]:
    """Install the product on a cluster whose node has these GPUs. It ends with the cluster."""
    product = Product(cluster)
    _import_client(cluster)
    product.start_webhook()
    product.start_scheduler()
    product.plug_in(gpus)
    yield product


def manifests(*, webhook_port: int, minor: int) -> list[Object]:
    """Return the manifests for a Kubernetes version as kustomize renders them, but for what runs beside it here."""
    folder = WITH_MATCH_CONDITIONS if minor >= 28 else BASE
    objects = [item for item in render(folder) if item["kind"] not in _RUN_ELSEWHERE]
    for item in objects:
        for webhook in item.get("webhooks", ()):
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{webhook_port}{path}"
    return objects


def render(folder: Path) -> list[Object]:
    """Return the objects of a kustomization."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def scheduler_configuration() -> Object:
    """Return the KubeSchedulerConfiguration of the manifests without what is particular to this cluster."""
    (item,) = [item for item in render(BASE) if item["kind"] == "ConfigMap"]
    config: Object = yaml.safe_load(item["data"]["config.yaml"])
    return {key: value for key, value in config.items() if key not in {"apiVersion", "kind"}}


def _import_client(cluster: Cluster) -> None:
    """Give the node the image of the small HIP program, linked to the stand-in for AMD's runtime."""
    with tempfile.TemporaryDirectory(prefix="hip-client-") as folder:
        hip = compile_standin_hip(Path(folder))
        program = compile_client(Path(folder) / "client", hip)
        command = ["/bin/client", "hold"]
        archive = client_image(CLIENT_IMAGE, {"/bin/client": program}, command, archive=Path(folder) / "client.tar")
        cluster.import_image(archive)


def _offers(node: Object | None, gpus: int) -> bool:
    """Whether the node offers these GPUs both to kube-scheduler (slots) and to the extender (registration)."""
    if node is None:
        return False
    registered = (node["metadata"].get("annotations") or {}).get(NODE_REGISTER, "[]")
    return len(yaml.safe_load(registered)) == gpus and _slots(node) == str(gpus * SLOTS)


def _slots(node: Object | None) -> str:
    """How many containers with GPUs the kubelet would take."""
    slots: str = node["status"].get("allocatable", {}).get(RESOURCE_GPU, "0") if node else ""
    return slots
