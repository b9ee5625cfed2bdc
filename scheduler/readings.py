"""The metrics that are read when they are asked for: what the extender's parts keep anyway."""

from scheduler.heartbeats import Heartbeats
from scheduler.leader import Leadership
from scheduler.metrics import Metrics
from scheduler.reservations import Reservations
from scheduler.state import ClusterState


def add_readings(
    metrics: Metrics,
    state: ClusterState,
    reservations: Reservations,
    heartbeats: Heartbeats,
    leadership: Leadership,
) -> None:
    """Have the metrics read from these parts."""
    metrics.read_gauge("active", "1 for the replica that decides", "", lambda: {"": float(leadership.held)})
    metrics.read_gauge("promises", "Pods whose room is promised, by state", "state", reservations.counts)
    metrics.read_counter(
        "promises_expired", "Promises that no bind came for in time", "", lambda: {"": reservations.expired}
    )
    metrics.read_gauge("index_objects", "Objects kept of the cluster, by kind", "kind", state.counts)
    metrics.read_counter(
        "watch_restarts",
        "Times that a collection was read anew, after a lost watch",
        "path",
        lambda: _again(state),
    )
    metrics.read_gauge(
        "plugins", "Device plugins with a Lease, by whether it is fresh", "state", lambda: _plugins(heartbeats)
    )


def _again(state: ClusterState) -> dict[str, int]:
    return {path: times - 1 for path, times in state.snapshots.items()}


def _plugins(heartbeats: Heartbeats) -> dict[str, int]:
    silent = heartbeats.silent_count()
    return {"fresh": heartbeats.count() - silent, "silent": silent}
