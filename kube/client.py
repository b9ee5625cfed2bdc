"""A small client for the API server: raw JSON objects, every call with a time-out, errors by kind.

Client models drop fields that they do not know and are slow to build, so objects stay the dictionaries that they are.
kubernetes_asyncio does what is hard: kubeconfig and service-account credentials, their renewal, TLS.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from kube.lean import generated_classes_left_out

with generated_classes_left_out():
    from kubernetes_asyncio import client as kubernetes_client
    from kubernetes_asyncio import config as kubernetes_config

Json = dict[str, Any]

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_WATCH_SECONDS: Final = 300
# The server sends a bookmark about once a minute; a stream that is silent for longer has lost its other end.
_WATCH_SILENCE_SECONDS: Final = 90
_PAGE_SIZE: Final = 500


class KubeError(Exception):
    """The API server refused a call, or could not be reached.

    Attributes:
        status: HTTP status, 0 when there was no answer.
        reason: machine-readable reason of the Status object, such as `AlreadyExists`.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ConfigurationError(KubeError):
    """There is no usable kubeconfig, or no service account to use."""


class NotFoundError(KubeError):
    """The object does not exist (404)."""


class ConflictError(KubeError):
    """The object changed meanwhile, or exists already (409)."""


class ExpiredError(KubeError):
    """The resource version is too old to watch from (410)."""


class UnreachableError(KubeError):
    """No answer: connection refused or lost, or the time-out passed. Whether the call took effect is unknown."""


_BY_STATUS: Final = {404: NotFoundError, 409: ConflictError, 410: ExpiredError}


class KubeClient:
    """Calls to one API server. Make it with `connect`; safe for concurrent use in one event loop."""

    def __init__(self, api: Any, *, timeout: float) -> None:
        self._api = api
        self._timeout = timeout

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None = None, *, timeout: float = 10) -> AsyncIterator[Self]:  # noqa: ASYNC109
        """Connect with a kubeconfig, or inside a cluster with the pod's service account.

        Args:
            kubeconfig: file to read; None inside a cluster.
            timeout: seconds that one call may take. Watches have time-outs of their own.

        Raises:
            ConfigurationError: the kubeconfig cannot be read, or there is none and this is no pod.
        """
        configuration = kubernetes_client.Configuration()
        try:
            await _configure(configuration, kubeconfig)
        except Exception as error:  # the library raises whatever it runs into
            source = f"kubeconfig {kubeconfig}" if kubeconfig else "no kubeconfig given, and no pod's service account"
            raise ConfigurationError(f"{source}: {error}") from error
        async with kubernetes_client.ApiClient(configuration) as api:
            yield cls(api, timeout=timeout)

    async def get(self, path: str) -> Json:
        """Return one object."""
        return await self._call("GET", path)

    async def list(self, path: str, *, field_selector: str = "") -> tuple[list[Json], str]:
        """Return all objects of a collection, read consistently from the store, and the resource version of the list.

        Args:
            path: of the collection.
            field_selector: such as `spec.nodeName=node-a`.
        """
        items: list[Json] = []
        query = {"limit": str(_PAGE_SIZE), **({"fieldSelector": field_selector} if field_selector else {})}
        while True:
            page = await self._call("GET", path, query=query)
            items.extend(page.get("items") or ())
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    async def create(self, path: str, body: Mapping[str, Any]) -> Json:
        """Create an object in a collection, or a sub-resource such as a pod's binding."""
        return await self._call("POST", path, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Json:
        """Replace an object; with its resource version in the body only as long as nobody changed it."""
        return await self._call("PUT", path, body=body)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Json:
        """Apply a JSON merge patch; with `metadata.resourceVersion` or `metadata.uid` in it as a precondition."""
        return await self._call("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def delete(self, path: str) -> None:
        """Delete an object."""
        await self._call("DELETE", path)

    async def watch(self, path: str, *, resource_version: str, field_selector: str = "") -> AsyncGenerator[Json, None]:
        """Yield watch events as they come, until the server ends the stream, which it does every few minutes.

        Raises:
            ExpiredError: the resource version is too old: list again.
            UnreachableError: the stream broke, or fell silent.
        """
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            **({"fieldSelector": field_selector} if field_selector else {}),
        }
        limits = aiohttp.ClientTimeout(connect=self._timeout, sock_read=_WATCH_SILENCE_SECONDS)
        with _unreachable(f"watch {path}"):
            response = await self._request("GET", path, query=query, limits=limits)
            async with response, _hung_up(response):
                await _raise_for_status(response, f"watch {path}")
                async for line in _lines(response.content):
                    event = _object(line)
                    if event.get("type") == "ERROR":
                        raise _error(event.get("object") or {}, f"watch {path}")
                    yield event

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        limits = aiohttp.ClientTimeout(total=self._timeout)
        with _unreachable(f"{method} {path}"):
            response = await self._request(
                method, path, query=query, body=body, content_type=content_type, limits=limits
            )
            async with response:
                await _raise_for_status(response, f"{method} {path}")
                return _object(await response.read())

    async def _request(
        self,
        method: str,
        path: str,
        *,
        limits: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._api.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=limits,
        )
        return response


async def _configure(configuration: Any, kubeconfig: Path | None) -> None:
    if kubeconfig is None:
        kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return
    kubeconfig.open("rb").close()  # a file that is missing is an empty configuration to the library
    await kubernetes_config.load_kube_config(
        config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
    )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length.

    aiohttp's own reader ends at 4 MiB with an error of no kind. A pod of 1 MiB, as anybody may create, is 6 MiB on the
    wire if it is full of `<`, for each of which the API server writes six characters.
    """
    pieces: list[bytes] = []
    async for chunk in content.iter_any():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*pieces, end))
            pieces.clear()
        pieces.append(rest)
    if any(pieces):
        yield b"".join(pieces)


def _object(content: bytes) -> Json:
    result = json.loads(content)
    if not isinstance(result, dict):
        raise ValueError(f"a JSON object was expected, not {content[:40]!r}")  # noqa: TRY004 - as for text without JSON
    return result


@contextmanager
def _unreachable(call: str) -> Iterator[None]:
    """Turn the transport's errors, and answers that are no JSON, into UnreachableError."""
    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise UnreachableError(f"{call}: {type(error).__name__} {error}") from error


@asynccontextmanager
async def _hung_up(response: aiohttp.ClientResponse) -> AsyncIterator[None]:
    """Drop a stream's connection at the end, if it did not end by itself.

    A polite close would wait for the server's answer, long after the event loop may be gone.
    """
    try:
        yield
    finally:
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()


async def _raise_for_status(response: aiohttp.ClientResponse, call: str) -> None:
    if response.ok:
        return
    text = await response.text(errors="replace")
    try:
        status = json.loads(text)
    except ValueError:
        status = {"message": text[:200]}
    raise _error({"code": response.status, **status}, call)


def _error(status: Mapping[str, Any], call: str) -> KubeError:
    code = int(status.get("code") or 0)
    kind = _BY_STATUS.get(code, KubeError)
    return kind(f"{call}: {status.get('message', '')}", status=code, reason=str(status.get("reason", "")))
