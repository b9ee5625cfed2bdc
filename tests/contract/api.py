"""One API server under test: raw requests and answers, so that nothing of a client library comes between."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NODES = "/api/v1/nodes"


@dataclass(frozen=True)
class Answer:
    """What the server answered.

    Attributes:
        status: HTTP's.
        body: JSON without what only the server's own book-keeping says; text where it is no JSON.
        warnings: the headers of that name.
    """

    status: int
    body: Any
    warnings: list[str] = field(default_factory=list)

    def refusal(self) -> tuple[int, str, str]:
        """Return status, reason and message of a Status object, having looked that it is whole."""
        assert self.body["kind"] == "Status"
        assert self.body["apiVersion"] == "v1"
        assert self.body["status"] == "Failure"
        assert self.body["code"] == self.status
        return self.status, self.body.get("reason", ""), self.body["message"]


class Api:
    """One server.

    Attributes:
        space: a namespace that pods can be created in.
        is_real: whether it is a real kube-apiserver.
    """

    def __init__(
        self, session: aiohttp.ClientSession, space: str, *, url: str, is_real: bool, public: ssl.SSLContext | None
    ) -> None:
        self._session = session
        self._url = url
        self._public = public
        self.space = space
        self.is_real = is_real

    def path(self, resource: str, name: str = "") -> str:
        """Return a path in the namespace; `group/version/plural` outside of the core group."""
        group, _, plural = resource.rpartition("/")
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.space}/{plural}{f'/{name}' if name else ''}"

    async def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> Answer:
        data = body if isinstance(body, str | None) else json.dumps(body)
        headers = {"Accept": "application/json", "Content-Type": content_type}
        async with self._session.request(method, path, params=query, data=data, headers=headers) as response:
            text = await response.text()
            warnings = response.headers.getall("Warning", [])
        try:
            return Answer(response.status, _without_bookkeeping(json.loads(text)), warnings)
        except ValueError:
            return Answer(response.status, text, warnings)

    async def get(self, path: str, **query: str) -> Answer:
        return await self.ask("GET", path, **query)

    async def post(self, path: str, body: Any, **query: str) -> Answer:
        return await self.ask("POST", path, body, **query)

    async def put(self, path: str, body: Any) -> Answer:
        return await self.ask("PUT", path, body)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Answer:
        return await self.ask("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        return await self.ask("DELETE", path, body, **query)

    async def created(self, path: str, body: Json) -> Json:
        """Create an object that must be accepted."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer
        item: Json = answer.body
        return item

    async def watch(self, path: str, *, seconds: int = 1, **query: str) -> list[Json]:
        """Return all events of a watch that the server ends after so many seconds."""
        async with asyncio.timeout(seconds + 10), self.watching(path, seconds, **query) as events:
            return [event async for event in events]

    @asynccontextmanager
    async def as_stranger(self, token: str = "") -> AsyncIterator["Api"]:
        """Speak to the same server without credentials, or with a token that it does not know."""
        async with connected(self._url, self.space, is_real=self.is_real, token=token, context=self._public) as api:
            yield api

    @asynccontextmanager
    async def watching(self, path: str, seconds: int = 30, **query: str) -> AsyncIterator[AsyncIterator[Json]]:
        """Watch, and yield the events as they come; the stream is open when this returns."""
        params = {"watch": "1", "timeoutSeconds": str(seconds), **query}
        async with self._session.get(path, params=params) as response:
            assert response.status == 200, await response.text()
            async with aclosing(_events(response)) as events:
                yield events
            if response.connection is not None and response.connection.transport is not None:
                # A polite end of a stream that has not ended waits for the server's answer.
                response.connection.transport.abort()


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[Json, None]:
    async for line in response.content:
        event = json.loads(line)
        yield {**event, "object": _without_bookkeeping(event["object"])}


def _without_bookkeeping(item: Any) -> Any:
    """Take off which part of an object which client wrote: the embedded server does not keep it."""
    if isinstance(item, dict):
        for one in [item, *(item.get("items") or [])]:
            for key in ("managedFields", "selfLink"):
                (one.get("metadata") or {}).pop(key, None)
    return item


@asynccontextmanager
async def connected(
    url: str,
    space: str,
    *,
    is_real: bool,
    token: str = "",
    context: ssl.SSLContext | None = None,
    public: ssl.SSLContext | None = None,
) -> AsyncIterator[Api]:
    """Connect to a server.

    Args:
        url: of the server.
        space: see Api.
        is_real: see Api.
        token: bearer token, empty for none.
        context: for TLS, with a client's certificate.
        public: for TLS without one.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=context) if context else aiohttp.TCPConnector()
    async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:
        yield Api(session, space, url=url, is_real=is_real, public=public)
