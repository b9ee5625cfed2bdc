"""A real one-machine Kubernetes that is there for one block of code and leaves nothing behind."""

import json
import os
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.api import Object, Predicate
from tests.cluster.binaries import Binaries, find_binaries
from tests.cluster.cgroups import Branch
from tests.cluster.conditions import describe, has_condition, is_hopeless, pod_predicate
from tests.cluster.control_plane import API_TIMEOUT, ControlPlane, write_kubeconfig
from tests.cluster.errors import ClusterError, ClusterUnavailable, tail
from tests.cluster.janitor import Janitor
from tests.cluster.node import KUBELET, NODE_NAME, Node
from tests.cluster.process import GRACE, READY_TIMEOUT, Ready, Service, Supervisor

# Unix socket paths are limited to 107 bytes, so the state folder must not follow a long TMPDIR. It must not lie
# in a folder either that the node's namespace overlays.
STATE_PARENT = "/tmp"
KUBECTL_TIMEOUT = 120.0
TOKEN_SECONDS = 24 * 3600


class Cluster:
    """etcd, API server, controller manager, scheduler, and unless `node` is false containerd and a kubelet.

    Args:
        node: whether pods can run.
        kubernetes: a release of `binaries.RELEASES`; by default what `find_binaries` finds.
        apiserver_args: more arguments for kube-apiserver.
        log_folder: where the logs go; by default into the state folder, which vanishes at the end.
    """

    node_name = NODE_NAME
    state: Path
    binaries: Binaries
    _branch: Branch
    _janitor: Janitor
    _control_plane: ControlPlane

    def __init__(
        self,
        *,
        node: bool = True,
        kubernetes: str = "",
        apiserver_args: Sequence[str] = (),
        log_folder: Path | None = None,
    ) -> None:
        self._kubernetes = kubernetes
        self._with_node = node
        self._apiserver_args = tuple(apiserver_args)
        self._log_folder = log_folder
        self._node: Node | None = None
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; return when the node is Ready and pods can be created."""
        if os.geteuid() != 0:
            raise ClusterUnavailable("a cluster needs root: it makes namespaces, mounts and cgroups")
        self.binaries = find_binaries(self._kubernetes)
        self.state = Path(tempfile.mkdtemp(prefix="amdvgpu-", dir=STATE_PARENT))
        self._branch = Branch(f"amdvgpu-{secrets.token_hex(4)}")
        self._janitor = Janitor(self.state, self._branch)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self._branch.create()
        logs = self._log_folder or self.state / "log"
        logs.mkdir(parents=True, exist_ok=True)
        supervisor = self._supervisor = Supervisor(logs, self._branch.join_file)
        env = _daemon_environment(self.state)
        self._control_plane = ControlPlane(self.state, self.binaries, supervisor, env)
        apiserver = self._control_plane.start_api(self._apiserver_args)
        kubelet = None
        if self._with_node:
            # The API server needs seconds to be ready, and cAdvisor in the kubelet looks for Docker as long.
            self._node = Node(self.state, self.binaries, supervisor, env, self._branch.name)
            self._node.start_runtime()
            kubelet = self._node.start_kubelet(self._control_plane)
        apiserver.wait_ready(self._control_plane.api.is_ready, API_TIMEOUT)
        waiting = [self._control_plane.start_controllers(), self._control_plane.start_scheduler("kube-scheduler")]
        for service, url in waiting:
            service.wait_ready(url)
        self.wait_for_service_account("default")
        if self._node and kubelet:
            self._node.wait_healthy(kubelet)
            self.wait_for("/api/v1/nodes", NODE_NAME, lambda node: node is not None and has_condition(node, "Ready"))

    def stop(self) -> None:
        """End the children in reverse order and have everything else removed."""
        try:
            if self._supervisor:
                self._supervisor.stop_all()
        finally:
            self._janitor.finish()

    def check(self) -> None:
        """Raise ClusterError, with the end of its log, if a daemon or a started process has died."""
        self._running.check()

    # Where things are

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self._control_plane.kubeconfig

    @property
    def server(self) -> str:
        return self._control_plane.server

    @property
    def ca_file(self) -> Path:
        return self._control_plane.ca_file

    @property
    def log_folder(self) -> Path:
        return self._running.logs

    @property
    def cgroup(self) -> str:
        """The cluster's own cgroup, directly below the root of each hierarchy."""
        return self._branch.name

    @property
    def device_plugin_dir(self) -> Path:
        """Where a device plugin serves its socket and finds kubelet.sock; good outside and inside the node."""
        return self.state / "kubelet" / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        return self.state / "kubelet" / "pod-resources" / "kubelet.sock"

    # Objects

    def kubectl(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002 - as subprocess.run has it
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, as the administrator or as the kubeconfig's user; a failure raises ClusterError if `check`."""
        self.check()
        argv = ["kubectl", f"--kubeconfig={kubeconfig or self.kubeconfig}", f"--cache-dir={self.state / 'kubectl'}"]
        done = subprocess.run(
            [*argv, *args],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=KUBECTL_TIMEOUT,
            stdin=subprocess.DEVNULL if input is None else None,
        )
        if check and done.returncode:
            self.check()
            raise ClusterError(f"kubectl {' '.join(map(str, args))}: {done.stderr.strip()}")
        return done

    def apply(self, source: str | Path | Object | Sequence[Object]) -> None:
        """Apply a file or folder of manifests, YAML text, an object or a list of objects."""
        if isinstance(source, Path):
            self.kubectl("apply", "--filename", source)
            return
        if not isinstance(source, str):
            items = [source] if isinstance(source, dict) else list(source)
            source = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.kubectl("apply", "--filename", "-", input=source)

    def get(self, path: str) -> Object | None:
        """Return what the API server has at a path such as /api/v1/nodes/node-a; None if there is nothing."""
        self.check()
        return self._control_plane.api.get(path)

    def node(self) -> Object:
        """Return the node as it is now."""
        node = self.get(f"/api/v1/nodes/{NODE_NAME}")
        if node is None:
            raise ClusterError("the cluster has no node")
        return node

    def create_namespace(self, name: str) -> None:
        """Create a namespace in which pods can be created at once."""
        self.kubectl("create", "namespace", name)
        self.wait_for_service_account(name)

    def wait_for(self, collection: str, name: str, predicate: Predicate, timeout: float = 60.0) -> Object | None:
        """Watch one object of a collection such as /api/v1/nodes until it fits; return it (None: it is gone)."""
        fits, last = self._control_plane.api.wait(collection, name, predicate, timeout, self.check)
        if not fits:
            raise ClusterError(f"{collection}/{name} is not as awaited after {timeout:.0f} s: {describe(last)}")
        return last

    def wait_for_service_account(self, namespace: str, name: str = "default") -> None:
        """Wait until a service account has its token, without which pods are refused."""
        collection = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        with_token = self.binaries.minor < 24
        self.wait_for(collection, name, lambda one: one is not None and (bool(one.get("secrets")) or not with_token))

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a fresh token of a service account; return its path."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        token = self._control_plane.api.post(path, request)["status"]["token"]
        file = self.state / f"{namespace}.{name}.kubeconfig"
        return write_kubeconfig(file, self.server, self.ca_file, {"token": token})

    # Pods

    def wait_for_pod(
        self, namespace: str, name: str, condition: str | Predicate = "Ready", timeout: float = 60.0
    ) -> Object | None:
        """Watch a pod until it fits; return it (None for `Deleted`).

        A condition is a phase, `Deleted`, a condition type such as `Ready` or `PodScheduled`, or a function of the
        pod (None: there is no such pod). A pod that has ended otherwise fails at once.
        """
        named = condition if isinstance(condition, str) else ""
        fits = pod_predicate(condition) if isinstance(condition, str) else condition
        collection = f"/api/v1/namespaces/{namespace}/pods"
        pod = None
        try:
            pod = self.wait_for(
                collection, name, lambda one: fits(one) or (bool(named) and is_hopeless(one, named)), timeout
            )
        except ClusterError as error:
            raise ClusterError(f"{error}\n{self._about_pod(namespace, name)}") from error
        if not fits(pod):
            raise ClusterError(f"pod {name} ended: {describe(pod)}\n{self._about_pod(namespace, name)}")
        return pod

    def logs(self, namespace: str, pod: str, container: str | None = None) -> str:
        chosen = [f"--container={container}"] if container else []
        return self.kubectl("logs", f"--namespace={namespace}", pod, *chosen).stdout

    def exec(
        self, namespace: str, pod: str, *argv: str, container: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a container."""
        chosen = [f"--container={container}"] if container else []
        return self.kubectl("exec", f"--namespace={namespace}", pod, *chosen, "--", *argv, check=check)

    def import_image(self, archive: Path) -> None:
        """Give the node an image from a docker-archive (see images.py)."""
        self._the_node.import_image(archive)

    def restart_kubelet(self) -> None:
        self._the_node.restart_kubelet()

    def make_device(self, name: str, major: int = 1, minor: int = 3) -> Path:
        """Make a character device in the state folder, by default one that behaves like /dev/null."""
        path = self.state / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        path.chmod(0o666)
        return path

    # Processes

    def start_process(
        self,
        name: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        *,
        ready: Ready | None = None,
        timeout: float = READY_TIMEOUT,
        cwd: Path | None = None,
        grace: float = GRACE,
    ) -> Service:
        """Start a further process that lives as long as the cluster, or until `stop_process`.

        Args:
            name: names the log, `<name>.log` in the log folder.
            argv: the command.
            env: added to this process's environment.
            ready: a URL that answers with success (no matter who signed its certificate), or a function.
            timeout: seconds until it must be ready; if it is not, it is killed.
            cwd: its working folder.
            grace: seconds between SIGTERM and SIGKILL.
        """
        self.check()
        service = self._running.start(name, argv, env={**os.environ, **(env or {})}, cwd=cwd, grace=grace)
        if ready is not None:
            try:
                service.wait_ready(ready, timeout)
            except ClusterError:
                self._running.stop(name, 0)
                raise
        return service

    def stop_process(self, name: str, grace: float | None = None) -> None:
        """End a process; a grace time of 0 kills it."""
        self._running.stop(name, grace)

    def start_scheduler(self, name: str, config: Mapping[str, object], kubeconfig: Path | None = None) -> Service:
        """Start another kube-scheduler; apiVersion, kind and connection of its configuration are filled in."""
        service, url = self._control_plane.start_scheduler(name, config, kubeconfig)
        service.wait_ready(url)
        return service

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise ClusterError("the cluster has not been started")
        return self._supervisor

    @property
    def _the_node(self) -> Node:
        if self._node is None:
            raise ClusterError("the cluster was started without a node")
        return self._node

    def _about_pod(self, namespace: str, name: str) -> str:
        events = self.kubectl(
            "get", "events", f"--namespace={namespace}", f"--field-selector=involvedObject.name={name}", check=False
        )
        return f"{events.stdout}{events.stderr}\n{tail(self.log_folder / f'{KUBELET}.log')}"


def _daemon_environment(state: Path) -> dict[str, str]:
    """Nothing of the caller's environment: a proxy or a kubeconfig there would lead the daemons astray."""
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(state)}
