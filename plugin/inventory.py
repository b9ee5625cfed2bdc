"""The current snapshot of the machine's GPUs, and whoever waits for the next.

A snapshot is immutable and replaced as a whole, so that nobody ever sees half of a new one.
"""

import asyncio
from collections.abc import AsyncIterator

from plugin.discovery import Snapshot
from plugin.patience import first_of


class Inventory:
    """Holds the snapshot; lives in one event loop."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._replaced = asyncio.Event()

    @property
    def snapshot(self) -> Snapshot:
        """The GPUs as they were last seen."""
        return self._snapshot

    @property
    def replaced(self) -> asyncio.Event:
        """The event that is set once the current snapshot is not current any more."""
        return self._replaced

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot and wake everybody who follows; nothing happens when it is the same."""
        if snapshot == self._snapshot:
            return
        self._snapshot = snapshot
        done, self._replaced = self._replaced, asyncio.Event()
        done.set()

    async def follow(self, closing: asyncio.Event) -> AsyncIterator[Snapshot]:
        """Yield the snapshot, and again each time that it was replaced, until `closing` is set."""
        while not closing.is_set():
            snapshot, replaced = self._snapshot, self._replaced
            yield snapshot
            await first_of(replaced, closing)
