"""Waiting: with growing delays for an API server that is away, and for the first of several events."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from kube.client import KubeError

log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 2.0
_FINAL: Final = frozenset({400, 404, 409, 410, 422})
"""Answers that a repetition does not change. Refused credentials are not among them: a starting API server says 401 or
403 until it has read its own rules."""


def is_passing(error: KubeError) -> bool:
    """Return whether the same call may succeed a little later."""
    return error.status not in _FINAL


class Backoff:
    """A delay that doubles with every use.

    Args:
        first: seconds of the first pause.
        longest: seconds that no pause exceeds.
    """

    def __init__(self, first: float = _FIRST_DELAY, longest: float = _LONGEST_DELAY) -> None:
        self._first = first
        self._longest = longest
        self._delay = first

    def next(self) -> float:
        """Return the delay that is due and double it."""
        delay = self._delay
        self._delay = min(delay * 2, self._longest)
        return delay

    def reset(self) -> None:
        """Start again with the first delay."""
        self._delay = self._first


class Patience:
    """Repeats calls to the API server for as long as they fail for a passing reason; the caller bounds the time.

    Attributes:
        last_error: why the last repetition was needed.
    """

    def __init__(self) -> None:
        self.last_error = "no answer from the API server"

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what the call gives in the end, or raise what a repetition would not change."""
        backoff = Backoff()
        while True:
            try:
                return await call()
            except KubeError as error:
                self.note(error)
            await asyncio.sleep(backoff.next())

    def note(self, error: KubeError) -> None:
        """Remember an error that may pass, and raise any other."""
        if not is_passing(error):
            raise error
        self.last_error = str(error)
        log.warning("will be tried again: %s", error)


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Return what two calls give that run side by side; the first error of either ends both and is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            first, second = tasks.create_task(one), tasks.create_task(other)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return first.result(), second.result()


async def first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of the events is set, or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
