"""A flood of odd pods through the running server: never its fault, never a patch that is wrong or has to be repeated.

`WEBHOOK_FLOOD` is the number of pods; 10,000 take some minutes.
"""

import asyncio
import http.client
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings

from tests.webhook.https import PATIENCE, TlsContexts
from tests.webhook.makers import Object, decode_patch, review_bytes
from tests.webhook.strategies import LIKELY_PODS, ODD_PODS, SPOILT_PODS
from webhook.app import make_app
from webhook.library import READ_ONLY_EXPECTATION
from webhook.server import serve
from webhook.settings import ServerSettings, WebhookSettings

COUNT = int(os.environ.get("WEBHOOK_FLOOD", "200"))
FLOOD = settings(
    max_examples=COUNT // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

Connection = http.client.HTTPSConnection


@pytest.fixture(scope="module")
def connection(tls: TlsContexts) -> Iterator[Connection]:
    """One connection to a server that runs in a thread, as the flood is not asynchronous."""
    loop = asyncio.new_event_loop()
    listening: list[int] = []
    ready = threading.Event()

    def on_listening(port: int) -> None:
        listening.append(port)
        ready.set()

    settings = ServerSettings("127.0.0.1", 0, drain_seconds=0)
    task = loop.create_task(serve(make_app(WebhookSettings()), tls.server, settings, on_listening))
    thread = threading.Thread(target=_run_until_cancelled, args=(loop, task))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        client = Connection("127.0.0.1", listening[0], context=tls.client, timeout=PATIENCE)
        yield client
        client.close()
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE)
        loop.close()


def _run_until_cancelled(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    asyncio.set_event_loop(loop)
    loop.run_until_complete(asyncio.wait({task}))


def _ask(connection: Connection, path: str, manifest: Any) -> Object:
    connection.request("POST", path, review_bytes(manifest))
    response = connection.getresponse()
    answer: Object = json.loads(response.read())
    assert response.status == 200, answer
    decision: Object = answer["response"]
    return decision


def _assert_sound(connection: Connection, manifest: Any) -> None:
    mutation, validation = _ask(connection, "/mutate", manifest), _ask(connection, "/validate", manifest)
    if not mutation["allowed"]:
        # A mount of a volume that only the mutation adds is none of ours before.
        assert not validation["allowed"] or READ_ONLY_EXPECTATION in mutation["status"]["message"]
        assert mutation["status"]["message"]
        return
    patched = jsonpatch.apply_patch(manifest, decode_patch(mutation)) if "patch" in mutation else manifest
    assert _ask(connection, "/validate", patched)["allowed"]
    assert "patch" not in _ask(connection, "/mutate", patched)


@FLOOD
@given(manifest=ODD_PODS)
def test_odd_pods(connection: Connection, manifest: Object) -> None:
    _assert_sound(connection, manifest)


@FLOOD
@given(manifest=LIKELY_PODS)
def test_pods_that_are_mostly_right(connection: Connection, manifest: Object) -> None:
    _assert_sound(connection, manifest)


@FLOOD
@given(manifest=SPOILT_PODS)
def test_pods_with_something_else_somewhere(connection: Connection, manifest: Object) -> None:
    _assert_sound(connection, manifest)
