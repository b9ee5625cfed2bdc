"""The extender as a service: watch the cluster, serve kube-scheduler, stop cleanly."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from kube.client import KubeClient
from scheduler.app import Extender, make_app, make_health_app
from scheduler.binder import Binder
from scheduler.janitor import keep_locks_tidy
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of the extender.

    Attributes:
        host: address for kube-scheduler, which is in the same pod.
        port: 0 takes a free one, which is logged.
        health_host: address for the kubelet's probes.
        health_port: 0 takes a free one, which is logged.
        policies: preferences, for pods that do not name their own.
        bind_wait_seconds: how long a bind waits for a node that serves another pod; keep it well below `httpTimeout`.
    """

    host: str = "127.0.0.1"
    port: int = 8888
    health_host: str = "127.0.0.1"
    health_port: int = 8080
    policies: Policies = field(default_factory=Policies)
    bind_wait_seconds: float = 20.0

    def __post_init__(self) -> None:
        if self.bind_wait_seconds <= 0:
            raise ValueError(f"bind wait: {self.bind_wait_seconds:g}: must be greater than 0 seconds")


async def run(settings: SchedulerSettings, client: KubeClient, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; a bind that has begun is finished first."""
    state = ClusterState()
    locks = NodeLocks(client, state)
    binder = Binder(client, locks, policies=settings.policies, wait_seconds=settings.bind_wait_seconds)
    extender = Extender.of(state, binder, settings.policies, time.monotonic)
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(state.run(client)),
            tasks.create_task(keep_locks_tidy(state, locks)),
            tasks.create_task(_spare_collections(state)),
        ]
        try:
            async with (
                _served("extender", make_app(extender), settings.host, settings.port, settings.bind_wait_seconds),
                _served("health", make_health_app(extender), settings.health_host, settings.health_port, 1),
            ):
                await stop.wait()
        finally:
            for task in background:
                task.cancel()


async def _spare_collections(state: ClusterState) -> None:
    """Take what was read of the cluster out of the garbage collector's sight: a full pass over it takes a second."""
    await state.wait_until(lambda: state.is_synced)
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def _served(name: str, app: web.Application, host: str, port: int, patience: float) -> AsyncIterator[None]:
    """Serve an application; on the way out its open requests get `patience` seconds."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=patience)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        log.info("%s listens on http://%s:%d", name, *runner.addresses[0][:2])
        yield
    finally:
        await runner.cleanup()
