"""The really running server, and a client that verifies its certificate."""

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tests.webhook.makers import UID, Object, review_bytes
from webhook.app import make_app
from webhook.hints import ClusterHints
from webhook.server import serve
from webhook.settings import ServerSettings, WebhookSettings

PATIENCE = 20
"""Seconds after which something that should happen at once has failed."""


@dataclass(frozen=True)
class TlsContexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


@dataclass(frozen=True)
class Running:
    app: web.Application
    task: asyncio.Task[None]
    port: int
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(path) as response:
            return response.status, await response.text()

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        async with self.session.post(path, data=io.BytesIO(body), headers=headers) as response:
            return response.status, await response.json()

    async def ask(self, path: str, obj: Object | None, operation: str = "CREATE", **request: object) -> Object:
        """Return the `response` of the review that answers, whose frame is checked here."""
        status, answer = await self.post(path, review_bytes(obj, operation, **request))
        assert status == 200, answer
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        assert answer["kind"] == "AdmissionReview"
        response: Object = answer["response"]
        assert response["uid"] == UID
        return response


@contextlib.asynccontextmanager
async def running(
    tls: TlsContexts,
    settings: WebhookSettings,
    hints: ClusterHints | None = None,
    *,
    drain_seconds: float = 0.0,
    close_seconds: float = 5.0,
    body_seconds: float = PATIENCE,
) -> AsyncIterator[Running]:
    """Serve on a free port; on leaving, stop, however the test left the server."""
    app = make_app(settings, hints)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    where = ServerSettings("127.0.0.1", 0, drain_seconds, close_seconds, body_seconds)
    task = asyncio.create_task(serve(app, tls.server, where, on_listening=port.set_result))
    started: set[asyncio.Future[Any]] = {task, port}
    await asyncio.wait(started, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    connector = aiohttp.TCPConnector(ssl=tls.client)
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port.result()}", connector=connector) as session:
            yield Running(app, task, port.result(), session)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)
