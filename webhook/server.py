"""The HTTPS server's life: listen, become ready, drain, close."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web

from webhook.app import BODY_SECONDS, READINESS
from webhook.settings import ServerSettings

# The API server keeps idle connections for 90 seconds. Were ours the first to give up, it could be closing just as
# a request comes in, which then fails. It opens connections for later, too, so neither may one without any request be
# closed sooner; slow headers have the same time.
_KEEP_ALIVE_SECONDS: Final = 120.0
# After an answer that came before the body's end, for clients that read only when they have written.
_LINGERING_SECONDS: Final = 1.0
_PART: Final = "server"

logger = logging.getLogger(__name__)


async def serve(
    app: web.Application,
    ssl_context: ssl.SSLContext,
    settings: ServerSettings,
    on_listening: Callable[[int], None] | None = None,
) -> None:
    """Serve until cancelled; then fail readiness, keep serving for the drain time, and close.

    A second cancellation cuts the drain time short.

    Args:
        app: from `make_app`.
        ssl_context: the server's side, with its certificate.
        settings: where to listen, and for how long to drain.
        on_listening: is told the port when it is open.
    """
    app[READINESS].hold(_PART, "not listening yet")
    app[BODY_SECONDS] = settings.body_seconds
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=_KEEP_ALIVE_SECONDS,
        shutdown_timeout=settings.close_seconds,
        lingering_time=_LINGERING_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port, ssl_context=ssl_context).start()
        host, port = runner.addresses[0][:2]
        app[READINESS].release(_PART)
        logger.info("listening on %s", address_text(host, port))
        if on_listening is not None:
            on_listening(port)
        await _until_drained(app, settings.drain_seconds)
    finally:
        await runner.cleanup()


def address_text(host: str, port: int) -> str:
    """Return an address as it stands in a URL: an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _until_drained(app: web.Application, drain_seconds: float) -> None:
    try:
        await asyncio.Event().wait()  # for ever: only a cancellation ends it
    finally:
        app[READINESS].hold(_PART, "shutting down")
        logger.info("draining for %s s", drain_seconds)
        # Nothing tells when the last API server has learnt that this address is gone, so this can only be a time.
        await asyncio.sleep(drain_seconds)
