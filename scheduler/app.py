"""The extender's HTTP side: `/filter`, `/prioritize`, `/bind`, and `/healthz`, `/readyz`.

The verbs are served as plain HTTP on loopback, to the kube-scheduler in the same pod: kube-scheduler cannot send a
token, and whoever may call `/bind` decides about nodes. The kubelet's probes come from outside, so they have a port of
their own that serves nothing else.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from aiohttp import web

from protocol.demand import DemandError
from protocol.pods import Json, annotations
from protocol.selection import NODE_POLICY, read_policy
from scheduler.binder import Binder, BindError
from scheduler.fit import Fits, Scores, Verdict
from scheduler.request import Policies, Request
from scheduler.reservations import BIND_WITHIN, Reservations
from scheduler.state import ClusterState
from scheduler.wire import (
    BindArgs,
    FilterArgs,
    WireError,
    filter_error,
    filter_result,
    read_bind_args,
    read_filter_args,
)

log = logging.getLogger(__name__)

_SEEN_SECONDS: Final = 2.0
# kube-scheduler sends whole node objects when it is not told that we cache them: 5,000 nodes of 10 KiB.
_MAX_BODY: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Extender:
    """What the handlers work with; the policies are for pods that do not name their own."""

    state: ClusterState
    reservations: Reservations
    binder: Binder
    policies: Policies
    fits: Fits
    scores: Scores

    @classmethod
    def of(cls, state: ClusterState, binder: Binder, policies: Policies, clock: Callable[[], float]) -> Self:
        """Return an extender on a watched cluster; `clock` gives monotonic seconds."""
        reservations = Reservations(state.usages, state.shows, clock)
        return cls(state, reservations, binder, policies, Fits(reservations), Scores(state.usages))

    async def filter(self, args: FilterArgs) -> dict[str, object]:
        """Return which of the nodes have room for the pod, and promise it that room."""
        if not self.state.is_synced:
            return filter_error("the extender has not read the cluster yet")
        try:
            request = Request.of(args.pod, self.policies)
        except DemandError as error:
            return filter_error(str(error))
        if not request.asks:
            return filter_result(args, args.names, {}, {})
        verdict = await self._verdict(request, args.names)
        self.reservations.promise(request, frozenset(verdict.fitting))
        log.info("filter pod=%s fitting=%d refused=%d", request.pod, len(verdict.fitting), len(verdict.refused))
        return filter_result(args, verdict.fitting, verdict.reasons(permanent=False), verdict.reasons(permanent=True))

    async def _verdict(self, request: Request, names: Sequence[str]) -> Verdict:
        """Judge, and judge again while all that stands between the pod and a node is a promise still open."""
        deadline = time.monotonic() + BIND_WITHIN
        while True:
            verdict = self.fits.judge(request, names)
            if verdict.fitting or not verdict.open or time.monotonic() >= deadline:
                return verdict
            await self.reservations.any_settled(but=request.pod.uid)

    def prioritize(self, args: FilterArgs) -> list[dict[str, object]]:
        """Return the nodes' scores."""
        policy = read_policy(annotations(args.pod), NODE_POLICY, self.policies.node)
        return [{"Host": name, "Score": self.scores.score(name, policy)} for name in args.names]

    async def bind(self, args: BindArgs) -> dict[str, object]:
        """Bind the pod."""
        self.reservations.decide(args.uid, args.node)
        try:
            await self.binder.bind(args)
        except BindError as error:
            self.reservations.drop(args.uid)
            log.warning("bind pod=%s/%s node=%s: %s", args.namespace, args.name, args.node, error)
            return {"Error": str(error)}
        await self._hand_over(args.uid)
        return {"Error": ""}

    async def _hand_over(self, uid: str) -> None:
        """Let what the watch shows take the promise's place.

        At once, as a promise that outlives its pod would hold room that is free. Should the watch be late, the promise
        stays until it expires.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_SECONDS):
                await self.state.wait_until(lambda: self.state.shows(uid))
            self.reservations.drop(uid)


EXTENDER: Final = web.AppKey("extender", Extender)


def make_app(extender: Extender) -> web.Application:
    """Return the application that kube-scheduler calls."""
    app = make_health_app(extender)
    app.router.add_post("/filter", _filter)
    app.router.add_post("/prioritize", _prioritize)
    app.router.add_post("/bind", _bind)
    return app


def make_health_app(extender: Extender) -> web.Application:
    """Return the application that the kubelet probes."""
    app = web.Application(client_max_size=_MAX_BODY)
    app[EXTENDER] = extender
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    return app


async def _filter(request: web.Request) -> web.Response:
    async def answer(body: Json) -> object:
        return await request.app[EXTENDER].filter(read_filter_args(body))

    return await _answered(request, answer, filter_error)


async def _prioritize(request: web.Request) -> web.Response:
    async def answer(body: Json) -> object:
        return request.app[EXTENDER].prioritize(read_filter_args(body))

    # A failing score is no reason to stop a pod: without scores kube-scheduler goes by its own.
    return await _answered(request, answer, lambda _message: [])


async def _bind(request: web.Request) -> web.Response:
    async def answer(body: Json) -> object:
        return await request.app[EXTENDER].bind(read_bind_args(body))

    return await _answered(request, answer, lambda message: {"Error": message})


async def _answered(
    request: web.Request, answer: Callable[[Any], Awaitable[object]], failed: Callable[[str], object]
) -> web.Response:
    """Return the answer as JSON; what goes wrong is an answer too, in the form that this verb has for it."""
    try:
        result = await answer(await request.json())
    except (WireError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        log.warning("%s: bad request: %s", request.path, error)
        result = failed(f"{request.path}: {error}")
    except web.HTTPRequestEntityTooLarge:
        result = failed(f"{request.path}: body of more than {_MAX_BODY} bytes")
    except Exception:
        log.exception("%s failed", request.path)
        result = failed(f"{request.path}: internal error, see the log of the extender")
    return web.json_response(result)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    if request.app[EXTENDER].state.is_synced:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="the extender has not read the cluster yet\n")
