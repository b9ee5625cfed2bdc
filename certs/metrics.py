"""What monitoring should know about the certificates, in Prometheus' text format over plain HTTP."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from certs.authority import expiry
from certs.secret import Stored
from certs.world import Kind

log = logging.getLogger(__name__)

_AUTHORITY: Final = "authority"
_SERVING: Final = "serving"
_ROTATED: Final = {Kind.ISSUE: (_SERVING,), Kind.PROMOTE: (_SERVING, _AUTHORITY)}


class Metrics:
    """Metrics of one process.

    Args:
        now: the wall clock, seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._registry = CollectorRegistry()
        self._left = Gauge(
            "amd_vgpu_certificate_expiry_seconds",
            "Seconds until the certificate expires: serving is the one that this process serves",
            ["certificate"],
            registry=self._registry,
        )
        self._rotations = Counter(
            "amd_vgpu_certificate_rotations",
            "Certificates that this process put in the place of others",
            ["certificate"],
            registry=self._registry,
        )
        self._loads = Counter(
            "amd_vgpu_certificate_loads",
            "Serving certificates that this process began to serve",
            registry=self._registry,
        )
        self._repairs = Counter(
            "amd_vgpu_certificate_trust_writes",
            "Times that this process wrote a caBundle, for a new authority or because somebody had changed it",
            registry=self._registry,
        )
        self._failures = Counter(
            "amd_vgpu_certificate_failures",
            "Steps of certificate care that failed and were tried again",
            registry=self._registry,
        )
        for certificate in (_AUTHORITY, _SERVING):
            self._rotations.labels(certificate)

    def stored(self, stored: Stored | None) -> None:
        """Take note of the authority in force."""
        if stored is not None and stored.authority is not None:
            self._expires(_AUTHORITY, stored.authority.certificate)

    def loaded(self, certificate: bytes) -> None:
        """Take note of a serving certificate from now on served."""
        self._loads.inc()
        self._expires(_SERVING, certificate)

    def done(self, kind: Kind) -> None:
        """Count a step."""
        for certificate in _ROTATED.get(kind, ()):
            self._rotations.labels(certificate).inc()
        if kind is Kind.TRUST:
            self._repairs.inc()

    def failed(self) -> None:
        """Count a failure."""
        self._failures.inc()

    def render(self) -> bytes:
        """Return everything as it is now."""
        return generate_latest(self._registry)

    def _expires(self, label: str, certificate: bytes) -> None:
        end = expiry(certificate).timestamp()
        self._left.labels(label).set_function(lambda: end - self._now())


async def serve(metrics: Metrics, host: str, port: int, on_listening: Callable[[int], None] | None = None) -> None:
    """Serve `GET /metrics` until cancelled."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        port = runner.addresses[0][1]
        log.info("metrics on port %d", port)
        if on_listening is not None:
            on_listening(port)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
