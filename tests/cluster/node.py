"""containerd and the kubelet, in a namespace of their own, and the images that containers start from."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from string import Template

from tests.cluster.binaries import Binaries
from tests.cluster.control_plane import NO_GRACE, ControlPlane, certificate_user, write_kubeconfig
from tests.cluster.errors import ClusterError, tail
from tests.cluster.images import PAUSE_IMAGE, busybox_image, pause_image
from tests.cluster.namespace import NodeNamespace
from tests.cluster.network import LOOPBACK, free_pod_subnet, free_ports, node_address
from tests.cluster.packages import CNI_FOLDER
from tests.cluster.process import Service, Supervisor

NODE_NAME = "node-a"
KUBELET = "kubelet"
CONTAINERD = "containerd"

# Without restrict_oom_score_adj every sandbox dies where the capability CAP_SYS_RESOURCE is missing. The plugins
# that are off would make folders on the host or look for file systems that are not there.
_CONTAINERD = Template("""\
version = 2
root = "$folder/root"
state = "$folder/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni"
    conf_dir = "$folder/cni"
""")


class Node:
    """The one node, `node-a`."""

    def __init__(
        self, state: Path, binaries: Binaries, supervisor: Supervisor, env: Mapping[str, str], cgroup: str
    ) -> None:
        self._state = state
        self._binaries = binaries
        self._supervisor = supervisor
        self._env = env
        self._cgroup = cgroup
        self._namespace = NodeNamespace(state, supervisor, env)
        self._folder = state / "containerd"
        self._socket = self._folder / "containerd.sock"
        self._address = node_address()
        self._port, self._health_port = free_ports(2)
        self.kubelet_folder = state / "kubelet"

    def start_runtime(self) -> None:
        """Start containerd and give it the images that every cluster has."""
        binds = {
            self.kubelet_folder: "/var/lib/kubelet",
            self._state / "pod-logs": "/var/log/pods",
            self._state / "container-logs": "/var/log/containers",
        }
        for folder in (*binds, self._folder / "cni", self._state / "volume-plugins"):
            folder.mkdir(parents=True)
        self._namespace.start(binds)
        self._write_containerd_config()
        containerd = self._namespace.run(CONTAINERD, [CONTAINERD, "--config", self._folder / "config.toml"], NO_GRACE)
        containerd.wait_ready(self._socket.exists)
        for archive in (
            pause_image(archive=self._state / "pause.tar"),
            busybox_image(archive=self._state / "busybox.tar"),
        ):
            self.import_image(archive)

    def import_image(self, archive: Path) -> None:
        argv = ["ctr", f"--address={self._socket}", "--namespace=k8s.io", "images", "import", str(archive)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=dict(self._env), timeout=120)
        if done.returncode:
            log = self._state / "log" / f"{CONTAINERD}.log"
            raise ClusterError(f"importing {archive} failed: {done.stderr}\n{tail(log)}")

    def _prepare_kubelet(self, control_plane: ControlPlane) -> None:
        """Write the kubelet's identity and configuration."""
        identity = control_plane.credentials.authority.issue(
            "kubelet", f"system:node:{NODE_NAME}", group="system:nodes"
        )
        user = certificate_user(identity)
        write_kubeconfig(self._state / "kubelet.kubeconfig", control_plane.server, control_plane.ca_file, user)
        config = self._kubelet_config(control_plane.ca_file)
        (self._state / "kubelet.json").write_text(json.dumps(config, indent=1))
        (self._state / "resolv.conf").write_text(f"nameserver {LOOPBACK}\n")

    def start_kubelet(self, control_plane: ControlPlane) -> Service:
        """Start the kubelet; it waits for the API server by itself."""
        self._prepare_kubelet(control_plane)
        return self._run_kubelet()

    def _run_kubelet(self) -> Service:
        runtime = ["--container-runtime=remote"] if self._binaries.minor < 24 else []
        argv: list[str | Path] = [
            self._binaries.kubelet,
            f"--kubeconfig={self._state / 'kubelet.kubeconfig'}",
            f"--config={self._state / 'kubelet.json'}",
            f"--container-runtime-endpoint=unix://{self._socket}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={self._address}",
            "--root-dir=/var/lib/kubelet",
            *runtime,
        ]
        return self._namespace.run(KUBELET, argv, NO_GRACE)

    def wait_healthy(self, kubelet: Service) -> None:
        kubelet.wait_ready(f"http://{LOOPBACK}:{self._health_port}/healthz")

    def restart_kubelet(self) -> None:
        """Replace the kubelet's process; containers go on running."""
        self._supervisor.stop(KUBELET)
        self.wait_healthy(self._run_kubelet())

    def _write_containerd_config(self) -> None:
        (self._folder / "config.toml").write_text(
            _CONTAINERD.substitute(folder=self._folder, socket=self._socket, pause=PAUSE_IMAGE, cni=CNI_FOLDER)
        )
        ipam = {"type": "host-local", "subnet": free_pod_subnet(), "routes": [{"dst": "0.0.0.0/0"}]}
        plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}]
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
        (self._folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))

    def _kubelet_config(self, ca_file: Path) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._address,
            "port": self._port,
            "readOnlyPort": 0,
            "healthzBindAddress": LOOPBACK,
            "healthzPort": self._health_port,
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(ca_file)}},
            "authorization": {"mode": "Webhook"},
            "cgroupRoot": f"/{self._cgroup}",
            "cgroupDriver": "cgroupfs",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "resolvConf": str(self._state / "resolv.conf"),
            "volumePluginDir": str(self._state / "volume-plugins"),
            # Conditions and device counts reach the node's status within a second.
            "nodeStatusUpdateFrequency": "1s",
            # The machine's disk is not this node's own, so its fill level must not evict pods or delete images.
            "evictionHard": dict.fromkeys(
                ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
            ),
            "imageGCHighThresholdPercent": 100,
            # Newer kubelets refuse a machine with the first version of cgroups, unless told not to.
            **({"failCgroupV1": False} if self._binaries.minor >= 31 else {}),
        }
