"""Releasing node locks that nobody needs, as soon as the watch shows it: no pod has to come by first."""

import asyncio
import logging
from typing import Final

from kube.client import KubeError
from scheduler.leader import Alone, Leadership
from scheduler.nodelock import NodeLocks
from scheduler.state import ClusterState

log = logging.getLogger(__name__)

_RECHECK_SECONDS: Final = 5.0


async def keep_locks_tidy(state: ClusterState, locks: NodeLocks, leadership: Leadership | None = None) -> None:
    """Release stale locks until cancelled, for as long as this replica is active.

    A holder that is deleted or never bound is not seen, only missed, so locks are looked at again after a while too.
    """

    def due() -> list[str]:
        return [node for node in state.locked_nodes() if locks.seems_stale(node)]

    leadership = leadership or Alone()
    while True:
        await leadership.wait_held()
        try:
            async with asyncio.timeout(_RECHECK_SECONDS):
                await state.wait_until(lambda: bool(due()))
        except TimeoutError:
            continue
        for node in due():
            await _release(locks, node)
        # What was released is seen as released only when the watch says so.
        await asyncio.sleep(_RECHECK_SECONDS / 10)


async def _release(locks: NodeLocks, node: str) -> None:
    try:
        await locks.release_if_stale(node)
    except KubeError as error:
        log.warning("node %s: its lock could not be looked at: %s", node, error)
