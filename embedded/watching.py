"""Waiting for one object to be as it should, by watching it."""

from collections.abc import Callable
from contextlib import aclosing

from kube.client import Json, KubeClient
from kube.listwatch import Snapshot, list_watch


async def until(client: KubeClient, collection: str, name: str, fits: Callable[[Json | None], bool]) -> Json | None:
    """Return an object as soon as it fits; None stands for one that is not there. Bound it with `asyncio.timeout`.

    Args:
        client: the API server.
        collection: path of its collection.
        name: of the object.
        fits: told each state of it.
    """
    async with aclosing(list_watch(client, collection, field_selector=f"metadata.name={name}")) as updates:
        async for update in updates:
            if isinstance(update, Snapshot):
                item = update.items[0] if update.items else None
            else:
                item = None if update.kind == "DELETED" else update.item
            if fits(item):
                return item
    raise AssertionError("a list-watch does not end")
