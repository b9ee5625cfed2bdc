"""The product as its manifests install it: in its own pods, under its own service accounts.

manifests/base is applied through a kustomization, as README.md tells users to. What the kustomization changes is what
a one-machine cluster cannot give, each with its reason at its place in `overlay`. Unchanged are the images' names, the
commands, ports, probes, numbers of replicas, security contexts, roles, the Service and the webhooks' reference to it.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from protocol.names import NODE_REGISTER, RESOURCE_GPU
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.images import client_image
from tests.cluster.network import node_address
from tests.cluster.product import BASE, CLIENT_IMAGE, MADE_MI300X, NAMESPACE, SLOTS, Product, render
from tests.cluster.python_image import product_image
from tests.shim.build import compile_client, compile_standin_hip
from tests.trees import make_tree

Object = dict[str, Any]

# On all addresses, for pods reach the node's but not its loopback.
APISERVER_ARGS: Final = ("--bind-address=0.0.0.0",)
# A name in the API server's certificate.
API_HOST: Final = "kubernetes.default.svc"
WORKLOADS: Final = ("deployment/webhook", "deployment/scheduler", "daemonset/plugin")
KUBE_SCHEDULER: Final = "registry.k8s.io/kube-scheduler"
READY_TIMEOUT: Final = 100


class Deployed(Product):
    """The product's pods on a cluster, made by `deployed`; its GPU is the made one."""

    def rollout(self, workload: str) -> None:
        """Wait until all pods of a workload are of its newest template, and ready."""
        arguments = ("rollout", "status", workload, "--namespace", NAMESPACE, f"--timeout={READY_TIMEOUT}s")
        done = self.cluster.kubectl(*arguments, check=False)
        if done.returncode:
            raise ClusterError(f"{workload}: {done.stdout}{done.stderr}\n{self._about()}")

    def wait_for_gpu(self) -> None:
        """Wait until kube-scheduler sees the GPU's slots, and the extender its registration."""
        self.cluster.wait_for("/api/v1/nodes", self.cluster.node_name, _offers_gpu)

    def service_pods(self, component: str = "") -> list[Object]:
        """Return the pods of the product, or of one of its parts, that are not being deleted."""
        chosen = f"?labelSelector=app.kubernetes.io/component={component}" if component else ""
        listing = self.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/pods{chosen}")
        assert listing is not None
        return [pod for pod in listing["items"] if "deletionTimestamp" not in pod["metadata"]]

    def _about(self) -> str:
        commands = [("describe", "pods"), *(("logs", one, "--all-containers", "--tail=30") for one in WORKLOADS)]
        done = [self.cluster.kubectl(*words, "--namespace", NAMESPACE, check=False) for words in commands]
        return "\n".join(one.stdout + one.stderr for one in done)


@contextmanager
def deployed(cluster: Cluster) -> Iterator[Deployed]:
    """Install the product on a cluster that was started with APISERVER_ARGS. It ends with the cluster."""
    product = Deployed(cluster)
    make_tree(product.tree, [MADE_MI300X])
    with tempfile.TemporaryDirectory(prefix="manifests-") as name:
        folder = Path(name)
        _import_images(cluster, folder)
        install(product, folder)
    for workload in WORKLOADS:
        product.rollout(workload)
    product.wait_for_gpu()
    yield product


def install(product: Deployed, folder: Path) -> str:
    """`kubectl apply -k` what a user would write, and return kubectl's words. The folder is for the kustomization."""
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay(product, folder)))
    return product.cluster.kubectl("apply", "--kustomize", folder).stdout


def overlay(product: Deployed, folder: Path) -> Object:
    """Return the kustomization that makes manifests/base fit this cluster."""
    cluster = product.cluster
    workloads = [item for item in render(BASE) if item["kind"] in {"Deployment", "DaemonSet"}]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(BASE.resolve(), folder.resolve())],
        # As the manifests ask for: kube-scheduler in the cluster's version.
        "images": [{"name": KUBE_SCHEDULER, "newTag": _kube_scheduler_tag(cluster)}],
        "patches": [
            *(_merge(item["kind"], item["metadata"]["name"], _api_address(cluster, item)) for item in workloads),
            *_older_kubernetes(cluster),
            # The machine's /usr/local is not the cluster's own: the library's folder is in the cluster's state folder.
            _merge("DaemonSet", "plugin", _host_path("library", product.library_dir, "DirectoryOrCreate")),
            _argument("Deployment", "webhook", f"--library-dir={product.library_dir}"),
            # Nor is its /run: the kubelet has to find the pods' folders under the path that the plugin names.
            _merge(
                "DaemonSet", "plugin", _host_path("here", product.run_dir, "DirectoryOrCreate", mounted_in="plugin")
            ),
            _argument("DaemonSet", "plugin", f"--run-dir={product.run_dir}"),
            # There is no GPU in the machine's /sys and /dev, which stay mounted: the made ones are told to the plugin.
            # Its own path is also the one that the kubelet finds the devices by.
            _merge("DaemonSet", "plugin", _host_path("made", product.tree, "Directory", mounted_in="plugin")),
            _argument("DaemonSet", "plugin", f"--sysfs-root={product.tree / 'sys'}"),
            _argument("DaemonSet", "plugin", f"--dev-root={product.tree / 'dev'}"),
        ],
    }


def _api_address(cluster: Cluster, workload: Object) -> Object:
    """Where the API server is: without kube-proxy and DNS the Service `kubernetes` is of no use."""
    env = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": API_HOST},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(urlsplit(cluster.server).port)},
    ]
    containers = [{"name": one["name"], "env": env} for one in workload["spec"]["template"]["spec"]["containers"]]
    return {"hostAliases": [{"ip": node_address(), "hostnames": [API_HOST]}], "containers": containers}


def _older_kubernetes(cluster: Cluster) -> list[Object]:
    """What an older cluster wants in another version, as the comments in the manifests say."""
    patches = []
    if cluster.binaries.minor < 25:
        (item,) = [item for item in render(BASE) if item["kind"] == "ConfigMap"]
        version = "kubescheduler.config.k8s.io/v1"
        older = f"{version}beta{1 if cluster.binaries.minor < 22 else 2}"
        config = item["data"]["config.yaml"].replace(f"apiVersion: {version}\n", f"apiVersion: {older}\n")
        patches.append(_replace("ConfigMap", "/data/config.yaml", config))
    if cluster.binaries.minor < 21:
        patches.append(_replace("PodDisruptionBudget", "/apiVersion", "policy/v1beta1"))
    return patches


def _host_path(name: str, path: Path, kind: str, *, mounted_in: str = "") -> Object:
    spec: Object = {"volumes": [{"name": name, "hostPath": {"path": str(path), "type": kind}}]}
    if mounted_in:
        spec["containers"] = [{"name": mounted_in, "volumeMounts": [{"name": name, "mountPath": str(path)}]}]
    return spec


def _merge(kind: str, name: str, pod_spec: Object) -> Object:
    """Merge into a workload's pod template."""
    target = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}}
    return {"patch": json.dumps({**target, "spec": {"template": {"spec": pod_spec}}})}


def _argument(kind: str, name: str, argument: str) -> Object:
    """Add an argument to a workload's only container."""
    operation = {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": argument}
    return {"target": {"kind": kind, "name": name}, "patch": json.dumps([operation])}


def _replace(kind: str, path: str, value: str) -> Object:
    """Replace a value in every object of a kind."""
    return {"target": {"kind": kind}, "patch": json.dumps([{"op": "replace", "path": path, "value": value}])}


def _import_images(cluster: Cluster, folder: Path) -> None:
    """Give the node the images under the names by which the manifests ask for them."""
    (name,) = {
        container["image"]
        for item in render(BASE)
        if item["kind"] in {"Deployment", "DaemonSet"}
        for container in item["spec"]["template"]["spec"]["containers"]
        if not container["image"].startswith(KUBE_SCHEDULER)
    }
    cluster.import_image(product_image(name, archive=folder / "product.tar"))
    scheduler = {"/usr/local/bin/kube-scheduler": cluster.binaries.scheduler}
    name = f"{KUBE_SCHEDULER}:{_kube_scheduler_tag(cluster)}"
    cluster.import_image(client_image(name, scheduler, ["kube-scheduler"], archive=folder / "scheduler.tar"))
    hip = compile_standin_hip(folder)
    client = {"/bin/client": compile_client(folder / "client", hip)}
    cluster.import_image(client_image(CLIENT_IMAGE, client, ["/bin/client", "hold"], archive=folder / "client.tar"))


def _kube_scheduler_tag(cluster: Cluster) -> str:
    return f"v1.{cluster.binaries.minor}.0"


def _offers_gpu(node: Object | None) -> bool:
    if node is None:
        return False
    registered = yaml.safe_load((node["metadata"].get("annotations") or {}).get(NODE_REGISTER, "[]"))
    return len(registered) == 1 and node["status"].get("allocatable", {}).get(RESOURCE_GPU) == str(SLOTS)
