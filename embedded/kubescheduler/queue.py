"""Pods that wait: active ones in the order in which they came, and those that failed, until something changes.

A pod that failed for want of room waits until the cluster changes, and at any rate for a minute; after each attempt it
also waits for its backoff, 1 to 10 seconds.
"""

import asyncio
import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from protocol.pods import Json, PodRef

_FIRST_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 10.0
_LONGEST_WAIT: Final = 60.0


@dataclass(slots=True)
class Waiting:
    """A pod in the queue, how often it was tried, and when it may be tried again (seconds of the event loop)."""

    pod: Json
    attempts: int = 0
    ready_at: float = 0.0
    backoff_ends: float = 0.0


class Queue:
    """Pods that are to be scheduled, by uid."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._tried: dict[str, Waiting] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def see(self, pod: Json) -> None:
        """Take in a pod, new or changed."""
        uid = PodRef.of(pod).uid
        known = self._waiting.get(uid) or self._tried.get(uid)
        if known is not None:
            known.pod = pod
        else:
            self._put(uid, Waiting(pod), self._now())

    def forget(self, uid: str) -> None:
        """Drop a pod: it is bound, or gone."""
        self._waiting.pop(uid, None)
        self._tried.pop(uid, None)

    def keep(self, uids: Iterable[str]) -> None:
        """Drop all other pods."""
        wanted = set(uids)
        for uid in {*self._waiting, *self._tried} - wanted:
            self.forget(uid)

    async def pop(self) -> Waiting:
        """Return the next pod that may be tried. It does not come again before it is put back."""
        while True:
            self._changed.clear()
            pause = self._next_pause()
            if pause is not None and pause <= 0:
                _, _, uid = heapq.heappop(self._heap)
                waiting = self._tried[uid] = self._waiting.pop(uid)
                return waiting
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def put_back(self, waiting: Waiting) -> None:
        """Let a pod wait that could not be scheduled."""
        waiting.attempts += 1
        now = self._now()
        waiting.backoff_ends = now + min(_FIRST_BACKOFF * 2 ** (waiting.attempts - 1), _LONGEST_BACKOFF)
        uid = PodRef.of(waiting.pod).uid
        if self._tried.pop(uid, None) is not None:  # unless it is gone
            self._put(uid, waiting, now + _LONGEST_WAIT)

    def something_changed(self) -> None:
        """Let all that wait be tried again when their backoff is over."""
        for uid, one in self._waiting.items():
            if one.attempts and one.ready_at > one.backoff_ends:
                self._put(uid, one, one.backoff_ends)

    def _put(self, uid: str, waiting: Waiting, ready_at: float) -> None:
        waiting.ready_at = ready_at
        self._waiting[uid] = waiting
        heapq.heappush(self._heap, (ready_at, next(self._order), uid))
        self._changed.set()

    def _next_pause(self) -> float | None:
        """Return the seconds until the next pod may be tried, None when there is none; entries out of date go."""
        while self._heap:
            ready_at, _, uid = self._heap[0]
            waiting = self._waiting.get(uid)
            if waiting is not None and waiting.ready_at == ready_at:
                return ready_at - self._now()
            heapq.heappop(self._heap)
        return None

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
