"""Certificates that rotate while pods are admitted all the time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from certs import secret
from certs.authority import fingerprint
from certs.secret import Stored
from certs.status import Place, ask_for_rotation, wait_for_rotation
from kube import paths
from kube.client import KubeClient, KubeError
from kube.listwatch import Change, list_watch
from protocol.names import SCHEDULER_NAME

PLACE: Final = Place("amd-vgpu", "amd-vgpu-webhook-tls", "amd-vgpu")
_PAUSE_SECONDS: Final = 0.02
_ROTATION_SECONDS: Final = 30.0
_SHOWN: Final = 8


@dataclass(slots=True)
class Load:
    """Pods that are sent through admission, without being stored, one after the other.

    Attributes:
        admitted: how many were let through and completed by the webhook.
        failed: how many were refused, or let through as they were.
    """

    client: KubeClient
    body: dict[str, Any]
    admitted: int = 0
    failed: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send them as long as the block runs."""
        task = asyncio.create_task(self._send())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            try:
                made = await self.client.create(f"{paths.pods('default')}?dryRun=All", self.body)
            except KubeError:
                self.failed += 1
            else:
                is_completed = made["spec"]["schedulerName"] == SCHEDULER_NAME
                self.admitted += is_completed
                self.failed += not is_completed
            await asyncio.sleep(_PAUSE_SECONDS)


async def rotate(client: KubeClient, tell: Callable[[str], None]) -> None:
    """Have the authority renewed, tell each step of it, and return when every replica serves the new certificate.

    Raises:
        TimeoutError: it takes too long.
    """
    watching = asyncio.create_task(_tell_steps(client, tell))
    try:
        async with asyncio.timeout(_ROTATION_SECONDS):
            request = await ask_for_rotation(client, PLACE, authority=True)
            await wait_for_rotation(client, PLACE, request)
            await _until_retired(client)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _tell_steps(client: KubeClient, tell: Callable[[str], None]) -> None:
    before = Stored()
    async with aclosing(_states(client)) as states:
        async for state in states:
            for words in _news(before, state):
                tell(words)
            before = state


async def _until_retired(client: KubeClient) -> None:
    async with aclosing(_states(client)) as states:
        async for state in states:
            if not state.previous:
                return


async def _states(client: KubeClient) -> AsyncGenerator[Stored, None]:
    selector = f"metadata.name={PLACE.secret}"
    async with aclosing(list_watch(client, paths.secrets(PLACE.namespace), field_selector=selector)) as updates:
        async for update in updates:
            for item in (update.item,) if isinstance(update, Change) else update.items:
                yield secret.decode(item)


def _news(before: Stored, now: Stored) -> list[str]:
    """Return what happened between two states, in the order in which it does."""
    news: list[str] = []
    if before.authority is None:
        return news
    if now.next and now.next != before.next:
        news.append(f"a new authority {_name(now.next.certificate)} is made, and every webhook is to trust it")
    if now.authority and now.authority != before.authority:
        news.append(f"trusted everywhere: {_name(now.authority.certificate)} is in force, the old one stays trusted")
    if now.replicas != before.replicas:
        news.append("the webhook serves the new certificate, open connections go on")
    if before.previous and not now.previous:
        news.append("nobody serves a certificate of the old one any more: trusted no longer")
    return news


def _name(certificate: bytes) -> str:
    return fingerprint(certificate)[:_SHOWN]
