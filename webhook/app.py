"""The HTTP side: four paths, and no answer that is not meant for the client."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from webhook.decision import Decision, decide_mutation, decide_validation
from webhook.logline import logline
from webhook.readiness import Readiness
from webhook.review import Review, ReviewError
from webhook.settings import WebhookSettings

MAX_BODY: Final = 7 * 1024**2
"""Two objects of at most 3 MiB, as JSON, and what surrounds them."""

SETTINGS: Final = web.AppKey("settings", WebhookSettings)
READINESS: Final = web.AppKey("readiness", Readiness)

Decide = Callable[[Review, WebhookSettings], Decision]

logger = logging.getLogger(__name__)


def make_app(settings: WebhookSettings) -> web.Application:
    """Return the application. It is not ready before `serve` listens, and whoever else holds `READINESS` lets go."""
    app = web.Application(middlewares=[_leave_when_not_ready, _errors_as_json], client_max_size=MAX_BODY)
    app[SETTINGS] = settings
    app[READINESS] = Readiness()
    app.router.add_post("/mutate", _mutate)
    app.router.add_post("/validate", _validate)
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    return app


async def _mutate(request: web.Request) -> web.StreamResponse:
    return await _answer(request, decide_mutation)


async def _validate(request: web.Request) -> web.StreamResponse:
    return await _answer(request, decide_validation)


async def _healthz(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _readyz(request: web.Request) -> web.StreamResponse:
    obstacle = request.app[READINESS].obstacle
    return web.Response(text=obstacle or "ok", status=503 if obstacle else 200)


async def _answer(request: web.Request, decide: Decide) -> web.StreamResponse:
    review = Review.parse(await request.read())
    try:
        decision = decide(review, request.app[SETTINGS])
    except Exception:
        logger.exception("%s", logline("failed", path=request.path, uid=review.uid))
        return _error(500, f"internal error: see the webhook's log at uid {review.uid}")
    _log(request.path, review, decision)
    return web.json_response(decision.response(review.uid))


def _log(path: str, review: Review, decision: Decision) -> None:
    """Log a decision that refuses or changes something: which fields, never what stands in them."""
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
        pod=review.name,
        user=review.user.name,
        dry_run=review.dry_run,
        fields=",".join(fields),
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
        return _error(error.status, error.text or error.reason, kept)


def _bad_request(request: web.Request, reason: str) -> web.Response:
    logger.warning("%s", logline("unreadable", path=request.path, reason=reason))
    return _error(400, reason)


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": reason}, status=status, headers=headers)
