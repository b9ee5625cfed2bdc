"""Clients that are slow, and bodies that are big, deep or odd: an answer with a reason, and nobody else waits."""

import asyncio
import json
import threading
from typing import Any

import pytest

from tests.webhook.https import PATIENCE, Running, TlsContexts, running
from tests.webhook.makers import ALLOWED, Object, decode_patch, gpu_container, pod, review, review_bytes
from webhook.app import THREAD
from webhook.review import LARGE_BODY, may_concern
from webhook.settings import WebhookSettings

BOTH = pytest.mark.parametrize("path", ["/mutate", "/validate"])
BIG_POD = pod(gpu_container(gpu="1") | {"env": [{"name": "A", "value": "x" * LARGE_BODY}]})


def _nested(depth: int, opening: str, closing: str) -> bytes:
    """A review of a pod that names a resource, whose value is deeply nested."""
    text = json.dumps(review(pod(gpu_container(gpu="deep"))))
    return text.replace('"deep"', opening * depth + "1" + closing * depth).encode()


@BOTH
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [10, 100, 500, 900, 940, 960, 980, 1000, 100_000])
async def test_deep_nesting_is_the_clients_fault(
    server: Running, path: str, depth: int, opening: str, closing: str
) -> None:
    status, answer = await server.post(path, _nested(depth, opening, closing))
    if status == 200:
        assert answer["response"]["allowed"] is False
    else:
        assert (status, answer) == (400, {"error": "the body is nested too deeply"})


@BOTH
@pytest.mark.parametrize("field", ["volumes", "env"])
async def test_a_template_that_is_nested_deeply_can_be_compared(server: Running, path: str, field: str) -> None:
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    for depth in range(800, 1000, 10):
        inner: Any = []
        for _ in range(depth):
            inner = [inner]
        body = f'{{"marker": "amd.com/", "spec": {{"template": {{"spec": {{"{field}": %s}}}}}}}}'
        workload = body % ("[" * depth + "]" * depth)
        text = review_bytes(None, "UPDATE", kind=kind, oldObject={"a": "OLD"}).decode()
        text = text.replace('"object": null', f'"object": {workload}').replace('{"a": "OLD"}', workload)
        status, _ = await server.post(path, text.encode())
        assert status in {200, 400}


@BOTH
@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1" * 5000, "1e999999", "-0.0", "1E400", "true", "[]"]
)
async def test_numbers_that_are_none(server: Running, path: str, value: str) -> None:
    text = json.dumps(review(pod(gpu_container(gpucores="number")))).replace('"number"', value)
    status, answer = await server.post(path, text.encode())
    assert status in {200, 400}
    assert status == 400 or answer["response"]["allowed"] is False


@BOTH
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
@pytest.mark.parametrize("value", [[], "amd.com/gpu", 1, True, {"spec": []}, {"spec": {"containers": 5}}])
async def test_any_type_anywhere(server: Running, path: str, kind: str, value: Any) -> None:
    group = "" if kind == "Pod" else "apps"
    template = value if kind == "Pod" else {"spec": {"template": value}}
    body = review_bytes(template, kind={"group": group, "version": "v1", "kind": kind}, note="amd.com/")
    status, _ = await server.post(path, body)
    assert status in {200, 400}


async def test_a_big_body_is_answered(server: Running) -> None:
    response = await server.ask("/mutate", BIG_POD)
    assert len(decode_patch(response)) == 3


async def test_big_bodies_do_not_keep_small_ones_waiting(server: Running) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def occupy() -> None:
        busy.set()
        go_on.wait(PATIENCE)

    server.app[THREAD].submit(occupy)
    try:
        assert busy.wait(PATIENCE)
        big = asyncio.create_task(server.ask("/mutate", BIG_POD))
        assert await server.ask("/mutate", pod()) == ALLOWED
        assert not big.done()
    finally:
        go_on.set()
    assert (await big)["allowed"] is True


async def test_what_is_no_review_gets_a_reason_from_the_thread_too(server: Running) -> None:
    status, answer = await server.post("/mutate", b"x" * (LARGE_BODY + 1))
    assert (status, answer) == (400, {"error": "the body is not JSON"})


async def test_a_slow_body_is_cut_off(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings(), body_seconds=0.05) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls.client)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 100\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b'{"error": "the body did not come in time"}')
        writer.close()


@pytest.mark.parametrize("beginning", [b"", b"POST /mutate HTTP/1.1\r\nHost: web"])
async def test_a_connection_without_a_request_is_cut_off(
    tls: TlsContexts, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr("webhook.server._KEEP_ALIVE_SECONDS", 0.05)
    async with running(tls, WebhookSettings()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls.client)
        writer.write(beginning)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()


@pytest.mark.parametrize(
    ("body", "concerns"),
    [
        (review_bytes(pod()), False),
        (review_bytes(pod(gpu_container(gpu="1"))), True),
        (b'{"hami.io/vgpu-node": 1}', True),
        (rb'{"amd.com\/gpu": 1}', True),
        (rb'{"amd.com\u002fgpu": 1}', True),
        (rb'{"text": "two\nlines and a \"quote\""}', False),
    ],
)
def test_only_bodies_that_may_concern_the_rules_are_judged(body: bytes, concerns: bool) -> None:
    assert may_concern(body) is concerns


async def test_pods_without_gpus_cost_no_rule(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("webhook.decision.shape_faults", fail)
    manifest: Object = pod({"name": "main", "image": "nginx", "resources": {"limits": {"cpu": "1"}}})
    assert await server.ask("/mutate", manifest) == ALLOWED
    assert await server.ask("/validate", manifest) == ALLOWED
