"""Binds under way: at the end of the process those that only wait are sent away, the others finish."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class OpenBinds:
    """Binds by the time limit that each of them has while it waits. Lives in one event loop."""

    def __init__(self) -> None:
        self.closing = False
        self._open: set[asyncio.Timeout] = set()
        self._waiting: set[asyncio.Timeout] = set()
        self._none_left = asyncio.Event()

    @asynccontextmanager
    async def waiting(self, limit: asyncio.Timeout) -> AsyncIterator[None]:
        """Count a bind for the time of the block, at first as one that waits.

        While `closing` its limit is over at once, so that the caller ends with the TimeoutError of its own limit.
        """
        self._open.add(limit)
        self._waiting.add(limit)
        if self.closing:
            _end(limit)
        try:
            yield
        finally:
            self._open.discard(limit)
            self._waiting.discard(limit)
            if self.closing and not self._open:
                self._none_left.set()

    def wait_no_more(self, limit: asyncio.Timeout) -> None:
        """Note that a bind has begun to change things, and is to be finished."""
        self._waiting.discard(limit)

    async def close(self) -> None:
        """End the limits of those that wait, now and in future, and return when no bind is open."""
        self.closing = True
        for limit in self._waiting:
            _end(limit)
        if self._open:
            await self._none_left.wait()


def _end(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time())
