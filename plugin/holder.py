"""Judging the pod that a node's lock names: is the kubelet's Allocate call for it?"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum

from plugin.heldcus import Cus, read_cus
from plugin.ledger import Entry
from protocol.lock import NodeLock
from protocol.names import BIND_PHASE, PHASE_ALLOCATING, PHASE_FAILED, PHASE_SUCCESS
from protocol.pods import Json, PodRef, annotations, is_finished, node_name
from protocol.survivors import Survivor
from protocol.usage import GpuUsage


class Remedy(Enum):
    """What a refused call leaves behind."""

    NOTHING = "nothing"
    """The lock and the pod are someone else's business."""
    RELEASE = "release"
    """The lock binds nobody any more: release it."""
    FAIL = "fail"
    """The pod cannot be served: mark it failed and release its lock."""


class NotYetError(Exception):
    """An Allocate call cannot be answered now, and may be in a moment.

    Attributes:
        patience: how much of the call's time may be spent on waiting.
        remedy: what is due when it was in vain.
    """

    patience: float
    remedy: "Remedy"


class StillHeldError(NotYetError):
    """Processes of a pod that is over hold what this pod was given; they may end any moment."""

    # Time is left after it to fail the pod and free the node for others.
    patience = 0.75
    remedy = Remedy.FAIL


class RivalError(NotYetError):
    """The call may be for another pod than the lock's holder.

    If that one was just refused, its status says so in a moment. If the call is its own, waiting is of no use, and the
    holder waits behind it.
    """

    patience = 0.25
    remedy = Remedy.NOTHING


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


def find_overlap(
    cus: Mapping[str, tuple[int, ...]], others: Iterable[Json], read: Callable[[Json], Cus] = read_cus
) -> str | None:
    """Return which live pod holds one of the CUs, or None.

    Args:
        cus: by device id.
        others: the pods that may not hold any of them.
        read: tells what a pod holds.
    """
    wanted = {device_id: frozenset(ids) for device_id, ids in cus.items()}
    for pod in others:
        for device_id, held in read(pod).items():
            common = held & wanted.get(device_id, frozenset())
            if common:
                return f"CU {min(common)} of GPU {device_id!r} is held by pod {PodRef.of(pod)} as well"
    return None


def find_entry_overlap(cus: Mapping[str, tuple[int, ...]], standing: Iterable[Entry], *, but: str) -> str | None:
    """Return which live pod was given one of the CUs, whatever its annotations say by now, or None.

    Args:
        cus: by device id.
        standing: the ledger's entries of pods that are not over.
        but: uid of the pod whose own entry does not count.
    """
    for entry in standing:
        for device_id, part in entry.parts.items() if entry.pod.uid != but else ():
            common = set(part.cus) & set(cus.get(device_id, ()))
            if common:
                return f"CU {min(common)} of GPU {device_id!r} was given to pod {entry.pod}, by the node's ledger"
    return None


def check_survivors(entry: Entry, survivors: Sequence[Survivor], usages: Mapping[str, GpuUsage]) -> None:
    """Refuse while processes of pods that are over hold something of what a pod was given.

    Args:
        entry: what the pod was given.
        survivors: the pods that are over and still have processes.
        usages: of the node's GPUs by the pods that are not over.

    Raises:
        StillHeldError: with what is held, and by whom.
    """
    for survivor in survivors:
        if survivor.parts is None:
            raise StillHeldError(f"an unknown part of the GPUs is held by processes of pod {survivor}")
        for device_id, part in survivor.parts.items():
            common = set(part.cus) & set(entry.parts[device_id].cus if device_id in entry.parts else ())
            if common:
                raise StillHeldError(f"CU {min(common)} of GPU {device_id!r} is held by processes of pod {survivor}")
    for device_id, own in entry.parts.items():
        left = [one for one in survivors if one.parts and device_id in one.parts]
        held = sum(one.parts[device_id].memory_mib for one in left if one.parts)
        usage = usages.get(device_id)
        if held and usage is not None and own.memory_mib + held > usage.free_memory_mib:
            names = ", ".join(map(str, left))
            raise StillHeldError(f"{held} MiB of GPU {device_id!r} are held by processes of pod {names}")


def check_nobody_is_left(device_ids: Collection[str], survivors: Iterable[Survivor]) -> None:
    """Refuse while processes of pods that are over hold anything of these GPUs.

    Raises:
        StillHeldError: with the GPU, and by whom it is held.
    """
    for survivor in survivors:
        held = device_ids if survivor.parts is None else survivor.parts.keys() & set(device_ids)
        if held:
            raise StillHeldError(f"GPU {min(held)!r} is held by processes of pod {survivor}")


def _created(pod: Json) -> datetime | None:
    text = (pod.get("metadata") or {}).get("creationTimestamp") or ""
    try:
        created = datetime.fromisoformat(text)
    except ValueError:
        return None
    return created if created.tzinfo else created.replace(tzinfo=UTC)
