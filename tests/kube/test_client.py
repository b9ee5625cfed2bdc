"""The API client: errors by kind, and a time limit on everything."""

import asyncio
import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from aiohttp import web

from kube import client as client_module
from kube import paths
from kube.client import ConflictError, ExpiredError, KubeClient, KubeError, NotFoundError, UnreachableError
from tests.kube.conftest import Connect, write_kubeconfig


def status(code: int, reason: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"{reason}!"}
    return web.json_response(body, status=code)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", ConflictError),
        (410, "Expired", ExpiredError),
        (403, "Forbidden", KubeError),
        (500, "InternalError", KubeError),
    ],
)
async def test_a_refusal_has_its_kind_and_words(faulty: Connect, code: int, reason: str, kind: type[KubeError]) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return status(code, reason)

    async with faulty(refuse) as client:
        with pytest.raises(kind, match=f"GET /api/v1/nodes/a: {reason}!") as error:
            await client.get(paths.node("a"))
    assert (error.value.status, error.value.reason) == (code, reason)


async def test_d1_a_server_that_says_nothing_is_given_up(faulty: Connect) -> None:
    async def stay_silent(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with faulty(stay_silent) as client:
        with pytest.raises(UnreachableError, match="GET /api/v1/nodes/a: TimeoutError"):
            await client.get(paths.node("a"))


async def test_d1_a_watch_that_falls_silent_is_given_up(faulty: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_WATCH_SILENCE_SECONDS", 0.2)

    async def fall_silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n')
        await asyncio.Event().wait()
        return response

    seen = []
    async with faulty(fall_silent) as client:
        with pytest.raises(UnreachableError, match="watch /api/v1/nodes"):
            seen.extend([event async for event in client.watch(paths.NODES, resource_version="1")])


@pytest.mark.parametrize("text", ["", "<html>", "[1", "[]", "null", "\xff"])
async def test_an_answer_that_is_no_json_is_no_answer(faulty: Connect, text: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    async with faulty(answer) as client:
        with pytest.raises(UnreachableError):
            await client.get(paths.node("a"))


async def test_an_error_page_of_a_proxy_is_cut_and_shown(faulty: Connect) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=502, text="<h1>Bad gateway</h1>" * 100)

    async with faulty(answer) as client:
        with pytest.raises(KubeError, match="Bad gateway") as error:
            await client.get(paths.node("a"))
    assert len(str(error.value)) < 300


async def test_a_closed_port_is_unreachable(tmp_path: Path) -> None:
    async with KubeClient.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1")) as client:
        with pytest.raises(UnreachableError):
            await client.get(paths.node("a"))


async def test_a_list_of_several_pages_comes_whole(faulty: Connect) -> None:
    async def pages(request: web.Request) -> web.Response:
        last = request.query.get("continue") == "next"
        metadata = {"resourceVersion": "7"} if last else {"resourceVersion": "7", "continue": "next"}
        assert request.query["fieldSelector"] == "spec.nodeName=a"
        return web.json_response({"items": [{"n": 2 if last else 1}], "metadata": metadata})

    async with faulty(pages) as client:
        assert await client.list(paths.PODS, field_selector="spec.nodeName=a") == ([{"n": 1}, {"n": 2}], "7")


async def test_the_token_is_sent_and_bodies_have_their_type(faulty: Connect) -> None:
    seen = {}

    async def record(request: web.Request) -> web.Response:
        seen[request.method] = (request.headers["Authorization"], request.content_type, await request.text())
        return web.json_response({})

    async with faulty(record) as client:
        await client.patch(paths.node("a"), {"metadata": {"annotations": {"k": None}}})
        await client.create(paths.PODS, {"kind": "Pod"})
    authorization, kind, body = seen["PATCH"]
    assert (authorization, kind) == ("Bearer not-a-secret", "application/merge-patch+json")
    assert json.loads(body) == {"metadata": {"annotations": {"k": None}}}, "null takes a key away: it must be sent"
    assert seen["POST"][1] == "application/json"


async def test_hostile_names_stay_in_their_place(faulty: Connect) -> None:
    asked = []

    async def record(request: web.Request) -> web.Response:
        asked.append([unquote(part) for part in request.raw_path.split("/")])
        return web.json_response({})

    async with faulty(record) as client:
        await client.get(paths.pod("../../nodes", "a/b?x=%2e#y"))
    assert asked == [["", "api", "v1", "namespaces", "../../nodes", "pods", "a/b?x=%2e#y"]]
