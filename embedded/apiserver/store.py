"""The objects and their history. One counter gives every change its resource version, as etcd's revision does.

Stored objects are never changed, only replaced, so whoever holds one may keep it. Each is turned into JSON once, when
it is stored; reads and watches share the bytes.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Literal

from embedded.apiserver.resources import PODS, Resource
from embedded.apiserver.selectors import field_value

Json = dict[str, Any]
Key = tuple[str, str]
Kind = Literal["ADDED", "MODIFIED", "DELETED"]

_INDEXED: Final = {PODS: ("spec.nodeName",)}
"""Fields that lists are so often restricted to that an index is worth it; the real API server has the same one."""


class TooOldError(Exception):
    """The history does not reach back to a resource version; its arguments are that one and the oldest it reaches."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object.

    Attributes:
        version: its resource version.
        item: the object, without kind and apiVersion. Not to be changed.
        tail: its JSON without the opening brace, to be put behind a beginning that says the kind.
    """

    version: int
    item: Json
    tail: bytes

    @classmethod
    def of(cls, item: Mapping[str, Any], version: int) -> "Stored":
        """Return an object as it is stored under a version."""
        metadata = {**item["metadata"], "resourceVersion": str(version)}
        kept: Json = {key: value for key, value in item.items() if key not in {"kind", "apiVersion", "metadata"}}
        whole = {"metadata": metadata, **kept}
        return cls(version, whole, json.dumps(whole, separators=(",", ":")).encode()[1:])


@dataclass(frozen=True, slots=True)
class Event:
    """One change: what was there before, and what is there after, or was last."""

    kind: Kind
    before: Stored | None
    after: Stored

    @property
    def version(self) -> int:
        """The resource version of the change."""
        return self.after.version


class Collection:
    """All objects of one resource, and their latest changes."""

    def __init__(self, resource: Resource, *, start: int, history: int) -> None:
        self._objects: dict[Key, Stored] = {}
        self._index: dict[str, dict[str, dict[Key, Stored]]] = {
            path: defaultdict(dict) for path in _INDEXED.get(resource, ())
        }
        self._events: deque[Event] = deque(maxlen=history)
        self._forgotten = start
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> Stored | None:
        """Return an object, or None."""
        return self._objects.get(key)

    def all(self, namespace: str, equal: Sequence[tuple[str, str]] = ()) -> list[Stored]:
        """Return the objects of a namespace, or of all for an empty one, by namespace and name.

        Args:
            namespace: whose.
            equal: fields and values of which one may be looked up, to return fewer; the caller selects all the same.
        """
        found = self._objects
        for path, value in equal:
            if path in self._index:
                found = self._index[path].get(value, {})
        keys = sorted(key for key in found if not namespace or key[0] == namespace)
        return [found[key] for key in keys]

    def after(self, version: int) -> list[Event]:
        """Return the changes after a resource version, oldest first.

        Raises:
            TooOldError: some of them are forgotten.
        """
        if version < self._forgotten:
            raise TooOldError(version, self._forgotten)
        newest = takewhile(lambda event: event.version > version, reversed(self._events))
        return list(newest)[::-1]

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def apply(self, key: Key, event: Event) -> None:
        """Take in a change."""
        if len(self._events) == self._events.maxlen:
            self._forgotten = self._events[0].version
        self._events.append(event)
        self._reindex(key, event)
        if event.kind == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = event.after
        self._changed.set()
        self._changed = asyncio.Event()

    def _reindex(self, key: Key, event: Event) -> None:
        for path, by_value in self._index.items():
            if event.before is not None:
                value = field_value(event.before.item, path)
                by_value[value].pop(key, None)
                if not by_value[value]:
                    del by_value[value]
            if event.kind != "DELETED":
                by_value[field_value(event.after.item, path)][key] = event.after


class Store:
    """All collections, under one counter.

    Args:
        history: how many changes of each resource are remembered for watches.
    """

    def __init__(self, *, history: int = 10_000) -> None:
        self.version = 1
        self._history = history
        self._collections: dict[Resource, Collection] = {}

    def collection(self, resource: Resource) -> Collection:
        """Return the objects of one resource."""
        if resource not in self._collections:
            self._collections[resource] = Collection(resource, start=1, history=self._history)
        return self._collections[resource]

    def put(self, resource: Resource, item: Mapping[str, Any]) -> Stored:
        """Store an object, new or in place of what is there."""
        collection = self.collection(resource)
        key = key_of(item)
        before = collection.get(key)
        self.version += 1
        stored = Stored.of(item, self.version)
        collection.apply(key, Event("MODIFIED" if before else "ADDED", before, stored))
        return stored

    def remove(self, resource: Resource, key: Key) -> Stored:
        """Take an object away and return how it was last."""
        collection = self.collection(resource)
        before = collection.get(key)
        if before is None:
            raise KeyError(key)
        self.version += 1
        last = Stored.of(before.item, self.version)
        collection.apply(key, Event("DELETED", before, last))
        return last


def key_of(item: Mapping[str, Any]) -> Key:
    """Return where an object is stored: namespace, empty if it has none, and name."""
    metadata = item["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])
