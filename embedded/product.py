"""The product's own services on the stand-ins, in this process: webhook, extender, a device plugin for each node.

They run with the clients, service accounts, manifests and options that they have on a real cluster. What is short are
their times for certificates: a demonstration cannot wait minutes for each step of a rotation.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from certs import tls
from certs.keeper import CertificateKeeper
from certs.settings import CertSettings, Times
from embedded.apiserver.identity import ADMIN, User
from embedded.apiserver.server import ApiServer, serving
from embedded.kubelet.kubelet import Kubelet, KubeletSettings
from embedded.kubelet.runtime import Runtime
from embedded.kubescheduler.config import read_config
from embedded.kubescheduler.scheduler import KubeScheduler
from embedded.watching import until
from kube import paths
from kube.client import Json, KubeClient
from plugin.lifecycle import run as run_plugin
from plugin.settings import PluginSettings
from protocol.devices import decode_register
from protocol.names import NODE_REGISTER, RESOURCE_GPU
from protocol.pods import annotations
from scheduler.leader import LeaderSettings
from scheduler.server import SchedulerSettings
from scheduler.server import run as run_extender
from webhook.app import make_app
from webhook.hints import ClusterHints, watch_nodes
from webhook.server import serve
from webhook.settings import ServerSettings, WebhookSettings, own_users

log = logging.getLogger(__name__)

NAMESPACE: Final = "amd-vgpu"
SHORT_TIMES: Final = Times(
    settle=timedelta(seconds=1), retention=timedelta(seconds=1), absence=timedelta(seconds=5), check=1, lease=2
)
_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.05
_OWN_END_SECONDS: Final = 1.0
_END_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's machine: its name, and where its sysfs and devices are."""

    node: str
    sysfs_root: Path
    dev_root: Path
    gpus: int


@dataclass(frozen=True, slots=True)
class Setup:
    """What the cluster is made of.

    Attributes:
        state: folder for everything that is written; short, as sockets lie in it.
        manifests: folder of the product's manifests.
        library: the audit library, as in the plugin's image.
        machines: one for each node.
        runtime: starts the containers of all nodes.
        times: for certificates.
    """

    state: Path
    manifests: Path
    library: Path
    machines: Sequence[Machine]
    runtime: Runtime
    times: Times = SHORT_TIMES

    @property
    def library_dir(self) -> Path:
        """Where the library is installed on the nodes, which share one file system."""
        return self.state / "vgpu"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster with the product on it.

    Attributes:
        api: the API server.
        client: the administrator's.
    """

    api: ApiServer
    client: KubeClient


@asynccontextmanager
async def running(setup: Setup) -> AsyncIterator[Cluster]:
    """Run a cluster with the product on it; yields it when pods can be created.

    Raises:
        ExceptionGroup: a part of it failed.
    """
    services: dict[tuple[str, str], tuple[str, int]] = {}
    async with serving(services) as api, AsyncExitStack() as stack:
        kubeconfig = api.write_kubeconfig(setup.state / "admin.kubeconfig", ADMIN)
        client = await stack.enter_async_context(KubeClient.connect(kubeconfig))
        await api.apply(_manifests(setup.manifests))
        cluster = Cluster(api, client)
        async with asyncio.TaskGroup() as tasks:
            parts = _Parts(setup, cluster, services, stack, tasks)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await parts.start()
                yield cluster
            finally:
                await parts.end()


class _Parts:
    """Everything that runs on a cluster.

    Args:
        setup: what it is made of.
        cluster: with its API server only.
        services: where Services listen; the webhook adds itself.
        stack: closes what is opened.
        tasks: should a part fail, all of the cluster does.
    """

    def __init__(
        self,
        setup: Setup,
        cluster: Cluster,
        services: dict[tuple[str, str], tuple[str, int]],
        stack: AsyncExitStack,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._setup = setup
        self._cluster = cluster
        self._services = services
        self._stack = stack
        self._tasks = tasks
        self._stop = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start everything, and return when pods can be created. Bound it with `asyncio.timeout`."""
        listening = asyncio.Event()
        self._run(self._webhook(await self._account("webhook"), listening))
        await self._start_scheduler(await self._account("scheduler"))
        plugin = await self._account("plugin")
        for machine in self._setup.machines:
            await self._start_node(machine, plugin)
        await listening.wait()
        for machine in self._setup.machines:
            await until(self._cluster.client, paths.NODES, machine.node, partial(offers, gpus=machine.gpus))

    async def end(self) -> None:
        """Let the services end by themselves, then cancel what is left."""
        self._stop.set()
        if self._running:
            await asyncio.wait(self._running, timeout=_OWN_END_SECONDS)
            for task in reversed(self._running):
                task.cancel()
            await asyncio.wait(self._running, timeout=_END_SECONDS)

    def _run(self, part: Coroutine[Any, Any, None]) -> None:
        self._running.append(self._tasks.create_task(part))

    async def _account(self, name: str) -> KubeClient:
        """Return a client of one of the product's service accounts."""
        user = User.service_account(NAMESPACE, name)
        kubeconfig = self._cluster.api.write_kubeconfig(self._setup.state / f"{name}.kubeconfig", user)
        return await self._stack.enter_async_context(KubeClient.connect(kubeconfig))

    async def _start_scheduler(self, client: KubeClient) -> None:
        port, health_port = free_ports(2)
        leader = LeaderSettings(NAMESPACE, kube_scheduler_lease="")
        settings = SchedulerSettings(port=port, health_port=health_port, leader=leader)
        self._run(run_extender(settings, client, self._stop))
        await until_ready(f"http://{_HOST}:{health_port}/readyz")
        config = scheduler_config(self._setup.manifests)
        for extender in config["extenders"]:
            extender["urlPrefix"] = f"http://{_HOST}:{port}"
        self._run(KubeScheduler(read_config(config), client).run())

    async def _start_node(self, machine: Machine, plugin: KubeClient) -> None:
        setup, ready = self._setup, asyncio.Event()
        kubelet = KubeletSettings(machine.node, setup.state / machine.node)
        self._run(Kubelet(kubelet, self._cluster.client, setup.runtime).run(ready))
        await ready.wait()
        settings = PluginSettings(
            node_name=machine.node,
            namespace=NAMESPACE,
            library=setup.library,
            library_dir=setup.library_dir,
            run_dir=kubelet.folder / "run",
            cgroup_root=kubelet.folder / "cgroup",
            pod_resources=kubelet.pod_resources,
            kubelet_dir=kubelet.plugins,
            sysfs_root=machine.sysfs_root,
            dev_root=machine.dev_root,
            poll_seconds=0.1,
            grace_seconds=0.5,
        )
        self._run(run_plugin(settings, plugin, self._stop))

    async def _webhook(self, client: KubeClient, listening: asyncio.Event) -> None:
        """Serve the webhook as its command does, and tell where it listens in its Service's place."""
        rules = WebhookSettings(library_dir=str(self._setup.library_dir), trusted_users=own_users(NAMESPACE))
        names = (f"webhook.{NAMESPACE}.svc",)
        certificates = CertSettings(NAMESPACE, "amd-vgpu-webhook-tls", "amd-vgpu", names, times=self._setup.times)
        context, hints, trusted = tls.new_context(), ClusterHints(), asyncio.Event()

        def announce(port: int) -> None:
            self._services[NAMESPACE, "webhook"] = (_HOST, port)
            listening.set()

        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(CertificateKeeper(client, certificates, context).run(trusted)),
                tasks.create_task(watch_nodes(client, hints)),
            ]
            await trusted.wait()
            settings = ServerSettings(_HOST, 0, drain_seconds=0, close_seconds=0.5)
            server = tasks.create_task(serve(make_app(rules, hints), context, settings, announce))
            await self._stop.wait()
            for task in (server, *background):
                task.cancel()


def _manifests(folder: Path) -> list[Mapping[str, Any]]:
    """Return the objects of the manifests that the API server here knows, and the namespace."""
    names = ("namespace.yaml", "webhook-configurations.yaml")
    return [item for name in names for item in yaml.safe_load_all((folder / name).read_text()) if item]


def scheduler_config(folder: Path) -> dict[str, Any]:
    """Return the KubeSchedulerConfiguration of the manifests."""
    (item,) = yaml.safe_load_all((folder / "scheduler-config.yaml").read_text())
    config: dict[str, Any] = yaml.safe_load(item["data"]["config.yaml"])
    return config


def offers(node: Json | None, gpus: int) -> bool:
    """Return whether a node offers so many GPUs, both to the extender and to kube-scheduler."""
    if node is None:
        return False
    registered = annotations(node).get(NODE_REGISTER, "[]")
    return len(decode_register(registered)) == gpus and RESOURCE_GPU in node["status"].get("allocatable", {})


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that were free a moment ago."""
    sockets = [socket.create_server((_HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


async def until_ready(url: str) -> None:
    """Return when a URL answers with success. Bound it with `asyncio.timeout`."""
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as response:
                    if response.ok:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(_RETRY_SECONDS)
