"""A watch: the changes of a collection after a resource version, as the lines of a stream."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from embedded.apiserver.errors import expired
from embedded.apiserver.resources import Resource, Target
from embedded.apiserver.selectors import Selector
from embedded.apiserver.store import Collection, Event, Store, Stored, TooOldError

_BOOKMARK_SECONDS: Final = 60.0
_BOOKMARK_BEFORE_END: Final = 2.0
"""A bookmark comes so long before the end of a stream, so that the next one can begin there."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a client watches.

    Attributes:
        target: the collection.
        selects: which of its objects.
        since: resource version; 0 for all that is there now, and what comes.
        bookmarks: whether it wants bookmarks.
        seconds: after which the stream ends.
    """

    target: Target
    selects: Selector
    since: int
    bookmarks: bool
    seconds: float

    def seen(self, event: Event) -> tuple[str, Stored] | None:
        """Return how the client sees a change, None if not at all.

        An object that the selector selects no more is deleted to the client, in the form in which it was last selected.
        """
        is_here = self._has(event.after)
        was_here = event.before is not None and self._has(event.before)
        if event.kind == "DELETED":
            return ("DELETED", event.after) if was_here else None
        if is_here:
            return ("MODIFIED" if was_here else "ADDED", event.after)
        if was_here and event.before is not None:
            return ("DELETED", Stored.of(event.before.item, event.version))
        return None

    def _has(self, stored: Stored) -> bool:
        namespace = self.target.namespace
        if namespace and stored.item["metadata"].get("namespace") != namespace:
            return False
        if self.target.name and stored.item["metadata"]["name"] != self.target.name:
            return False
        return self.selects(stored.item)


async def lines(store: Store, watch: Watch) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a watch's stream until its time is over."""
    resource = watch.target.resource
    collection = store.collection(resource)
    version = watch.since or store.version
    if not watch.since:
        for stored in collection.all(watch.target.namespace):
            if watch.seen(Event("ADDED", None, stored)):
                yield _line(resource, "ADDED", stored)
    try:
        async with aclosing(_changes(store, watch, version)) as changes:
            async for line in changes:
                yield line
    except TooOldError as error:
        wanted, oldest = error.args
        yield _error(expired(f"too old resource version: {wanted} ({oldest})").status())


async def _changes(store: Store, watch: Watch, version: int) -> AsyncGenerator[bytes, None]:
    """Yield a line for each change after a version that the watch sees, and bookmarks between them.

    Raises:
        TooOldError: the client was too slow, or begins too early.
    """
    resource = watch.target.resource
    collection = store.collection(resource)
    begin = asyncio.get_running_loop().time()
    end = begin + watch.seconds
    for until in [*(_bookmark_times(begin, end) if watch.bookmarks else ()), end]:
        async with aclosing(_until(until, collection, version)) as events:
            async for event in events:
                version = event.version
                if (found := watch.seen(event)) is not None:
                    yield _line(resource, *found)
        if until < end:
            # As new as the store, unless something has happened in this very moment.
            version = version if collection.after(version) else max(version, store.version)
            yield _bookmark(resource, version)


async def _until(moment: float, collection: Collection, version: int) -> AsyncGenerator[Event, None]:
    """Yield the changes after a version until a moment of the event loop's clock.

    Raises:
        TooOldError: the client was too slow, or begins too early.
    """
    while True:
        events = collection.after(version)
        for event in events:
            yield event
            version = event.version
        if events:
            continue
        try:
            async with asyncio.timeout_at(moment):
                await collection.changed()
        except TimeoutError:
            return


def _bookmark_times(begin: float, end: float) -> Iterator[float]:
    moment = begin + _BOOKMARK_SECONDS
    while moment < end - _BOOKMARK_BEFORE_END:
        yield moment
        moment += _BOOKMARK_SECONDS
    yield end - _BOOKMARK_BEFORE_END


def _line(resource: Resource, kind: str, stored: Stored) -> bytes:
    head = f'{{"type":"{kind}","object":{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
    return head.encode() + stored.tail + b"}\n"


def _bookmark(resource: Resource, version: int) -> bytes:
    item = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
    }
    return json.dumps({"type": "BOOKMARK", "object": item}).encode() + b"\n"


def _error(status: dict[str, object]) -> bytes:
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
