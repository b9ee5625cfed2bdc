"""The extender as a service: watch the cluster, serve kube-scheduler, stop cleanly."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import web

from kube.client import KubeClient
from scheduler.app import Extender, make_app, make_health_app
from scheduler.binder import Binder
from scheduler.events import About, Events
from scheduler.heartbeats import Heartbeats
from scheduler.janitor import keep_locks_tidy
from scheduler.leader import Leader, LeaderSettings
from scheduler.metrics import Metrics
from scheduler.nodelock import NodeLocks
from scheduler.readings import add_readings
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.watchman import Watchman

log = logging.getLogger(__name__)

_LAST_ANSWERS_SECONDS: Final = 1.0


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
        leader: how the replicas choose who is active.
    """

    host: str = "127.0.0.1"
    port: int = 8888
    health_host: str = "127.0.0.1"
    health_port: int = 8080
    policies: Policies = field(default_factory=Policies)
    bind_wait_seconds: float = 20.0
    leader: LeaderSettings = field(default_factory=LeaderSettings)

    def __post_init__(self) -> None:
        if self.bind_wait_seconds <= 0:
            raise ValueError(f"bind wait: {self.bind_wait_seconds:g}: must be greater than 0 seconds")


async def run(settings: SchedulerSettings, client: KubeClient, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; a bind that has its node is finished first, and the Lease is given back after it."""
    state = ClusterState()
    leader = Leader(client, settings.leader)
    metrics, heartbeats = Metrics(), Heartbeats()
    events = Events(client, settings.leader.hostname, written=metrics.event_written, dropped=metrics.event_dropped)
    locks = NodeLocks(client, state, released=partial(_tell_released, events, metrics))
    binder = Binder(
        client,
        state,
        locks,
        policies=settings.policies,
        wait_seconds=settings.bind_wait_seconds,
        leadership=leader,
        locked=metrics.locked,
    )
    extender = Extender.of(state, binder, settings.policies, time.monotonic, leader, heartbeats, metrics, events)
    add_readings(metrics, state, extender.reservations, heartbeats, leader)
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(state.run(client)),
            tasks.create_task(heartbeats.run(client, settings.leader.namespace)),
            tasks.create_task(keep_locks_tidy(state, locks, leader)),
            tasks.create_task(_spare_collections(state)),
            tasks.create_task(_lead(leader, state)),
            tasks.create_task(events.run()),
            tasks.create_task(Watchman(state, events, metrics, leader).run()),
        ]
        try:
            async with (
                _served("extender", make_app(extender), settings.host, settings.port),
                _served("health", make_health_app(extender), settings.health_host, settings.health_port),
            ):
                await stop.wait()
                await binder.drain()
        finally:
            for task in background:
                task.cancel()


def _tell_released(events: Events, metrics: Metrics, node: str, value: str) -> None:
    metrics.lock_released()
    text = f"took the lock {value} off, whose holder does not need it any more"
    events.note(About.node(node), "StaleLockReleased", "Unlocking", text, "Normal")


async def _lead(leader: Leader, state: ClusterState) -> None:
    """Stand for the Lease as soon as this replica could answer."""
    await state.wait_until(lambda: state.is_synced)
    await leader.run()


async def _spare_collections(state: ClusterState) -> None:
    """Take what was read of the cluster out of the garbage collector's sight: a full pass over it takes a second."""
    await state.wait_until(lambda: state.is_synced)
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def _served(name: str, app: web.Application, host: str, port: int) -> AsyncIterator[None]:
    """Serve an application; on the way out its open requests get a second."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LAST_ANSWERS_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        log.info("%s listens on http://%s:%d", name, *runner.addresses[0][:2])
        yield
    finally:
        await runner.cleanup()
