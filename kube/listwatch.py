"""List, then watch: a collection kept up to date, through every way in which a watch ends.

A consumer sees a Snapshot, which replaces all that it knew, then Changes in the server's order. After a lost or expired
watch another Snapshot follows, so an object that vanished meanwhile is simply missing from it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

from kube.client import Json, KubeClient, KubeError, UnreachableError

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 10.0
_SHORTEST_WATCH: Final = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every object of the collection, at one moment.

    Attributes:
        items: the objects.
        version: the resource version of that moment.
    """

    items: tuple[Json, ...]
    version: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One object was added, modified or deleted; `item` is its new or last state."""

    kind: Literal["ADDED", "MODIFIED", "DELETED"]
    item: Json


async def list_watch(
    client: KubeClient, path: str, *, field_selector: str = ""
) -> AsyncGenerator[Snapshot | Change, None]:
    """Yield the state of a collection and its changes for ever; the API server's absence only delays them.

    Close it when done (`contextlib.aclosing`): it holds a connection.

    Args:
        client: the API server.
        path: of the collection.
        field_selector: which of its objects, such as `metadata.name=node-a`.
    """
    clock, delay = asyncio.get_running_loop().time, _FIRST_DELAY
    while True:
        began = clock()
        try:
            items, version = await client.list(path, field_selector=field_selector)
            yield Snapshot(tuple(items), version)
            async with aclosing(_watch_from(client, path, version, field_selector)) as changes:
                async for change in changes:
                    yield change
        except KubeError as error:
            # A list that works says nothing of the watch: a server that refuses only that would be made to read the
            # whole collection again and again.
            if clock() - began > _LONGEST_DELAY:
                delay = _FIRST_DELAY
            log.warning("watching %s failed, next try in %.1f s: %s", path, delay, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)


async def _watch_from(client: KubeClient, path: str, version: str, field_selector: str) -> AsyncGenerator[Change, None]:
    """Yield changes after a resource version, through as many streams as it takes; raise when one breaks.

    One that says nothing and ends at once is broken too, or a server that is ending would be asked without a pause.
    """
    clock = asyncio.get_running_loop().time
    while True:
        began, before = clock(), version
        stream = client.watch(path, resource_version=version, field_selector=field_selector)
        async with aclosing(stream) as events:
            async for event in events:
                item: Json = event.get("object") or {}
                version = str((item.get("metadata") or {}).get("resourceVersion", version))
                match event.get("type"):
                    case "ADDED" | "MODIFIED" | "DELETED" as kind:
                        yield Change(kind, item)
                    case _:
                        pass  # a bookmark: only the version
        if version == before and clock() - began < _SHORTEST_WATCH:
            raise UnreachableError(f"watch {path}: ended at once")
