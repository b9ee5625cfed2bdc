"""Which nodes' device plugins have gone silent, told by their Leases.

Clocks of machines are not compared. A Lease's age is measured here, from when it was last seen to change, and only in
time during which the watch brought anything: when the watch is down, or the API server is away, nobody ages. After a
restart of the extender every node is as good as new.
"""

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from kube import paths
from kube.client import Json, KubeClient
from kube.listwatch import Change, Snapshot, list_watch
from protocol.heartbeat import STALE_SECONDS, node_of
from protocol.placement import Refusal

_LONGEST_GAP: Final = 5.0
"""Seconds between two events that still count as heard: the active extender's own Lease changes more often."""
_STEPS: Final = ((86400, "1 day"), (3600, "1 h"), (600, "10 min"), (180, "3 min"))


@dataclass(frozen=True, slots=True)
class _Beat:
    """The last change of a Lease: what it said, and when it was seen."""

    renewed: object
    seen: float


class Heartbeats:
    """The plugins' Leases. Written by `see`, in one task; read by any other in the same event loop.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beats: dict[str, _Beat] = {}
        self._last_heard: float | None = None
        self._observed = 0.0

    def count(self) -> int:
        """Return how many nodes have a Lease."""
        return len(self._beats)

    async def run(self, client: KubeClient, namespace: str, on_snapshot: Callable[[], None] = lambda: None) -> None:
        """Follow the Leases of a namespace until cancelled.

        Args:
            client: the API server.
            namespace: of the Leases.
            on_snapshot: called each time that the watch began anew.
        """
        async with aclosing(list_watch(client, paths.leases(namespace))) as updates:
            async for update in updates:
                self.see(update)
                if isinstance(update, Snapshot):
                    on_snapshot()

    def see(self, update: Snapshot | Change) -> None:
        """Take in what happened to the Leases of the namespace, of which some are plugins'."""
        self._hear()
        if isinstance(update, Snapshot):
            before, self._beats = self._beats, {}
            for item in update.items:
                self._take(item, before)
        elif update.kind == "DELETED":
            self._beats.pop(_node(update.item) or "", None)
        else:
            self._take(update.item, self._beats)

    def silence(self, node: str) -> float | None:
        """Return for how many seconds a node's plugin has been silent, None for a node that never had a Lease."""
        beat = self._beats.get(node)
        return None if beat is None else self._observed - beat.seen

    def is_silent(self, node: str) -> bool:
        """Return whether a node's plugin must be taken to be down."""
        return (self.silence(node) or 0.0) > STALE_SECONDS

    def silent_count(self) -> int:
        """Return how many nodes' plugins must be taken to be down."""
        return sum(map(self.is_silent, self._beats))

    def refusal(self, node: str) -> Refusal | None:
        """Return why nothing is placed on a node whose plugin is silent; None while it is not.

        In steps, so that kube-scheduler can sum up many nodes. No other pod's end would help.
        """
        silence = self.silence(node)
        if silence is None or silence <= STALE_SECONDS:
            return None
        least = next((words for seconds, words in _STEPS if silence >= seconds), f"{STALE_SECONDS:.0f} s")
        return Refusal(f"the device plugin on this node has been silent for more than {least}", permanent=True)

    def _take(self, item: Json, known: dict[str, _Beat]) -> None:
        node = _node(item)
        if node is None:
            return
        renewed, before = (item.get("spec") or {}).get("renewTime"), known.get(node)
        is_new = before is None or before.renewed != renewed
        self._beats[node] = _Beat(renewed, self._observed) if before is None or is_new else before

    def _hear(self) -> None:
        now = self._monotonic()
        if self._last_heard is not None:
            self._observed += min(now - self._last_heard, _LONGEST_GAP)
        self._last_heard = now


def _node(item: Json) -> str | None:
    return node_of(str((item.get("metadata") or {}).get("name", "")))
