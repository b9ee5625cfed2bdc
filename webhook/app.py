"""The HTTP side: a path for each decision, and no answer that is not meant for the client."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from webhook.decision import Decision, decide_mutation, decide_validation
from webhook.hints import ClusterHints
from webhook.logline import logline
from webhook.readiness import Readiness
from webhook.review import LARGE_BODY, TOO_DEEP, Review, ReviewError, may_concern
from webhook.settings import WebhookSettings

MAX_BODY: Final = 7 * 1024**2
"""Two objects of at most 3 MiB, as JSON, and what surrounds them."""

READINESS: Final = web.AppKey("readiness", Readiness)
BODY_SECONDS: Final = web.AppKey("body_seconds", float)
THREAD: Final = web.AppKey("thread", ThreadPoolExecutor)

_BODY_SECONDS: Final = 5.0  # until `serve` says otherwise
_MAX_LOGGED: Final = 20

Decide = Callable[[Review], Decision]

logger = logging.getLogger(__name__)


class DecisionError(Exception):
    """A rule failed; the review says which request it was about."""

    def __init__(self, review: Review) -> None:
        super().__init__(review.uid)
        self.review = review


@dataclass(frozen=True, slots=True)
class _Answer:
    review: Review
    decision: Decision
    text: str


def make_app(settings: WebhookSettings, hints: ClusterHints | None = None) -> web.Application:
    """Return the application. It is not ready before `serve` listens, and whoever else holds `READINESS` lets go.

    Args:
        settings: of the rules.
        hints: what is known of the cluster, kept up to date by `watch_nodes`.
    """
    app = web.Application(middlewares=[_leave_when_not_ready, _errors_as_json], client_max_size=MAX_BODY)
    app[READINESS] = Readiness()
    app[BODY_SECONDS] = _BODY_SECONDS
    # One thread: big bodies wait for each other, so that together they do not fill the memory.
    app[THREAD] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="big-bodies")
    app.on_cleanup.append(_end_thread)
    for suffix, chosen in (("", settings), ("/privileged", replace(settings, allow_privileged=True))):
        app.router.add_post(f"/mutate{suffix}", _answers(partial(decide_mutation, settings=chosen, hints=hints)))
        app.router.add_post(f"/validate{suffix}", _answers(partial(decide_validation, settings=chosen, hints=hints)))
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    return app


async def _end_thread(app: web.Application) -> None:
    app[THREAD].shutdown(wait=False, cancel_futures=True)


async def _healthz(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _readyz(request: web.Request) -> web.StreamResponse:
    obstacle = request.app[READINESS].obstacle
    return web.Response(text=obstacle or "ok", status=503 if obstacle else 200)


def _answers(decide: Decide) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        try:
            answered = await _answered(request, body, decide)
        except DecisionError as error:
            uid = error.review.uid
            logger.exception("%s", logline("failed", path=request.path, uid=uid), exc_info=error.__cause__)
            return _error(500, f"internal error: see the webhook's log at uid {uid}")
        _log(request.path, answered)
        return web.json_response(text=answered.text)

    return answer


async def _answered(request: web.Request, body: bytes, decide: Decide) -> _Answer:
    if len(body) <= LARGE_BODY:
        return _decided(body, decide)
    return await asyncio.get_running_loop().run_in_executor(request.app[THREAD], _decided, body, decide)


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(request.app[BODY_SECONDS]):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text="the body did not come in time") from error


def _decided(body: bytes, decide: Decide) -> _Answer:
    review = Review.parse(body)
    try:
        decision = decide(review) if may_concern(body) else Decision()
        return _Answer(review, decision, json.dumps(decision.response(review.uid)))
    except RecursionError as error:
        raise ReviewError(TOO_DEEP) from error
    except Exception as error:
        raise DecisionError(review) from error


def _log(path: str, answered: _Answer) -> None:
    """Log a decision that refuses or changes something: which fields, never what stands in them."""
    review, decision = answered.review, answered.decision
    if decision.faults:
        event, fields = "denied", [fault.field for fault in decision.faults]
    elif decision.patch:
        event, fields = "changed", sorted(operation["path"] for operation in decision.patch)
    else:
        return
    line = logline(
        event,
        path=path,
        uid=review.uid,
        namespace=review.namespace,
        kind=review.kind.name,
        name=review.name,
        user=review.user.name,
        dry_run=review.dry_run,
        fields=",".join(fields[:_MAX_LOGGED]),
    )
    logger.info("%s", line)


@web.middleware
async def _leave_when_not_ready(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Ask clients to open their next connection, which then goes to a replica that is ready."""
    response = await handler(request)
    if request.app[READINESS].obstacle:
        response.force_close()
    return response


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ReviewError as error:
        return _bad_request(request, str(error))
    except (web.RequestPayloadError, ConnectionError):
        return _bad_request(request, "the body cannot be read")
    except web.HTTPException as error:
        # A wrong method is answered with the right ones in this header.
        kept = {name: value for name, value in error.headers.items() if name == "Allow"}
        response = _error(error.status, error.text or error.reason, kept)
        if isinstance(error, web.HTTPRequestTimeout):
            response.force_close()
        return response


def _bad_request(request: web.Request, reason: str) -> web.Response:
    logger.warning("%s", logline("unreadable", path=request.path, reason=reason))
    return _error(400, reason)


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": reason}, status=status, headers=headers)
