"""Which CUs the pods of a node hold, each pod read once for each of its versions.

To read the annotations of a full node's pods takes longer than all else that an Allocate call computes.
"""

from collections.abc import Iterable, Mapping

from protocol.allocation import AllocationError
from protocol.pods import Json, is_finished, read_holding

Cus = Mapping[str, frozenset[int]]
"""CU ids by device id."""


def read_cus(pod: Json) -> Cus:
    """Return what a bound pod holds: nothing when it is over, or when its annotations cannot be read.

    The scheduler keeps the GPUs of those closed; here they must not stop a pod that was placed before.
    """
    try:
        holding = None if is_finished(pod) else read_holding(pod)
    except AllocationError:
        return {}
    return {device_id: frozenset(ids) for device_id, ids in holding.cus.items()} if holding else {}


class HeldCus:
    """Remembers what was read."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Cus] = {}

    def of(self, pod: Json) -> Cus:
        """Return what a pod holds, as `read_cus` does."""
        key = _version(pod)
        if key not in self._known:
            self._known[key] = read_cus(pod)
        return self._known[key]

    def keep_only(self, pods: Iterable[Json]) -> None:
        """Forget all but these pods, as they are now."""
        self._known = {key: self._known[key] for key in map(_version, pods) if key in self._known}


def _version(pod: Json) -> tuple[str, str]:
    """Return what no other pod has, nor this one once anything about it has changed."""
    metadata = pod.get("metadata") or {}
    return str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))
