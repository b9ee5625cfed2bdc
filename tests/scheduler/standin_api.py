"""A stand-in for the API server, in memory: nodes and pods with what the extender relies on.

Resource versions and preconditions, consistent lists, bindings that exist once, watches that lag and break. Every call
takes time before it has its effect and again before its answer arrives, so that others come between, and whoever called
may die in either gap. How the real API server answers is tested in tests/cluster/test_extender.py.
"""

import asyncio
import copy
import random
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta

from kube import paths
from kube.client import ConflictError, ExpiredError, Json, NotFoundError, UnreachableError

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def now() -> datetime:
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


class StandInApi:
    """The store, and the calls of one client each time `client` is asked for one.

    Args:
        seed: of all chances.
        check: called after each write.
        before_1_23: bind whatever has become of a pod since it was read, as API servers before 1.23 do. A bind that is
            paused there for longer than UNBOUND_GRACE is beyond help, so pauses are shorter, and come more often.
    """

    def __init__(
        self, seed: random.Random, check: Callable[["StandInApi"], None], *, before_1_23: bool = False
    ) -> None:
        self.random = seed
        self._before_1_23 = before_1_23
        self.objects: dict[str, Json] = {}
        self.calls = 0
        self.version = 0
        self.log: list[tuple[int, str, str, Json]] = []
        self._check = check
        self._changed = asyncio.Condition()

    def put(self, path: str, item: Json) -> None:
        """Store an object and tell the watches."""
        self.version += 1
        kind = "MODIFIED" if path in self.objects else "ADDED"
        stored = copy.deepcopy(item)
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = stored
        self._tell(kind, path, stored)

    def remove(self, path: str) -> None:
        gone = self.objects.pop(path, None)
        if gone is not None:
            self.version += 1
            self._tell("DELETED", path, gone)

    def pods(self) -> list[Json]:
        return [item for path, item in self.objects.items() if "/pods/" in path]

    def _tell(self, kind: str, path: str, item: Json) -> None:
        self.log.append((self.version, kind, path, copy.deepcopy(item)))
        self._check(self)

    # The client's side

    async def get(self, path: str) -> Json:
        await self._gap()
        found = copy.deepcopy(self._existing(path))
        await self._gap()
        return found

    async def list(self, path: str, *, field_selector: str = "") -> tuple[list[Json], str]:
        await self._gap()
        node = field_selector.removeprefix("spec.nodeName=")
        found = [
            copy.deepcopy(item)
            for where, item in self.objects.items()
            if _is_in(where, path) and (not node or item["spec"].get("nodeName") == node)
        ]
        version = str(self.version)
        await self._gap()
        return found, version

    async def patch(self, path: str, body: Json) -> Json:
        await self._gap()
        item = self._existing(path)
        wanted = body["metadata"]
        for key in ("resourceVersion", "uid"):
            if key in wanted and wanted[key] != item["metadata"][key]:
                raise ConflictError(f"{path}: {key}", status=409)
        changed = copy.deepcopy(item)
        notes = changed["metadata"].setdefault("annotations", {})
        for key, value in (wanted.get("annotations") or {}).items():
            if value is None:
                notes.pop(key, None)
            else:
                notes[key] = value
        if changed != item:
            self.put(path, changed)
        answer = copy.deepcopy(self.objects[path])
        await self._gap()
        return answer

    async def create(self, path: str, body: Json) -> Json:
        """Create a Binding, the only thing that the extender creates."""
        await self._gap()
        pod_path = path.removesuffix("/binding")
        pod = self._existing(pod_path)
        for key in ("uid",) if self._before_1_23 else ("resourceVersion", "uid"):
            if body["metadata"][key] != pod["metadata"][key]:
                raise ConflictError(f"{path}: {key}", status=409)
        if pod["spec"].get("nodeName"):
            raise ConflictError(f"{path}: bound already", status=409)
        self.put(pod_path, {**pod, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}})
        await self._gap()
        return {}

    async def watch(self, path: str, *, resource_version: str, field_selector: str = "") -> AsyncGenerator[Json, None]:
        assert not field_selector
        seen = int(resource_version)
        while True:
            await self._lag()
            for version, kind, where, item in [entry for entry in self.log if entry[0] > seen]:
                seen = version
                if _is_in(where, path):
                    yield {"type": kind, "object": copy.deepcopy(item)}

    async def _lag(self) -> None:
        await asyncio.sleep(self.random.expovariate(5))
        dice = self.random.random()
        if dice < 0.02:
            raise ExpiredError("too old", status=410)
        if dice < 0.04:
            raise UnreachableError("connection lost")

    async def _gap(self) -> None:
        self.calls += 1
        # Now and then the caller is paused, for longer than a lock is left to a pod that is not bound.
        paused = self.random.random() < (0.01 if self._before_1_23 else 0.002)
        await asyncio.sleep((12 if self._before_1_23 else 45) if paused else self.random.expovariate(50))
        if self.random.random() < 0.01:
            raise UnreachableError("no answer")

    def _existing(self, path: str) -> Json:
        if path not in self.objects:
            raise NotFoundError(path, status=404)
        return self.objects[path]


def _is_in(where: str, collection: str) -> bool:
    return "/pods/" in where if collection == paths.PODS else where.startswith(f"{collection}/")
