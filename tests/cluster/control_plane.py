"""etcd, the API server, the controller manager and the default scheduler, all on loopback."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.api import ApiClient
from tests.cluster.binaries import Binaries
from tests.cluster.network import LOOPBACK, free_port, free_ports
from tests.cluster.pki import SERVER_NAMES, Authority, KeyPair, write_signing_keys
from tests.cluster.process import Service, Supervisor

SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
API_TIMEOUT = 90.0
# The daemons of a throw-away cluster have nothing to save, so none of them gets time to end.
NO_GRACE = 0.0


@dataclass(frozen=True)
class Credentials:
    """The files by which the cluster's parts know each other."""

    authority: Authority
    server: KeyPair
    admin: KeyPair
    signing_key: Path
    verifying_key: Path

    @classmethod
    def create(cls, folder: Path) -> "Credentials":
        authority = Authority(folder)
        server = authority.issue("apiserver", "kube-apiserver", hosts=(*SERVER_NAMES, LOOPBACK, FIRST_SERVICE))
        admin = authority.issue("admin", "admin", group="system:masters")
        return cls(authority, server, admin, *write_signing_keys(folder))


def write_kubeconfig(path: Path, server: str, ca_file: Path, user: Mapping[str, str]) -> Path:
    """Write a kubeconfig for one user: certificate files or a token."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))
    return path


def certificate_user(pair: KeyPair) -> dict[str, str]:
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}


class ControlPlane:
    """Everything but the node."""

    def __init__(self, state: Path, binaries: Binaries, supervisor: Supervisor, env: Mapping[str, str]) -> None:
        self._state = state
        self._binaries = binaries
        self._supervisor = supervisor
        self._env = env
        self.credentials = Credentials.create(state / "pki")
        self.ca_file = self.credentials.authority.file
        self._api_port, self._etcd_port, self._peer_port = free_ports(3)
        self.server = f"https://{LOOPBACK}:{self._api_port}"
        admin = certificate_user(self.credentials.admin)
        self.kubeconfig = write_kubeconfig(state / "kubeconfig", self.server, self.ca_file, admin)
        self.api = ApiClient(self.server, self.ca_file, self.credentials.admin)

    def start_api(self, extra: Sequence[str] = ()) -> Service:
        """Start etcd and the API server; the latter is not ready yet."""
        etcd = self._start("etcd", self._etcd())
        etcd.wait_ready(f"http://{LOOPBACK}:{self._etcd_port}/health")
        return self._start("kube-apiserver", [self._binaries.apiserver, *self._apiserver(), *extra])

    def start_controllers(self) -> tuple[Service, str]:
        """Start the controller manager; return it with the address that tells its health."""
        port = free_port()
        arguments = [
            f"--root-ca-file={self.ca_file}",
            f"--service-account-private-key-file={self.credentials.signing_key}",
            # Quotas are recomputed by the clock as well; a test should not wait minutes for that.
            "--resource-quota-sync-period=10s",
            *self._controller("--port=0", port),
        ]
        service = self._start("kube-controller-manager", [self._binaries.controller_manager, *arguments])
        return service, f"https://{LOOPBACK}:{port}/healthz"

    def start_scheduler(
        self, name: str, config: Mapping[str, object] | None = None, kubeconfig: Path | None = None
    ) -> tuple[Service, str]:
        """Start a kube-scheduler with its own configuration file (apiVersion and connection are filled in)."""
        port, plain_port = free_ports(2)
        whole = {
            "apiVersion": f"kubescheduler.config.k8s.io/{'v1' if self._binaries.minor >= 25 else 'v1beta1'}",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig or self.kubeconfig)},
            **(config or {}),
        }
        if self._binaries.has_insecure_ports:
            # They cannot be turned off in a configuration file, only be moved away from their usual place.
            plain = f"{LOOPBACK}:{plain_port}"
            whole = {"healthzBindAddress": plain, "metricsBindAddress": plain, **whole}
        file = self._state / f"{name}.json"
        file.write_text(json.dumps(whole, indent=1))
        arguments = [f"--config={file}", f"--bind-address={LOOPBACK}", f"--secure-port={port}"]
        service = self._start(name, [self._binaries.scheduler, *arguments])
        return service, f"https://{LOOPBACK}:{port}/healthz"

    def _start(self, name: str, argv: Sequence[str | Path]) -> Service:
        return self._supervisor.start(name, argv, env=self._env, cwd=self._state, grace=NO_GRACE)

    def _etcd(self) -> list[str]:
        client, peer = (f"http://{LOOPBACK}:{port}" for port in (self._etcd_port, self._peer_port))
        return [
            "etcd",
            f"--data-dir={self._state / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]

    def _apiserver(self) -> list[str]:
        files = self.credentials
        return [
            f"--etcd-servers=http://{LOOPBACK}:{self._etcd_port}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self._api_port}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={files.server.certificate}",
            f"--tls-private-key-file={files.server.key}",
            f"--client-ca-file={self.ca_file}",
            f"--kubelet-client-certificate={files.admin.certificate}",
            f"--kubelet-client-key={files.admin.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={files.verifying_key}",
            f"--service-account-signing-key-file={files.signing_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,ResourceQuota",
            "--enable-aggregator-routing=true",
            "--allow-privileged=true",
        ]

    def _controller(self, no_insecure_port: str, port: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            "--leader-elect=false",
            *([no_insecure_port] if self._binaries.has_insecure_ports else []),
        ]
