"""The product's API client without a network: for clusters of thousands of nodes in one process.

Every call is answered by the same verbs as over HTTP, and gives others a turn before, so that they come between.
Objects are copied on their way, as a network copies them.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from embedded.apiserver.core import Call, Core
from embedded.apiserver.errors import ApiError
from embedded.apiserver.identity import User
from embedded.apiserver.patches import patched
from embedded.apiserver.resources import Resource, Target, UnknownPathError, UnknownResourceError, parse_path
from embedded.apiserver.selectors import field_selector, field_terms
from embedded.apiserver.store import Stored
from embedded.apiserver.watches import Watch, lines
from kube.client import ConflictError, ExpiredError, Json, KubeClient, KubeError, NotFoundError

_BY_STATUS: Final = {404: NotFoundError, 409: ConflictError, 410: ExpiredError}
_WATCH_SECONDS: Final = 300.0


class DirectClient(KubeClient):
    """Calls to an API server of this process, as one user."""

    def __init__(self, core: Core, user: User) -> None:
        super().__init__(None, timeout=10)
        self._core = core
        self._user = user

    async def watch(self, path: str, *, resource_version: str, field_selector: str = "") -> AsyncGenerator[Json, None]:
        """Yield watch events as they come, for some minutes; see KubeClient."""
        target = parse_path(path)
        selects = _selector(field_selector, target.resource)
        watch = Watch(target, selects, int(resource_version), bookmarks=True, seconds=_WATCH_SECONDS)
        async with aclosing(lines(self._core.store, watch)) as stream:
            async for line in stream:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refused(ApiError(410, "Expired", event["object"]["message"]), path)
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
        await asyncio.sleep(0)
        parts = urlsplit(path)
        asked = {**dict(parse_qsl(parts.query)), **(query or {})}
        content = json.dumps(body) if body is not None else ""
        try:
            target = parse_path(parts.path)
            return await self._answer(method, target, asked, content, content_type)
        except ApiError as error:
            raise _refused(error, f"{method} {path}") from error
        except (UnknownPathError, UnknownResourceError) as error:
            raise NotFoundError(f"{method} {path}: {error}", status=404) from error

    async def _answer(
        self, method: str, target: Target, query: Mapping[str, str], content: str, content_type: str
    ) -> Json:
        if method == "GET":
            return _object(target, self._core.get(target)) if target.name else self._list(target, query)
        call = Call(self._user, dry_run=query.get("dryRun") == "All")
        match method:
            case "POST" if target.subresource == "binding":
                return await self._core.bind(target, json.loads(content), call)
            case "POST":
                return _object(target, await self._core.create(target, json.loads(content), call))
            case "PUT":
                return _object(target, (await self._core.replace(target, json.loads(content), call))[0])
            case "PATCH":
                data = content.encode()
                changed = await self._core.patch(target, lambda old: patched(content_type, data, old), call)
                return _object(target, changed)
            case _:
                grace = query.get("gracePeriodSeconds")
                options = {"gracePeriodSeconds": int(grace)} if grace is not None else {}
                return await self._core.delete(target, options, call)

    def _list(self, target: Target, query: Mapping[str, str]) -> Json:
        page = self._core.lists.page(
            target,
            fields=query.get("fieldSelector", ""),
            limit=int(query.get("limit", "0")),
            token=query.get("continue", ""),
        )
        metadata = {"resourceVersion": str(page.version), "continue": page.token}
        return {"metadata": metadata, "items": [json.loads(b"{" + one.tail) for one in page.items]}


def _object(target: Target, stored: Stored) -> Json:
    resource = target.resource
    return {"kind": resource.kind, "apiVersion": resource.api_version, **json.loads(b"{" + stored.tail)}


def _selector(fields: str, resource: Resource) -> Any:
    return field_selector(field_terms(fields, resource))


def _refused(error: ApiError, call: str) -> KubeError:
    kind = _BY_STATUS.get(error.code, KubeError)
    return kind(f"{call}: {error}", status=error.code, reason=error.reason)
