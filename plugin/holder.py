"""Judging the pod that a node's lock names: is the kubelet's Allocate call for it?"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum

from protocol.allocation import AllocationError
from protocol.lock import NodeLock
from protocol.names import BIND_PHASE, PHASE_ALLOCATING, PHASE_FAILED, PHASE_SUCCESS
from protocol.pods import Json, PodRef, annotations, is_finished, node_name, read_holding


class Remedy(Enum):
    """What a refused call leaves behind."""

    NOTHING = "nothing"
    """The lock and the pod are someone else's business."""
    RELEASE = "release"
    """The lock binds nobody any more: release it."""
    FAIL = "fail"
    """The pod cannot be served: mark it failed and release its lock."""


class RefusedError(Exception):
    """An Allocate call cannot be answered, now or later; the kubelet fails the pod that it was for."""

    def __init__(self, message: str, remedy: Remedy = Remedy.FAIL) -> None:
        super().__init__(message)
        self.remedy = remedy


def check_holder(pod: Json, lock: NodeLock, node: str) -> None:
    """Refuse unless the pod is the one that took the lock and waits for its devices on this node.

    Raises:
        RefusedError: with what was expected and found.
    """
    ref = PodRef.of(pod)
    bound = node_name(pod)
    if bound != node:
        where = f"bound to node {bound!r}" if bound else "not bound yet"
        raise RefusedError(
            f"expected pod {ref}, which holds the node's lock, on node {node!r}: it is {where}", Remedy.NOTHING
        )
    created = _created(pod)
    if created is not None and lock.is_older_than(created):
        raise RefusedError(
            f"the node's lock was taken at {lock.since.isoformat()} by another pod of the name {ref}, "
            f"which was created at {created.isoformat()}",
            Remedy.RELEASE,
        )
    if is_finished(pod):
        raise RefusedError(f"pod {ref}, which holds the node's lock, has ended", Remedy.RELEASE)
    phase = annotations(pod).get(BIND_PHASE)
    if phase != PHASE_ALLOCATING:
        stale = phase in {PHASE_SUCCESS, PHASE_FAILED}
        raise RefusedError(
            f"pod {ref}, which holds the node's lock: {BIND_PHASE} is {phase!r}, expected {PHASE_ALLOCATING!r}",
            Remedy.RELEASE if stale else Remedy.FAIL,
        )


def find_overlap(cus: Mapping[str, tuple[int, ...]], others: Iterable[Json]) -> str | None:
    """Return which live pod holds one of the CUs, or None.

    Pods whose annotations cannot be read are passed over: the scheduler keeps their GPUs closed, and here they must not
    stop a pod that was placed before.
    """
    for pod in others:
        try:
            holding = None if is_finished(pod) else read_holding(pod)
        except AllocationError:
            continue
        for device_id, held in (holding.cus if holding else {}).items():
            common = set(held) & set(cus.get(device_id, ()))
            if common:
                return f"CU {min(common)} of GPU {device_id!r} is held by pod {PodRef.of(pod)} as well"
    return None


def _created(pod: Json) -> datetime | None:
    text = (pod.get("metadata") or {}).get("creationTimestamp") or ""
    try:
        created = datetime.fromisoformat(text)
    except ValueError:
        return None
    return created if created.tzinfo else created.replace(tzinfo=UTC)
