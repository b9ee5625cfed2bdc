"""The extender as a service: watch the cluster, serve kube-scheduler, stop cleanly."""

import asyncio
import logging
from dataclasses import dataclass

from aiohttp import web

from kube.client import KubeClient
from protocol.placement import Policy
from scheduler.app import Extender, make_app
from scheduler.binder import Binder
from scheduler.state import ClusterState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of the extender.

    Attributes:
        host: address to listen on; kube-scheduler is in the same pod.
        port: 0 takes a free one, which is logged.
        node_policy: prefer full or empty nodes.
        gpu_policy: prefer full or empty GPUs of a node.
        bind_wait_seconds: how long a bind waits for a node that serves another pod; keep it well below `httpTimeout`.
    """

    host: str = "127.0.0.1"
    port: int = 8888
    node_policy: Policy = Policy.BINPACK
    gpu_policy: Policy = Policy.BINPACK
    bind_wait_seconds: float = 20.0


async def run(settings: SchedulerSettings, client: KubeClient, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; a bind that has begun is finished first."""
    state = ClusterState()
    binder = Binder(client, state, policy=settings.gpu_policy, wait_seconds=settings.bind_wait_seconds)
    extender = Extender(state, binder, settings.node_policy, settings.gpu_policy)
    runner = web.AppRunner(make_app(extender), access_log=None, shutdown_timeout=settings.bind_wait_seconds)
    await runner.setup()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(state.run(client))
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
            log.info("extender listens on http://%s:%d", *runner.addresses[0][:2])
            await stop.wait()
        finally:
            await runner.cleanup()
            watching.cancel()
