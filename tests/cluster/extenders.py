"""Extender processes on a real API server, with the rights that the manifests give them."""

import time
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.cluster.cluster import Cluster
from tests.cluster.network import free_ports
from tests.cluster.process import Service
from tests.cluster.product import BASE, NAMESPACE, render
from tests.command import COMMAND

_RIGHTS: Final = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


class Replica:
    """One extender process, where kube-scheduler and the kubelet reach it."""

    def __init__(self, name: str, service: Service, port: int, health_port: int) -> None:
        self.name = name
        self.service = service
        self.url = f"http://127.0.0.1:{port}/"
        self.health = f"http://127.0.0.1:{health_port}/"


class Extenders:
    """The scheduler's service account on a cluster, and extenders that use it; the name of each is its hostname too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._number = 0
        cluster.apply([item for item in render(BASE) if item["kind"] in _RIGHTS])
        cluster.wait_for_service_account(NAMESPACE, "scheduler")
        self.kubeconfig = cluster.kubeconfig_for_service_account(NAMESPACE, "scheduler")

    def start(self, name: str, *options: str, kubeconfig: Path | None = None) -> Replica:
        """Start an extender and wait until it has read the cluster."""
        port, health = free_ports(2)
        self._number += 1
        process = f"extender-{name}-{self._number}"
        arguments = [
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--port={port}",
            f"--health-port={health}",
            f"--hostname={name}",
            *options,
        ]
        service = self.cluster.start_process(process, [*COMMAND, "scheduler", *arguments])
        replica = Replica(process, service, port, health)
        service.wait_ready(f"{replica.health}readyz")
        return replica

    def kill(self, replica: Replica) -> float:
        """Kill it, without a chance to clean up, and return when that was, monotonic seconds."""
        self.cluster.stop_process(replica.name, grace=0)
        return time.monotonic()

    def stop(self, replica: Replica) -> None:
        """End it as the kubelet does, and wait for its end."""
        self.cluster.stop_process(replica.name)


async def ask(http: aiohttp.ClientSession, replica: Replica, verb: str, body: object) -> Any:
    """Return the answer of one of the verbs."""
    async with http.post(f"{replica.url}{verb}", json=body) as response:
        assert response.status == 200
        return await response.json()


async def state_of(http: aiohttp.ClientSession, replica: Replica) -> str:
    """Return `active` or `standby`."""
    async with http.get(f"{replica.health}readyz") as response:
        assert response.status == 200
        return (await response.text()).strip()
