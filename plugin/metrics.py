"""What monitoring should know about a node's GPUs, in Prometheus' text format."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from plugin.discovery import Snapshot
from plugin.health import Change

log = logging.getLogger(__name__)


class PortError(Exception):
    """The port for metrics cannot be had."""


class Metrics:
    """Metrics of one device plugin process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._healthy = Gauge(
            "amd_vgpu_plugin_gpu_healthy",
            "1 for a GPU that can be given to pods, 0 for one that cannot",
            ["gpu", "product"],
            registry=self._registry,
        )
        self._changes = Counter(
            "amd_vgpu_plugin_gpu_health_changes",
            "Times that a GPU fell ill (to=unhealthy) or recovered (to=healthy), by the cause of its illness",
            ["gpu", "cause", "to"],
            registry=self._registry,
        )

    def changed(self, change: Change) -> None:
        """Count a GPU that fell ill, recovered, or is ill of something else."""
        ailment = change.gpu.ailment or change.before
        if ailment is not None:
            to = "healthy" if change.gpu.ailment is None else "unhealthy"
            self._changes.labels(change.gpu.id, ailment.cause.value, to).inc()

    def seen(self, snapshot: Snapshot) -> None:
        """Take note of all GPUs as they are now; those that vanished are among them."""
        for gpu in snapshot.gpus:
            self._healthy.labels(gpu.id, gpu.info.product).set(gpu.info.healthy)

    @contextmanager
    def served(self, port: int | None) -> Iterator[None]:
        """Serve `GET /metrics` over plain HTTP from a thread of its own; nothing for None.

        Raises:
            PortError: the port cannot be had.
        """
        if port is None:
            yield
            return
        try:
            server, thread = start_http_server(port, registry=self._registry)
        except OSError as error:
            raise PortError(f"metrics_port: {port}: {error.strerror}") from error
        log.info("metrics on port %d", server.server_port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
