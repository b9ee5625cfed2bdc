"""One of several replicas holds a Lease and does what only one needs to do.

Whether the holder is gone is judged by this process's own monotonic clock, from when it last saw the Lease change:
the holder's clock and ours may differ by any amount. A Lease is a courtesy all the same, for a process may be paused
right after it looked: whatever the holder writes needs a resource version as a precondition.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kube import paths
from kube.client import ConflictError, Json, KubeClient, KubeError, NotFoundError

log = logging.getLogger(__name__)

_RELEASE_SECONDS: Final = 2.0
# The holder stops believing in its Lease while the others still wait, so that two never believe in it at once.
_TRUSTED_PART: Final = 2 / 3
_EARLIEST_PART: Final = 0.8


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which Lease, for whom and for how long.

    Attributes:
        namespace: of the Lease.
        name: of the Lease.
        identity: of this process, unlike that of any other.
        duration_seconds: others take a Lease over that did not change for so long.
        renew_seconds: how often it is renewed, or looked at; well below the duration.
    """

    namespace: str
    name: str
    identity: str
    duration_seconds: int = 15
    renew_seconds: float = 4.0


async def _always() -> bool:
    return True


class Lease:
    """This process's part in one Lease.

    Args:
        client: the API server.
        settings: see LeaseSettings.
        stands: tells whether this process may hold the Lease, asked before each attempt. One that may not any more
            gives it back. A KubeError leaves everything as it is until the next attempt.
        monotonic: the clock that durations are measured with.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: LeaseSettings,
        *,
        stands: Callable[[], Awaitable[bool]] = _always,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings
        self._stands = stands
        self._monotonic = monotonic
        self._holder = ""
        self._path = paths.named(paths.leases(settings.namespace), settings.name)
        self._held_until = float("-inf")
        self._seen: tuple[object, float] | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the Lease now."""
        return self._monotonic() < self._held_until

    @property
    def holder(self) -> str:
        """Identity of the holder as last seen, the empty string for nobody."""
        return self._holder

    async def run(self, on_change: Callable[[], None]) -> None:
        """Acquire and renew until cancelled, then release.

        Args:
            on_change: called when the Lease was acquired or lost.
        """
        try:
            while True:
                before = self.held
                await self._attempt_in_time()
                if self.held != before:
                    log.info("lease %s: %s", self._settings.name, "acquired" if self.held else "lost")
                    on_change()
                # Replicas that were started at once should not all ask at once.
                await asyncio.sleep(self._settings.renew_seconds * random.uniform(_EARLIEST_PART, 1))  # noqa: S311
        finally:
            await self._release()

    async def attempt(self) -> None:
        """Renew the Lease if it is ours, take it if it is nobody's any more.

        Raises:
            KubeError: the API server refused or could not be asked.
        """
        if not await self._stands():
            await self._release()
            return
        asked_at = self._monotonic()
        try:
            lease = await self._client.get(self._path)
        except NotFoundError:
            await self._write(None, asked_at)
            return
        if self._is_free(lease):
            await self._write(lease, asked_at)
        else:
            self._held_until = float("-inf")

    async def _attempt_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._settings.duration_seconds * _TRUSTED_PART):
                await self.attempt()
        except (KubeError, TimeoutError) as error:
            # It stays ours until its time is over.
            log.warning("lease %s: %s %s", self._settings.name, type(error).__name__, error)

    def _is_free(self, lease: Json) -> bool:
        spec = lease.get("spec") or {}
        holder = self._holder = str(spec.get("holderIdentity") or "")
        if holder in {"", self._settings.identity}:
            return True
        state = (holder, spec.get("renewTime"), spec.get("acquireTime"), spec.get("leaseTransitions"))
        now = self._monotonic()
        if self._seen is None or self._seen[0] != state:
            self._seen = state, now
        duration = max(float(spec.get("leaseDurationSeconds") or 0), float(self._settings.duration_seconds))
        return now - self._seen[1] > duration

    async def _write(self, lease: Json | None, asked_at: float) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (lease or {}).get("spec") or {}
        spec = {
            **before,
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._settings.duration_seconds,
            "renewTime": now,
        }
        if before.get("holderIdentity") != self._settings.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + (lease is not None)
        try:
            if lease is None:
                await self._client.create(paths.leases(self._settings.namespace), self._new(spec))
            else:
                await self._client.replace(self._path, {**lease, "spec": spec})
        except (ConflictError, NotFoundError):
            self._held_until = float("-inf")  # somebody else was first
            return
        self._holder = self._settings.identity
        self._held_until = asked_at + self._settings.duration_seconds * _TRUSTED_PART

    def _new(self, spec: Json) -> Json:
        metadata = {"name": self._settings.name, "namespace": self._settings.namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _release(self) -> None:
        """Let the next one begin at once; when that fails it waits until the Lease has expired."""
        if not self.held:
            return
        self._held_until = float("-inf")
        self._holder = ""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                lease = await self._client.get(self._path)
                if lease["spec"].get("holderIdentity") == self._settings.identity:
                    spec = {**lease["spec"], "holderIdentity": ""}
                    await self._client.replace(self._path, {**lease, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.info("lease %s not released: %s", self._settings.name, error)
