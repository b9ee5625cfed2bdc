"""The node lock: taking, waiting and releasing it on the API server.

Whoever holds it decides alone about the node's GPUs, from the choice until the device plugin has served the pod. It is
given up on evidence only: a holder that is gone, finished, served or bound elsewhere, or that was never bound. It is
never taken from a bound pod that still waits for Allocate, however long it waits: that pod's Allocate would be served
with another pod's share.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from kube import paths
from kube.client import ConflictError, KubeClient, NotFoundError
from protocol.lock import CLOCK_SKEW, NodeLock, decode_lock
from protocol.names import ALLOCATION_ANNOTATIONS, ASSIGNED_TIME, BIND_PHASE, NODE_LOCK, PHASE_ALLOCATING
from protocol.pods import Json, annotations, is_finished, node_name
from scheduler.state import ClusterState

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
_RECHECK_SECONDS: Final = 2.0
_RESOLUTION: Final = timedelta(seconds=1)
UNBOUND_GRACE: Final = timedelta(seconds=30)
"""How long a pod may hold a lock without being bound: longer than kube-scheduler waits for a bind."""


def utc_now() -> datetime:
    """Return the wall clock's time."""
    return datetime.now(UTC)


class _Free(Enum):
    """Whether a lock can be had."""

    NO = "its holder needs it"
    YES = "its holder is done with it, or there is none"
    VOIDED = "its holder was never bound and lost its claim, which is to be made sure of once more under the new lock"


@dataclass(frozen=True, slots=True)
class Hold:
    """A lock that was taken.

    Attributes:
        lock: as it was written.
        inherited: the lock of an earlier bind of the same pod that it took the place of, None for none. That bind may
            be dead, or its Binding still on its way: nothing may be undone that a bound pod would need.
    """

    lock: NodeLock
    inherited: NodeLock | None = None


class NodeLocks:
    """The locks of all nodes, as this extender sees them.

    Args:
        client: the API server.
        state: the watched cluster.
        now: the wall clock.
        released: called with the node and the value of each lock that was taken off because nobody needed it.
    """

    def __init__(
        self,
        client: KubeClient,
        state: ClusterState,
        now: Callable[[], datetime] = utc_now,
        *,
        released: Callable[[str, str], None] = lambda _node, _value: None,
    ) -> None:
        self._client = client
        self._state = state
        self._released = released
        self.now = now

    async def acquire(self, node: str, namespace: str, pod: str) -> Hold:
        """Take the node's lock for a pod, waiting for its holder.

        Bound it with `asyncio.timeout`: it waits as long as the holder waits for Allocate. A lock that names the pod
        already is inherited, as the bind that took it may be dead; it gets a later time, by which that one, should it
        live, sees that it is not its own any more.

        Raises:
            KubeError: the API server refused, or the node does not exist.
        """
        while True:
            seen = self.watched_value(node)
            item = await self._client.get(paths.node(node))
            lock = lock_of(item)
            free, inherited = _Free.YES, self._inherited(lock, namespace, pod)
            if lock is not None and inherited is None:
                try:
                    free = await self._is_free(node, lock)
                except ConflictError:
                    continue
            if free is _Free.NO:
                await self._wait_for_change(node, seen)
                continue
            own = NodeLock(self._time_after(lock), namespace, pod)
            if await self._replace(item, free, own):
                return Hold(own, inherited)

    def _inherited(self, lock: NodeLock | None, namespace: str, pod: str) -> NodeLock | None:
        """Return the lock if it is the pod's own, and young enough for what its bind began to come true."""
        own = lock is not None and lock.held_by(namespace, pod) and not lock.is_due(self.now(), UNBOUND_GRACE)
        return lock if own else None

    async def give_back(self, node: str, hold: Hold) -> None:
        """Give a lock up if it is still this one; one that was inherited stays, as old as it was.

        Raises:
            KubeError: the API server could not be asked, or the node changes all the time.
        """
        await self._exchange(node, hold.lock, hold.inherited)

    async def release_if_stale(self, node: str) -> bool:
        """Take the lock off a node if nobody needs it any more, and return whether it did.

        Raises:
            KubeError: the API server could not be asked.
        """
        item = await self._client.get(paths.node(node))
        value, lock = annotations(item).get(NODE_LOCK), lock_of(item)
        if value is None:
            return False
        free = _Free.YES if lock is None else await self._is_free(node, lock)
        if free is _Free.NO or not await self._replace(item, free, None):
            return False  # somebody else was here; if it is still due, it will be seen again
        log.info("node %s: released the lock %s, which nobody needs", node, value)
        self._released(node, value)
        return True

    def _time_after(self, lock: NodeLock | None) -> datetime:
        """Return the time for a new lock: now, in the whole seconds of the wire, unlike that of the lock before."""
        now = self.now().replace(microsecond=0)
        return now if lock is None or not now <= lock.since < now + CLOCK_SKEW else lock.since + _RESOLUTION

    async def _replace(self, item: Json, free: "_Free", own: NodeLock | None) -> bool:
        """Put another lock, or none, in the place of the one on the node, and return whether that is done."""
        node, before = item["metadata"]["name"], lock_of(item)
        try:
            await self._write(item, own)
        except ConflictError:
            return False
        if free is not _Free.VOIDED or before is None or await self._is_void(node, before):
            return True
        # Its bind came back to life between the two looks and went through: it must have its Allocate.
        await self._exchange(node, own, before)
        return False

    async def _is_void(self, node: str, lock: NodeLock) -> bool:
        for _ in range(_ATTEMPTS):
            with suppress(ConflictError):
                return await self._is_free(node, lock) is not _Free.NO
        return False

    async def _exchange(self, node: str, own: NodeLock | None, following: NodeLock | None) -> None:
        """Write another lock for as long as the node's is still this one."""
        for _ in range(_ATTEMPTS):
            try:
                item = await self._client.get(paths.node(node))
                if lock_of(item) != own:
                    return
                await self._write(item, following)
            except NotFoundError:
                return
            except ConflictError:
                continue
            return
        raise ConflictError(f"node {node} changed {_ATTEMPTS} times while its lock was written", status=409)

    async def _write(self, item: Json, lock: NodeLock | None) -> None:
        metadata = item["metadata"]
        notes = {NODE_LOCK: None if lock is None else lock.encode()}
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": notes}}
        await self._client.patch(paths.node(metadata["name"]), body)

    async def _is_free(self, node: str, lock: NodeLock) -> "_Free":
        """Return whether nobody needs this lock any more, after making sure that its holder cannot use it later.

        Raises:
            ConflictError: the holder was changed meanwhile.
            KubeError: the API server could not be asked.
        """
        try:
            holder = await self._client.get(paths.pod(lock.namespace, lock.pod))
        except NotFoundError:
            return _Free.YES
        if not still_needs(lock, holder, node):
            return _Free.YES
        if node_name(holder) or not lock.is_due(self.now(), UNBOUND_GRACE):
            return _Free.NO
        # The holder was never bound. Its claim is void from here on: a bind that is still under way carries the old
        # resource version, or looks at the lock again.
        log.warning("node %s: pod %s/%s held the lock without being bound", node, lock.namespace, lock.pod)
        await clear_allocation(self._client, holder, voided_at=self.now())
        return _Free.VOIDED

    def watched_value(self, node: str) -> str:
        """Return the node's lock as the watch last showed it, the empty string for none."""
        return annotations(self._state.node(node) or {}).get(NODE_LOCK, "")

    def watched(self, node: str) -> NodeLock | None:
        """Return the node's lock as the watch last showed it."""
        return decode_lock(self.watched_value(node))

    def seems_stale(self, node: str) -> bool:
        """Return whether, as far as the watch shows, the node's lock may not be needed any more."""
        lock = self.watched(node)
        if lock is None:
            return True
        holder = self._state.find_pod(lock.namespace, lock.pod, node)
        if holder is None:
            return lock.is_due(self.now(), UNBOUND_GRACE)  # deleted, or not bound
        return not still_needs(lock, holder, node)

    async def _wait_for_change(self, node: str, seen: str) -> None:
        """Return when the watch shows another lock than `seen`, or that the holder needs it no more, or after a while.

        `seen` was read from the watch before the API server was asked, so a change between the two is not missed.
        """

        def changed() -> bool:
            return self.watched_value(node) != seen or self.seems_stale(node)

        try:
            async with asyncio.timeout(_RECHECK_SECONDS):
                await self._state.wait_until(changed)
        except TimeoutError:
            return  # a deleted holder, or a broken watch: ask the API server again


def lock_of(node: Json) -> NodeLock | None:
    """Return a node's lock, None when it has none or one that names nobody."""
    return decode_lock(annotations(node).get(NODE_LOCK, ""))


def still_needs(lock: NodeLock, holder: Json, node: str) -> bool:
    """Return whether a pod still needs the lock that names it.

    Args:
        lock: on the node.
        holder: the pod of that name.
        node: the node's name.
    """
    created = datetime.fromisoformat(holder["metadata"]["creationTimestamp"])
    if lock.is_older_than(created) or is_finished(holder):
        return False  # another pod of the same name, or one that ended
    if node_name(holder) not in {"", node}:
        return False
    return annotations(holder).get(BIND_PHASE, PHASE_ALLOCATING) == PHASE_ALLOCATING


async def clear_allocation(client: KubeClient, pod: Json, *, voided_at: datetime | None = None) -> None:
    """Take every allocation annotation off a pod, as long as it is as it was read.

    Args:
        client: the API server.
        pod: as it was read.
        voided_at: left in the pod as the time of assignment, so that its resource version changes in any case.

    Raises:
        ConflictError: it was changed meanwhile.
        KubeError: the API server refused or could not be asked. A pod that is gone is no error.
    """
    metadata = pod["metadata"]
    notes: dict[str, str | None] = dict.fromkeys(ALLOCATION_ANNOTATIONS)
    if voided_at is not None:
        notes[ASSIGNED_TIME] = str(int(voided_at.timestamp()))
    body = {"metadata": {key: metadata[key] for key in ("uid", "resourceVersion")} | {"annotations": notes}}
    with suppress(NotFoundError):
        await client.patch(paths.pod(metadata["namespace"], metadata["name"]), body)
