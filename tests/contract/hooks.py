"""Admission webhooks that do what a test tells them, over TLS, and a configuration that names them."""

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from aiohttp import web

from certs.authority import issue, new_authority
from certs.tls import load, new_context
from tests.contract.api import ADMISSION, Api
from tests.contract.objects import pod

Json = dict[str, Any]
Respond = Callable[[Json], Json]
Kind = Literal["Mutating", "Validating"]

ALLOW: Json = {"allowed": True}
_LABEL = "contract-hooks"


class Hooks:
    """Webhooks by name.

    Attributes:
        calls: names in the order in which they were called, and the request of each.
    """

    def __init__(self, api: Api, name: str, port: int, bundle: bytes) -> None:
        self._api = api
        self._name = name
        self.port = port
        self._bundle = base64.b64encode(bundle).decode()
        self.responses: dict[str, Respond] = {}
        self.calls: list[tuple[str, Json]] = []

    @property
    def labels(self) -> dict[str, str]:
        """Only objects with these labels concern the webhooks of this test."""
        return {_LABEL: self._name}

    def order(self) -> list[str]:
        """Return the names of the webhooks that were called, and forget the calls."""
        names, self.calls = [name for name, _ in self.calls], []
        return names

    def webhook(self, name: str, respond: Respond | None = None, **fields: Any) -> Json:
        """Return a webhook, of pods unless its fields say otherwise."""
        self.responses[name] = respond or (lambda _request: ALLOW)
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
        return {
            "name": f"{name}.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/{name}", "caBundle": self._bundle},
            "rules": [rule],
            "objectSelector": {"matchLabels": self.labels},
            **fields,
        }

    async def configure(self, kind: Kind, suffix: str, *webhooks: Json) -> None:
        """Create a configuration, and wait until it is in force."""
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": f"{self._name}-{suffix}"},
            # What shows whether a server knows the configuration yet.
            "webhooks": [*webhooks, self._probe(kind, suffix)],
        }
        await self._api.created(f"{ADMISSION}/{kind.lower()}webhookconfigurations", body)
        probe = pod(f"{self._name}-probe", labels={f"{_LABEL}-probe": f"{self._name}-{suffix}"})
        async with asyncio.timeout(20):
            while not any(name == f"probe-{suffix}" for name, _ in self.calls):
                answer = await self._api.post(self._api.path("pods"), probe, dryRun="All")
                assert answer.status == 201, answer
        self.calls.clear()

    def _probe(self, kind: Kind, suffix: str) -> Json:
        name = f"probe-{suffix}"
        selector = {"matchLabels": {f"{_LABEL}-probe": f"{self._name}-{suffix}"}}
        return {**self.webhook(name), "name": f"{name}.{kind.lower()}.example.com", "objectSelector": selector}

    async def remove(self) -> None:
        for kind in ("mutating", "validating"):
            collection = f"{ADMISSION}/{kind}webhookconfigurations"
            for item in (await self._api.get(collection)).body["items"]:
                if item["metadata"]["name"].startswith(self._name):
                    await self._api.delete(f"{collection}/{item['metadata']['name']}")

    async def answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        name = request.path.strip("/")
        self.calls.append((name, review["request"]))
        response = {"uid": review["request"]["uid"], **self.responses[name](review["request"])}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def patch(*operations: Json) -> Json:
    """Return a response that changes the object."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def annotate(key: str, value: str = "1") -> Respond:
    """Return what adds an annotation, and says how often it did."""

    def respond(request: Json) -> Json:
        notes = request["object"]["metadata"].get("annotations") or {}
        count = f"{notes.get(key, '')}{value}"
        return patch({"op": "add", "path": "/metadata/annotations", "value": {**notes, key: count}})

    return respond


def deny(message: str, code: int = 0) -> Respond:
    status = {"message": message, **({"code": code} if code else {})}
    return lambda _request: {"allowed": False, "status": status}


def server_context() -> tuple[ssl.SSLContext, bytes]:
    """Return a TLS context for 127.0.0.1, and what a client must trust."""
    now = datetime.now(UTC)
    authority = new_authority(now=now, life=timedelta(days=1), name="contract")
    context = new_context()
    load(context, issue(authority, ("127.0.0.1",), now=now, life=timedelta(hours=1)))
    return context, authority.certificate


@asynccontextmanager
async def hooks_for(api: Api, name: str) -> AsyncIterator[Hooks]:
    context, bundle = server_context()
    app = web.Application()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hooks = Hooks(api, name, listener.getsockname()[1], bundle)
        app.router.add_post("/{name}", hooks.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=context).start()
        try:
            yield hooks
        finally:
            await hooks.remove()
            _hang_up(runner)
            await runner.cleanup()


def _hang_up(runner: web.AppRunner) -> None:
    """Drop the connections that a server keeps open for later: a polite end would wait for its answer."""
    for connection in runner.server.connections if runner.server else ():
        if connection.transport is not None:
            connection.transport.abort()
