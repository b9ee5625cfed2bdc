"""The list-watch loop through every end of a watch."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, cast

import pytest
from aiohttp import web

from kube import listwatch, paths
from kube.client import ExpiredError, KubeClient, KubeError, UnreachableError
from kube.listwatch import Change, Snapshot, list_watch
from tests.kube.conftest import Connect
from tests.scheduler.virtual_time import run


def named(name: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


class Script:
    """A collection whose lists and watches are told beforehand, one entry for each call."""

    def __init__(self, *, lists: list[Any], watches: list[list[Any]]) -> None:
        self.lists = lists
        self.watches = watches
        self.watched_from: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            answer = self.lists.pop(0)
            if isinstance(answer, int):
                return web.json_response({"message": "no"}, status=answer)
            return web.json_response({"items": answer, "metadata": {"resourceVersion": "10"}})
        self.watched_from.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        for event in self.watches.pop(0):
            if event == "cut":
                assert request.transport is not None
                request.transport.abort()
            elif event == "stay":
                await asyncio.Event().wait()
            else:
                await response.write(json.dumps(event).encode() + b"\n")
        return response


async def follow(faulty: Connect, script: Script, count: int) -> list[Snapshot | Change]:
    updates: list[Snapshot | Change] = []
    async with (
        faulty(script.answer) as client,
        asyncio.timeout(10),
        aclosing(list_watch(client, paths.NODES)) as stream,
    ):
        async for update in stream:
            updates.append(update)
            if len(updates) == count:
                break
    return updates


ADDED = {"type": "ADDED", "object": named("b", "11")}
BOOKMARK = {"type": "BOOKMARK", "object": named("", "15")}
GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
BROKEN = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}}


async def test_a_snapshot_then_changes(faulty: Connect) -> None:
    deleted = {"type": "DELETED", "object": named("a", "12")}
    script = Script(lists=[[named("a")]], watches=[[ADDED, deleted, "stay"]])
    assert await follow(faulty, script, 3) == [
        Snapshot((named("a"),), "10"),
        Change("ADDED", named("b", "11")),
        Change("DELETED", named("a", "12")),
    ]
    assert script.watched_from == ["10"]


async def test_d3_an_ended_watch_goes_on_from_the_last_version_without_a_list(faulty: Connect) -> None:
    script = Script(lists=[[]], watches=[[ADDED, BOOKMARK], [ADDED, "stay"]])
    updates = await follow(faulty, script, 3)
    assert [type(update) for update in updates] == [Snapshot, Change, Change]
    assert script.watched_from == ["10", "15"]


async def test_a_pod_of_many_megabytes_is_a_change_like_any_other(faulty: Connect) -> None:
    """As a user makes one: a megabyte of `<` is six on the wire."""
    huge = {**named("p", "11"), "spec": {"containers": [{"env": [{"name": "E", "value": "<" * 6_000_000}]}]}}
    following = {"type": "MODIFIED", "object": named("p", "12")}
    script = Script(lists=[[]], watches=[[{"type": "ADDED", "object": huge}, following, "stay"]])
    _, first, second = await follow(faulty, script, 3)
    assert first == Change("ADDED", huge)
    assert second == Change("MODIFIED", named("p", "12"))


class Refusing:
    """A client whose lists work and whose watches do not; in virtual time, as the pauses are what is looked at."""

    def __init__(self, refusal: KubeError | None) -> None:
        self.refusal = refusal
        self.calls: list[float] = []

    async def list(self, _path: str, **_more: str) -> tuple[list[Any], str]:
        return [], "10"

    async def watch(self, _path: str, **_more: str) -> AsyncGenerator[dict[str, Any], None]:
        self.calls.append(asyncio.get_running_loop().time())
        if len(self.calls) > 1000:  # in virtual time a loop without a pause would never end
            pytest.fail(f"{len(self.calls)} watches within {self.calls[-1]:g} s")
        if self.refusal is not None:
            raise self.refusal
        return
        yield {}


@pytest.mark.parametrize(
    "refusal", [ExpiredError("too old", status=410), KubeError("slow down", status=429), UnreachableError("cut"), None]
)
def test_a_server_that_refuses_only_watches_is_not_made_to_list_all_the_time(refusal: KubeError | None) -> None:
    async def scenario() -> list[float]:
        client = Refusing(refusal)
        with suppress(TimeoutError):
            async with asyncio.timeout(100), aclosing(list_watch(cast("KubeClient", client), paths.PODS)) as updates:
                async for _ in updates:
                    pass
        return client.calls

    calls = run(scenario())
    assert calls[1] <= 1, "one refusal means nothing"
    assert len(calls) < 20


async def test_d2_an_expired_watch_lists_again(faulty: Connect) -> None:
    script = Script(lists=[[named("a")], [named("c")]], watches=[[GONE], ["stay"]])
    assert await follow(faulty, script, 2) == [Snapshot((named("a"),), "10"), Snapshot((named("c"),), "10")]


@pytest.mark.parametrize("end", ["cut", BROKEN])
async def test_a_broken_watch_lists_again(faulty: Connect, end: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listwatch, "_FIRST_DELAY", 0.01)
    script = Script(lists=[[named("a")], 500, [named("c")]], watches=[[end], ["stay"]])
    assert await follow(faulty, script, 2) == [Snapshot((named("a"),), "10"), Snapshot((named("c"),), "10")]
