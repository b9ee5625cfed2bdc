"""The HTTP side: from requests to verbs, from objects to bodies."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from embedded.apiserver.core import Call, Core
from embedded.apiserver.errors import (
    ApiError,
    bad_request,
    no_such_resource,
    not_allowed,
    unauthorized,
)
from embedded.apiserver.identity import Tokens
from embedded.apiserver.pages import Page
from embedded.apiserver.patches import patched
from embedded.apiserver.resources import Resource, Target, UnknownPathError, UnknownResourceError, parse_path
from embedded.apiserver.selectors import field_selector, field_terms, label_selector
from embedded.apiserver.store import Stored
from embedded.apiserver.watches import Watch, lines

Json = dict[str, Any]

CORE: Final = web.AppKey("core", Core)
TOKENS: Final = web.AppKey("tokens", Tokens)

_MAX_BODY: Final = 3 * 1024**2
_WATCH_SECONDS: Final = 1800
_NAMED_VERBS: Final = frozenset({"GET", "PUT", "PATCH", "DELETE"})
_COLLECTION_VERBS: Final = frozenset({"GET", "POST", "DELETE"})


def make_app(core: Core, tokens: Tokens) -> web.Application:
    """Return the application that serves a store."""
    app = web.Application(middlewares=[_errors_as_status], client_max_size=_MAX_BODY)
    app[CORE] = core
    app[TOKENS] = tokens
    for path in ("/readyz", "/healthz", "/livez"):
        app.router.add_get(path, _ok)
    app.router.add_get("/version", _version)
    app.router.add_route("*", "/{path:.*}", _serve)
    return app


@web.middleware
async def _errors_as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return web.json_response(error.status(), status=error.code)
    except UnknownPathError:
        return web.Response(status=404, text="404 page not found\n")
    except UnknownResourceError:
        return web.json_response(no_such_resource().status(), status=404)
    except web.HTTPRequestEntityTooLarge:
        too_large = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BODY}", {})
        return web.json_response(too_large.status(), status=413)


async def _ok(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _version(_request: web.Request) -> web.Response:
    return web.json_response({"major": "1", "minor": "20", "gitVersion": "v1.20.2-embedded", "platform": "linux"})


async def _serve(request: web.Request) -> web.StreamResponse:
    user = request.app[TOKENS].user(request.headers.get("Authorization"))
    if user is None:
        raise unauthorized()
    target = parse_path(request.rel_url.raw_path)
    verbs = {"POST"} if target.subresource == "binding" else _NAMED_VERBS if target.name else _COLLECTION_VERBS
    if request.method not in verbs:
        raise not_allowed()
    if request.method == "GET":
        return await _read(request, target)
    warnings: list[str] = []
    call = Call(user, request.query.get("dryRun") == "All", warnings.append)
    response = await _write(request, target, call)
    for words in warnings:
        response.headers.add("Warning", f"299 - {json.dumps(words)}")
    return response


async def _read(request: web.Request, target: Target) -> web.StreamResponse:
    if target.name:
        return _object(target.resource, request.app[CORE].get(target))
    if request.query.get("watch") in {"1", "true"}:
        return await _watch(request, target)
    page = request.app[CORE].lists.page(
        target,
        at_least=_version_number(request.query.get("resourceVersion", "")),
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
        limit=_number(request, "limit"),
        token=request.query.get("continue", ""),
    )
    return _list(target.resource, page)


async def _write(request: web.Request, target: Target, call: Call) -> web.Response:
    core = request.app[CORE]
    match request.method:
        case "POST" if target.subresource == "binding":
            return web.json_response(await core.bind(target, await _body(request, target), call), status=201)
        case "POST":
            return _object(target.resource, await core.create(target, await _body(request, target), call), 201)
        case "PUT":
            stored, is_new = await core.replace(target, await _body(request, target), call)
            return _object(target.resource, stored, 201 if is_new else 200)
        case "PATCH":
            body = await request.read()
            changed = await core.patch(target, lambda old: patched(request.content_type, body, old), call)
            return _object(target.resource, changed)
        case _:
            return await _delete(request, target, call)


async def _delete(request: web.Request, target: Target, call: Call) -> web.Response:
    options = await _options(request)
    core = request.app[CORE]
    if target.name:
        return web.json_response(await core.delete(target, options, call))
    labels, fields = (request.query.get(f"{kind}Selector", "") for kind in ("label", "field"))
    page = core.lists.page(target, labels=labels, fields=fields)
    for stored in page.items:
        metadata = stored.item["metadata"]
        one = Target(target.resource, metadata.get("namespace", ""), metadata["name"])
        await core.delete(one, options, call)
    return _list(target.resource, page)


async def _watch(request: web.Request, target: Target) -> web.StreamResponse:
    by_label = label_selector(request.query.get("labelSelector", ""))
    by_field = field_selector(field_terms(request.query.get("fieldSelector", ""), target.resource))
    watch = Watch(
        target,
        lambda item: by_label(item) and by_field(item),
        since=_version_number(request.query.get("resourceVersion", "")),
        bookmarks=request.query.get("allowWatchBookmarks") in {"1", "true"},
        seconds=float(_number(request, "timeoutSeconds") or _WATCH_SECONDS),
    )
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    async with aclosing(lines(request.app[CORE].store, watch)) as stream:
        try:
            async for line in stream:
                await response.write(line)
        except ConnectionResetError:
            pass  # the client has seen enough
    return response


async def _body(request: web.Request, target: Target) -> Json:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        kind = target.resource.kind
        words = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {error}"
        raise bad_request(words) from error
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {target.resource.kind})")
    return body


async def _options(request: web.Request) -> Mapping[str, Any]:
    """Return the DeleteOptions, of which the query may have a part."""
    content = await request.read()
    try:
        options = json.loads(content) if content else {}
    except ValueError as error:
        raise bad_request(f"DeleteOptions: {error}") from error
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = _number(request, "gracePeriodSeconds")
    return options if isinstance(options, dict) else {}


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f'{name}: Invalid value: "{text}": must be an integer') from error


def _version_number(text: str) -> int:
    try:
        return int(text or "0")
    except ValueError as error:
        words = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiError(500, "", words) from error


def _head(kind: str, resource: Resource) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{resource.api_version}",'.encode()


def _object(resource: Resource, stored: Stored, status: int = 200) -> web.Response:
    return web.Response(
        body=_head(resource.kind, resource) + stored.tail, status=status, content_type="application/json"
    )


def _list(resource: Resource, page: Page) -> web.Response:
    metadata: Json = {"resourceVersion": str(page.version)}
    if page.token:
        metadata |= {"continue": page.token, **({"remainingItemCount": page.left} if page.left else {})}
    items = b",".join(b"{" + stored.tail for stored in page.items)
    body = (
        _head(f"{resource.kind}List", resource)
        + f'"metadata":{json.dumps(metadata)},"items":['.encode()
        + items
        + b"]}"
    )
    return web.Response(body=body, content_type="application/json")
