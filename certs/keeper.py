"""Keeping the webhook's certificates: valid in the Secret, trusted by the API server, served by this process."""

import asyncio
import logging
import random
import ssl
from contextlib import aclosing
from typing import Final, Protocol

from certs.engine import Engine
from certs.metrics import Metrics
from certs.settings import CertSettings
from certs.world import Kind
from kube import paths
from kube.client import ConflictError, KubeClient, KubeError, NotFoundError
from kube.lease import Lease, LeaseSettings
from kube.listwatch import list_watch

log = logging.getLogger(__name__)

_WITHDRAW_SECONDS: Final = 3.0
_CONFLICT_SECONDS: Final = 0.2
_RENEWALS: Final = 3.5
"""How often a Lease is renewed within its duration."""
_SHORTEST_PAUSE: Final = 0.01


class Keeper(Protocol):
    """Keeps a certificate loaded in a TLS context."""

    async def run(self, ready: asyncio.Event) -> None:
        """Keep it until cancelled; set `ready` when one is first served."""


class CertificateKeeper:
    """Certificates of one server process, which it makes and renews itself, together with its other replicas.

    Args:
        client: the API server.
        settings: see CertSettings.
        context: the server's TLS context, kept loaded with the certificate in force.
        metrics: are told of everything.
    """

    def __init__(
        self, client: KubeClient, settings: CertSettings, context: ssl.SSLContext, metrics: Metrics | None = None
    ) -> None:
        self._client = client
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._engine = Engine(client, settings, context, self._metrics)
        self._wake = asyncio.Event()
        duration = settings.times.lease
        lease = LeaseSettings(settings.namespace, settings.lease, settings.replica, duration, duration / _RENEWALS)
        self._lease = Lease(client, lease)
        self._told = ""

    async def run(self, ready: asyncio.Event) -> None:
        """Keep the certificates until cancelled; sets `ready` when they are first served and trusted.

        Cancel it when the server has closed: then this replica says that it serves nothing any more.
        """
        settings = self._settings
        watched = (
            (paths.secrets(settings.namespace), settings.secret),
            (paths.MUTATING_WEBHOOKS, settings.configuration),
            (paths.VALIDATING_WEBHOOKS, settings.configuration),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._lease.run(self._wake.set))
                for collection, name in watched:
                    tasks.create_task(self._watch(collection, name))
                tasks.create_task(self._keep(ready))
        finally:
            await self._withdraw()

    async def _watch(self, collection: str, name: str) -> None:
        async with aclosing(list_watch(self._client, collection, field_selector=f"metadata.name={name}")) as changes:
            async for _ in changes:
                self._wake.set()

    async def _keep(self, ready: asyncio.Event) -> None:
        while True:
            self._wake.clear()
            try:
                pause = await self._step(ready)
            except (ConflictError, NotFoundError) as error:
                log.debug("decided anew: %s", error)
                await asyncio.sleep(random.uniform(0, _CONFLICT_SECONDS))  # noqa: S311 - replicas must not keep in step
                continue
            except (KubeError, ssl.SSLError, ValueError) as error:
                # What is served and trusted stays so: only the renewal waits.
                self._metrics.failed()
                log.warning("certificates: next try in %.1f s: %s", self._settings.times.retry, error)
                await asyncio.sleep(self._settings.times.retry)
                continue
            if pause is not None:
                await self._wait(pause)

    async def _step(self, ready: asyncio.Event) -> float | None:
        """Do one step; return for how long to wait after it, None when the next should follow at once."""
        plan = await self._engine.look(leader=self._lease.held)
        if plan.step.kind is not Kind.WAIT:
            await self._engine.act(plan)
            return None
        if self._engine.own.served is not None:
            ready.set()
        if plan.step.reason and plan.step.reason != self._told:
            log.warning("certificates wait: %s", plan.step.reason)
        self._told = plan.step.reason
        return plan.step.seconds

    async def _wait(self, seconds: float) -> None:
        """Wait for a change, at most until the next check: monotonic timers stand still in a paused machine."""
        # An age that is just short of what is waited for must not be looked at a thousand times.
        seconds = min(max(seconds, 0.0) + _SHORTEST_PAUSE, self._settings.times.check)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _withdraw(self) -> None:
        try:
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                await self._engine.withdraw()
        except (KubeError, TimeoutError) as error:
            log.info("the Secret still names this replica: %s", error)
