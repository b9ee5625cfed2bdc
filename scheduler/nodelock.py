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
from datetime import UTC, datetime, timedelta
from typing import Final

from kube import paths
from kube.client import ConflictError, KubeClient, NotFoundError
from protocol.lock import NodeLock, decode_lock
from protocol.names import ALLOCATION_ANNOTATIONS, BIND_PHASE, NODE_LOCK, PHASE_ALLOCATING
from protocol.pods import Json, annotations, is_finished, node_name
from scheduler.state import ClusterState

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
_RECHECK_SECONDS: Final = 2.0
UNBOUND_GRACE: Final = timedelta(seconds=30)
"""How long a pod may hold a lock without being bound: longer than kube-scheduler waits for a bind."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class NodeLocks:
    """The locks of all nodes, as this extender sees them."""

    def __init__(self, client: KubeClient, state: ClusterState, now: Callable[[], datetime] = _utc_now) -> None:
        self._client = client
        self._state = state
        self.now = now

    async def acquire(self, node: str, namespace: str, pod: str) -> Json:
        """Take the node's lock for a pod, waiting for its holder, and return the node as it was locked.

        Bound it with `asyncio.timeout`: it waits as long as the holder waits for Allocate.

        Raises:
            KubeError: the API server refused, or the node does not exist.
        """
        while True:
            seen = self.watched_value(node)
            item = await self._client.get(paths.node(node))
            held = annotations(item).get(NODE_LOCK)
            lock = decode_lock(held) if held else None
            if lock is not None and not lock.held_by(namespace, pod) and not await self._take_over(node, lock):
                await self._wait_for_change(node, seen)
                continue
            try:
                return await self._write(item, NodeLock(self.now(), namespace, pod).encode())
            except ConflictError:
                continue

    async def release(self, node: str, namespace: str, pod: str) -> None:
        """Give the lock up if this pod still holds it.

        Raises:
            KubeError: the API server could not be asked, or the node changes all the time.
        """
        for _ in range(_ATTEMPTS):
            try:
                item = await self._client.get(paths.node(node))
                lock = decode_lock(annotations(item).get(NODE_LOCK, ""))
                if lock is None or not lock.held_by(namespace, pod):
                    return
                await self._write(item, None)
            except NotFoundError:
                return
            except ConflictError:
                continue
            return
        raise ConflictError(f"node {node} changed {_ATTEMPTS} times while its lock was released", status=409)

    async def release_if_stale(self, node: str) -> bool:
        """Take the lock off a node if nobody needs it any more, and return whether it did.

        Raises:
            KubeError: the API server could not be asked.
        """
        item = await self._client.get(paths.node(node))
        value = annotations(item).get(NODE_LOCK)
        lock = decode_lock(value) if value else None
        if value is None or (lock is not None and not await self._take_over(node, lock)):
            return False
        try:
            await self._write(item, None)
        except ConflictError:
            return False  # somebody else was here; if it is still due, it will be seen again
        log.info("node %s: released the lock %s, which nobody needs", node, value)
        return True

    async def _write(self, item: Json, value: str | None) -> Json:
        metadata = item["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {NODE_LOCK: value}}}
        return await self._client.patch(paths.node(metadata["name"]), body)

    async def _take_over(self, node: str, lock: NodeLock) -> bool:
        """Return whether nobody needs this lock any more, after making sure that its holder cannot use it later."""
        try:
            holder = await self._client.get(paths.pod(lock.namespace, lock.pod))
        except NotFoundError:
            return True
        if not still_needs(lock, holder, node):
            return True
        if node_name(holder) or self.now() - lock.since < UNBOUND_GRACE:
            return False
        # The holder was never bound. Its claim is void from here on: a bind that is still under way carries the old
        # resource version.
        log.warning("node %s: pod %s/%s held the lock without being bound", node, lock.namespace, lock.pod)
        await clear_allocation(self._client, holder)
        return True

    def watched_value(self, node: str) -> str:
        """Return the node's lock as the watch last showed it, the empty string for none."""
        return annotations(self._state.node(node) or {}).get(NODE_LOCK, "")

    def seems_stale(self, node: str) -> bool:
        """Return whether, as far as the watch shows, the node's lock may not be needed any more."""
        lock = decode_lock(self.watched_value(node))
        if lock is None:
            return True
        holder = self._state.find_pod(lock.namespace, lock.pod, node)
        if holder is None:
            return self.now() - lock.since > UNBOUND_GRACE  # deleted, or not bound
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


async def clear_allocation(client: KubeClient, pod: Json) -> None:
    """Take every allocation annotation off a pod, if it is still this one.

    Raises:
        KubeError: the API server refused or could not be asked. A pod that is gone is no error.
    """
    metadata = pod["metadata"]
    body = {"metadata": {"uid": metadata["uid"], "annotations": dict.fromkeys(ALLOCATION_ANNOTATIONS)}}
    with suppress(NotFoundError):
        await client.patch(paths.pod(metadata["namespace"], metadata["name"]), body)
