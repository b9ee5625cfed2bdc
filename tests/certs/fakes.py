"""Stand-in for the API server: objects with resource versions and generations, in memory, without any waiting."""

import copy
import itertools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from kube import paths
from kube.client import ConflictError, Json, NotFoundError, UnreachableError

T = TypeVar("T")

NAMESPACE = "amd-vgpu"
SECRET = "amd-vgpu-webhook-tls"
CONFIGURATION = "amd-vgpu"
SECRET_PATH = paths.named(paths.secrets(NAMESPACE), SECRET)
CONFIGURATION_PATHS = tuple(
    paths.named(collection, CONFIGURATION) for collection in (paths.MUTATING_WEBHOOKS, paths.VALIDATING_WEBHOOKS)
)


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waits")


class FakeApi:
    """Objects by path. `lose` says of the next write whether it gets lost, or only its answer."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.lose: str = ""
        self.on_write: Callable[[str], None] = lambda _: None
        self._versions = itertools.count(1)

    async def get(self, path: str) -> Json:
        if path not in self.objects:
            raise NotFoundError(path, status=404)
        return copy.deepcopy(self.objects[path])

    async def create(self, collection: str, body: Mapping[str, Any]) -> Json:
        path = paths.named(collection, body["metadata"]["name"])
        if path in self.objects:
            raise ConflictError(path, status=409, reason="AlreadyExists")
        return self._write(path, {**body, "metadata": {**body["metadata"], "uid": f"uid-{next(self._versions)}"}})

    async def replace(self, path: str, body: Mapping[str, Any]) -> Json:
        if path not in self.objects:
            raise NotFoundError(path, status=404)
        if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            raise ConflictError(path, status=409)
        return self._write(path, body)

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Write as somebody who asks nobody."""
        found = self.objects.get(path, {"metadata": {"uid": f"uid-{next(self._versions)}"}})
        self._store(path, {**body, "metadata": {**found["metadata"], **body.get("metadata", {})}})

    def set_bundle(self, path: str, bundle: str) -> None:
        item = copy.deepcopy(self.objects[path])
        for webhook in item["webhooks"]:
            webhook["clientConfig"]["caBundle"] = bundle
        self.put(path, item)

    def _write(self, path: str, body: Mapping[str, Any]) -> Json:
        lose, self.lose = self.lose, ""
        if lose == "write":
            raise UnreachableError(path)
        self._store(path, body)
        self.on_write(path)
        if lose == "answer":
            raise UnreachableError(path)
        return copy.deepcopy(self.objects[path])

    def _store(self, path: str, body: Mapping[str, Any]) -> None:
        item = copy.deepcopy(dict(body))
        generation = self.objects.get(path, {}).get("metadata", {}).get("generation", 0)
        if self.objects.get(path, {}).get("webhooks") != item.get("webhooks"):
            generation += 1
        item["metadata"] = {
            **item["metadata"],
            "resourceVersion": str(next(self._versions)),
            "generation": generation,
        }
        self.objects[path] = item


def configuration(webhooks: int) -> Json:
    """Return a webhook configuration as an administrator applies it: without any CA bundle."""
    return {
        "metadata": {"name": CONFIGURATION},
        "webhooks": [{"name": f"w{index}", "clientConfig": {"url": "https://127.0.0.1/"}} for index in range(webhooks)],
    }
