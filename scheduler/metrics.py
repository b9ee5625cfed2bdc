"""What monitoring should know about the extender, in Prometheus' text format. docs/scheduler.md explains each."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.capacity import SHARES, STATES, Part, Sums
from scheduler.findings import Kind

PREFIX: Final = "amd_vgpu_scheduler_"
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
_WAIT_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30)


class Metrics:
    """Metrics of one extender process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            f"{PREFIX}request_seconds",
            "Time to answer kube-scheduler, by verb and result: ok, nowhere (no node fits) or error",
            ["verb", "result"],
            buckets=_REQUEST_BUCKETS,
            registry=self._registry,
        )
        self._lock_waits = Histogram(
            f"{PREFIX}lock_wait_seconds",
            "Time until a bind had its node's lock",
            buckets=_WAIT_BUCKETS,
            registry=self._registry,
        )
        self._locks_released = Counter(
            f"{PREFIX}stale_locks_released", "Node locks taken off that nobody needed any more", registry=self._registry
        )
        self._events = Counter(f"{PREFIX}events", "Events written, by reason", ["reason"], registry=self._registry)
        self._events_dropped = Counter(
            f"{PREFIX}events_dropped", "Events not written, refused or too many", registry=self._registry
        )
        self._findings = Gauge(
            f"{PREFIX}findings", "Troubles that nodes and pods have now, by kind", ["kind"], registry=self._registry
        )
        self._gpus = Gauge(f"{PREFIX}gpus", "GPUs, by product and state", ["product", "state"], registry=self._registry)
        self._gpus_by_share = Gauge(
            f"{PREFIX}gpus_by_free_compute_units",
            "GPUs, by product and by how much of their compute units is free",
            ["product", "free"],
            registry=self._registry,
        )
        self._cus = Gauge(
            f"{PREFIX}compute_units", "Compute units of GPUs", ["product", "state"], registry=self._registry
        )
        self._memory = Gauge(
            f"{PREFIX}memory_mebibytes", "Memory of GPUs", ["product", "state"], registry=self._registry
        )
        for kind in Kind:
            self._findings.labels(kind)

    def answered(self, verb: str, result: str, seconds: float) -> None:
        """Take note of a call of kube-scheduler."""
        self._requests.labels(verb, result).observe(seconds)

    def locked(self, seconds: float) -> None:
        """Take note of a bind that has its node."""
        self._lock_waits.observe(seconds)

    def lock_released(self) -> None:
        """Count a stale lock."""
        self._locks_released.inc()

    def event_written(self, reason: str) -> None:
        """Count an Event."""
        self._events.labels(reason).inc()

    def event_dropped(self) -> None:
        """Count an Event that was not written."""
        self._events_dropped.inc()

    def found(self, findings: Mapping[Kind, int]) -> None:
        """Take note of how many troubles there are now."""
        for kind in Kind:
            self._findings.labels(kind).set(findings.get(kind, 0))

    def summed(self, sums: Sums) -> None:
        """Take note of what is held and free now; products that are not in it are gone."""
        for gauge in (self._gpus, self._gpus_by_share, self._cus, self._memory):
            gauge.clear()
        for product in {product for product, _ in sums}:
            for state in STATES:
                self._gpus.labels(product, state).set(sums[product, state])
            for share in SHARES:
                self._gpus_by_share.labels(product, share).set(sums[product, share])
            self._cus.labels(product, "held").set(sums[product, Part.CUS_HELD])
            self._cus.labels(product, "free").set(sums[product, Part.CUS_FREE])
            self._memory.labels(product, "held").set(sums[product, Part.MIB_HELD])
            self._memory.labels(product, "free").set(sums[product, Part.MIB_FREE])

    def read_gauge(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Add a gauge that is read when it is asked for: its values by the value of a label."""
        self._registry.register(_Read(GaugeMetricFamily, f"{PREFIX}{name}", text, label, read))

    def read_counter(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Add a counter that is read when it is asked for."""
        self._registry.register(_Read(CounterMetricFamily, f"{PREFIX}{name}", text, label, read))

    def render(self) -> bytes:
        """Return everything as it is now."""
        return generate_latest(self._registry)


class _Read(Collector):
    """Values that somebody else keeps; an empty label stands for a metric of one value, under the empty name."""

    def __init__(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        label: str,
        read: Callable[[], Mapping[str, float]],
    ) -> None:
        self._family = family
        self._name = name
        self._text = text
        self._labels = [label] if label else []
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = self._family(self._name, self._text, labels=self._labels)
        for value, number in self._read().items():
            family.add_metric([value] if self._labels else [], number)
        yield family
