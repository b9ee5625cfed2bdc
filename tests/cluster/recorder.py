"""What a kube-scheduler says to its extender and hears from it: a proxy between the two that writes it down."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from kube import paths
from kube.client import KubeClient
from protocol.devices import DeviceInfo, encode_register
from protocol.names import NODE_REGISTER, RESOURCE_GPU
from tests.cluster.cluster import Cluster
from tests.cluster.network import LOOPBACK, free_port
from tests.cluster.product import scheduler_configuration
from tests.command import COMMAND

Json = dict[str, Any]

MODES = {"names": True, "nodes": False}
"""`nodeCacheCapable` by what kube-scheduler then sends."""


@dataclass(frozen=True)
class Exchange:
    """One call: the verb, the body that kube-scheduler sent, and what it got."""

    verb: str
    asked: Json
    answered: Any


class Recorder:
    """Passes calls on to the extender.

    Args:
        extender: its address, such as http://127.0.0.1:8888.
    """

    def __init__(self, extender: str) -> None:
        self.port = free_port()
        self.exchanges: list[Exchange] = []
        self._extender = extender
        self._changed = asyncio.Condition()

    @property
    def address(self) -> str:
        """The `urlPrefix` for kube-scheduler."""
        return f"http://{LOOPBACK}:{self.port}"

    def of(self, verb: str, pod: str) -> list[Exchange]:
        """Return the exchanges of a verb about a pod of this name."""
        return [one for one in self.exchanges if one.verb == verb and _pod_name(one.asked) == pod]

    async def last(self, verb: str, pod: str) -> Exchange:
        """Return the latest exchange of a verb about a pod, when there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.of(verb, pod))
        return self.of(verb, pod)[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(self._extender) as http:

            async def pass_on(request: web.Request) -> web.Response:
                body = await request.read()
                headers = {"Content-Type": request.content_type}
                async with http.post(request.path, data=body, headers=headers) as answer:
                    text = await answer.read()
                    verb = request.match_info["verb"]
                    self.exchanges.append(Exchange(verb, json.loads(body), json.loads(text)))
                    async with self._changed:
                        self._changed.notify_all()
                    return web.Response(status=answer.status, body=text, content_type=answer.content_type)

            app = web.Application(client_max_size=64 * 1024 * 1024)
            app.router.add_post("/{verb}", pass_on)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, LOOPBACK, self.port).start()
                yield
            finally:
                await runner.cleanup()


def _pod_name(asked: Json) -> str:
    pod: Json | None = asked.get("Pod")
    return str(pod["metadata"]["name"]) if pod else str(asked.get("PodName", ""))


@asynccontextmanager
async def taped(cluster: Cluster, scheduler: str, mode: str, space: str, *options: str) -> AsyncIterator[Recorder]:
    """Run an extender, and a kube-scheduler that talks to it through a tape.

    Args:
        cluster: where.
        scheduler: name of the kube-scheduler and its profile.
        mode: one of MODES.
        space: namespace of the extender's Lease.
        options: more options for the extender.
    """
    port, health = free_port(), free_port()
    argv = [
        *COMMAND,
        "scheduler",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--port={port}",
        f"--health-port={health}",
        f"--namespace={space}",
        "--kube-scheduler-lease=",
        *options,
    ]
    tape = Recorder(f"http://{LOOPBACK}:{port}")
    cluster.start_process("extender", argv, ready=f"http://{LOOPBACK}:{health}/readyz")
    config = scheduler_configuration() | {"leaderElection": {"leaderElect": False}}
    config["profiles"] = [{"schedulerName": scheduler}]
    for extender in config["extenders"]:
        extender |= {"urlPrefix": tape.address, "nodeCacheCapable": MODES[mode]}
    cluster.start_scheduler(scheduler, config)
    try:
        async with tape.running():
            yield tape
    finally:
        cluster.stop_process(scheduler, 0)
        cluster.stop_process("extender", 0)


async def add_node(client: KubeClient, name: str, devices: Sequence[DeviceInfo]) -> None:
    """Add a node that has GPUs, slots for them and 8 CPUs, and no kubelet: its pods must tolerate that."""
    notes = {NODE_REGISTER: encode_register(devices)}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": notes}}
    await client.create(paths.NODES, node)
    room = {RESOURCE_GPU: str(10 * len(devices)), "cpu": "8", "memory": "32Gi", "pods": "110"}
    await client.patch(f"{paths.node(name)}/status", {"status": {"capacity": room, "allocatable": room}})


async def remove(client: KubeClient, space: str, nodes: Iterable[str]) -> None:
    """Remove the pods of a namespace and these nodes, at once."""
    pods, _ = await client.list(paths.pods(space))
    for pod in pods:
        await client.delete(f"{paths.pod(space, pod['metadata']['name'])}?gracePeriodSeconds=0")
    for name in nodes:
        await client.delete(paths.node(name))
