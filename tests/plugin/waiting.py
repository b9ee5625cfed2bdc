"""Waiting for what no event tells: files that appear, lines in a log."""

import asyncio
from collections.abc import Callable


async def reached(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, for at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(0.01)
