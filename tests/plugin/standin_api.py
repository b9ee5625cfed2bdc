"""A stand-in for the API server: nodes and pods over real HTTP, with the preconditions of a real one.

It knows get, list and watch of pods by `spec.nodeName`, and merge patch, and can be made to misbehave: be away, lose
answers, change an object under a writer's hands.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from embedded.apiserver.patches import merge

Json = dict[str, Any]


@dataclass
class StandInApi:
    """The stored objects by path, and what is to go wrong.

    Attributes:
        refusing: answer everything with this HTTP status.
        away: close every connection without an answer.
        losing: apply so many patches and then close the connection without an answer.
        before_patch: called once each, with the path, before a patch is applied.
        calls: method and path of every call.
        on_call: called with method and path before anything else.
        after_call: called when a call has had its effect.
    """

    objects: dict[str, Json] = field(default_factory=dict)
    refusing: int = 0
    away: bool = False
    losing: int = 0
    before_patch: list[Callable[[str], None]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    on_call: Callable[[str, str], None] | None = None
    after_call: Callable[[], None] | None = None
    _version: int = 100
    _watchers: list[asyncio.Queue[Json]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    def put(self, path: str, item: Json) -> None:
        self._version += 1
        item.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        kind = "MODIFIED" if path in self.objects else "ADDED"
        self.objects[path] = item
        self._notify(path, kind)

    def delete(self, path: str) -> None:
        """Delete an object, as by force: nobody is asked."""
        self._notify(path, "DELETED")
        del self.objects[path]

    def _notify(self, path: str, kind: str) -> None:
        if "/pods/" in path:
            for watcher in self._watchers:
                watcher.put_nowait({"type": kind, "object": self.objects[path]})

    def notes(self, path: str) -> dict[str, str]:
        return dict(self.objects[path]["metadata"].get("annotations") or {})

    def annotate(self, path: str, notes: dict[str, str | None]) -> None:
        self.put(path, merge(self.objects[path], {"metadata": {"annotations": notes}}))

    def patches(self) -> list[str]:
        return [path for method, path in self.calls if method == "PATCH"]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        finally:
            if self.after_call is not None:
                self.after_call()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.calls.append((request.method, path))
        if self.on_call is not None:
            self.on_call(request.method, path)
        if self.away:
            return self._hang_up(request)
        if self.refusing:
            return _status(self.refusing, "Refused")
        if request.method == "GET":
            return await self._read(request)
        if request.method == "POST":
            return self._create(path, await request.json())
        assert request.method == "PATCH"
        patch = await request.json()
        if self.before_patch:
            self.before_patch.pop(0)(path)
        response = self._patch(path, patch, request.content_type)
        if self.losing:
            self.losing -= 1
            return self._hang_up(request)
        return response

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self._watch(request)
        return self._get(request.path, request.query.get("fieldSelector", ""))

    def _create(self, path: str, item: Json) -> web.Response:
        self.put(f"{path}/{item['metadata']['name']}", item)
        return web.json_response(item)

    def _get(self, path: str, selector: str) -> web.Response:
        if path == "/api/v1/pods":
            return self._list(selector)
        item = self.objects.get(path)
        return _status(404, "NotFound") if item is None else web.json_response(item)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """Tell what happens to pods until the other side hangs up."""
        node = request.query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[Json] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            while request.transport is not None:
                try:
                    event = await asyncio.wait_for(queue.get(), 0.1)
                except TimeoutError:
                    continue
                if event["object"]["spec"].get("nodeName") == node:
                    await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watchers.remove(queue)
        return response

    def _list(self, selector: str) -> web.Response:
        node = selector.removeprefix("spec.nodeName=")
        assert node
        assert node != selector
        pods = [item for path, item in self.objects.items() if "/pods/" in path]
        items = [pod for pod in pods if pod["spec"].get("nodeName") == node]
        return web.json_response({"items": items, "metadata": {"resourceVersion": str(self._version)}})

    def _patch(self, path: str, patch: Json, content_type: str) -> web.Response:
        assert content_type == "application/merge-patch+json"
        if path.endswith("/status"):
            path, patch = path.removesuffix("/status"), {"status": patch["status"]}  # the rest is passed over
        item = self.objects.get(path)
        if item is None:
            return _status(404, "NotFound")
        metadata = patch.get("metadata") or {}
        if metadata.get("resourceVersion", item["metadata"]["resourceVersion"]) != item["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        if metadata.get("uid", item["metadata"].get("uid")) != item["metadata"].get("uid"):
            return _status(422, "Invalid")
        self.put(path, merge(item, patch))
        return web.json_response(self.objects[path])

    @staticmethod
    def _hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()


def _status(code: int, reason: str) -> web.Response:
    text = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": f"stand-in: {reason}"})
    return web.Response(status=code, text=text, content_type="application/json")


async def until(api: StandInApi, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that calls to the API server bring about."""
    called = asyncio.Event()
    api.after_call = called.set
    async with asyncio.timeout(10):
        while not condition():
            called.clear()
            await called.wait()
