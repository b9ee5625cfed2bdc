"""The list-watch loop through every end of a watch."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from kube import listwatch, paths
from kube.listwatch import Change, Snapshot, list_watch
from tests.kube.conftest import Connect


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


async def test_d2_an_expired_watch_lists_again(faulty: Connect) -> None:
    script = Script(lists=[[named("a")], [named("c")]], watches=[[GONE], ["stay"]])
    assert await follow(faulty, script, 2) == [Snapshot((named("a"),), "10"), Snapshot((named("c"),), "10")]


@pytest.mark.parametrize("end", ["cut", BROKEN])
async def test_a_broken_watch_lists_again(faulty: Connect, end: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listwatch, "_FIRST_DELAY", 0.01)
    script = Script(lists=[[named("a")], 500, [named("c")]], watches=[[end], ["stay"]])
    assert await follow(faulty, script, 2) == [Snapshot((named("a"),), "10"), Snapshot((named("c"),), "10")]
