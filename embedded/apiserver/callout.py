"""Calling one admission webhook over TLS, trusting what its configuration says."""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

Json = dict[str, Any]
Services = Mapping[tuple[str, str], tuple[str, int]]

_CONTEXTS_KEPT: Final = 16


class CallError(Exception):
    """The webhook could not be asked, or its answer makes no sense; the message ends the API server's own."""


class Caller:
    """Calls webhooks and keeps connections to them open. An asynchronous context manager.

    Args:
        services: host and port for each Service, by namespace and name: there is no network of services here.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, webhook: Json, review: Json) -> Json:
        """Return the response of an AdmissionReview.

        Raises:
            CallError: there is none, for whatever reason.
        """
        seconds = int(webhook.get("timeoutSeconds") or 10)
        try:
            async with asyncio.timeout(seconds):
                return await self._post(webhook["clientConfig"], review, seconds)
        except TimeoutError as error:
            raise CallError("context deadline exceeded") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallError(str(error) or type(error).__name__) from error

    async def _post(self, config: Json, review: Json, seconds: int) -> Json:
        if self._session is None:
            raise CallError("the caller is not open")
        url, server_name = self._address(config)
        context = self._context(config.get("caBundle") or "")
        request = self._session.post(
            url, params={"timeout": f"{seconds}s"}, json=review, ssl=context, server_hostname=server_name
        )
        async with request as response:
            if response.status != 200:  # noqa: PLR2004 - HTTP's
                raise CallError(f"the server answered {response.status}: {(await response.text())[:200]}")
            answer = await response.json(content_type=None)
        return _response_of(answer, review["request"]["uid"])

    def _address(self, config: Json) -> tuple[str, str | None]:
        if "url" in config:
            return config["url"], None
        service = config["service"]
        place = (service["namespace"], service["name"])
        if place not in self._services:
            raise CallError(f'service "{place[1]}" not found')
        host, port = self._services[place]
        return f"https://{host}:{port}{service.get('path') or '/'}", f"{place[1]}.{place[0]}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        """Return a context that trusts a CA bundle; with another bundle come other connections."""
        if bundle not in self._contexts:
            if len(self._contexts) >= _CONTEXTS_KEPT:
                self._contexts.pop(next(iter(self._contexts)))
            try:
                trusted = base64.b64decode(bundle, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise CallError(f"unable to load root certificates: {error}") from error
            self._contexts[bundle] = ssl.create_default_context(cadata=trusted or None)
        return self._contexts[bundle]


def _response_of(answer: object, uid: str) -> Json:
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise CallError("webhook response was absent")
    if response.get("uid") != uid:
        raise CallError(f"expected response.uid={uid!r}, got {response.get('uid')!r}")
    return response
