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
from datetime import datetime
from typing import Any, Final, Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from protocol.demand import DemandError
from protocol.placement import Refusal
from protocol.pods import Json, PodRef
from scheduler.binder import Binder, BindError, UnknownOutcomeError
from scheduler.budget import Budget
from scheduler.earlier import bound_soon
from scheduler.events import About, Events
from scheduler.fit import NOT_LOOKED_AT, Fits, Scores, Verdict, less_queue
from scheduler.heartbeats import Heartbeats
from scheduler.leader import Alone, Leadership
from scheduler.metrics import Metrics
from scheduler.nodelock import utc_now
from scheduler.nominations import Nominations
from scheduler.preempt import Preemption
from scheduler.request import Policies, Request
from scheduler.reservations import BIND_WITHIN, Reservations
from scheduler.state import ClusterState
from scheduler.wire import (
    BindArgs,
    FilterArgs,
    PreemptArgs,
    WireError,
    filter_error,
    filter_result,
    outcome_of,
    preempt_result,
    read_bind_args,
    read_filter_args,
    read_preempt_args,
)

log = logging.getLogger(__name__)

_SEEN_SECONDS: Final = 2.0
_ACTIVE_WITHIN: Final = 3.0
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
    budget: Budget
    preemption: Preemption
    leadership: Leadership
    heartbeats: Heartbeats
    metrics: Metrics
    events: Events | None
    now: Callable[[], datetime]

    @classmethod
    def of(
        cls,
        state: ClusterState,
        binder: Binder,
        policies: Policies,
        clock: Callable[[], float],
        leadership: Leadership | None = None,
        heartbeats: Heartbeats | None = None,
        metrics: Metrics | None = None,
        events: Events | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Return an extender on a watched cluster; alone it is active.

        Args:
            state: the watched cluster.
            binder: binds to its nodes.
            policies: preferences, for pods that do not name their own.
            clock: monotonic seconds.
            leadership: whether this replica decides.
            heartbeats: of the device plugins.
            metrics: are told of every call.
            events: are told of binds that fail.
            now: the wall clock.
        """
        reservations = Reservations(state.usages, state.shows, clock)
        nominations = Nominations(state, policies)
        leadership = leadership or Alone()
        return cls(
            state=state,
            reservations=reservations,
            binder=binder,
            policies=policies,
            fits=Fits(reservations, nominations),
            scores=Scores(state.usages),
            budget=Budget(state, reservations),
            preemption=Preemption(state, reservations, nominations),
            leadership=leadership,
            heartbeats=Heartbeats(clock) if heartbeats is None else heartbeats,
            metrics=metrics or Metrics(),
            events=events,
            now=now,
        )

    async def filter(self, args: FilterArgs) -> dict[str, object]:
        """Return which of the nodes have room for the pod, and promise it that room."""
        if not self.state.is_synced:
            return filter_error("the extender has not read the cluster yet")
        if not await self._is_active():
            return filter_error(self._standby())
        try:
            request = Request.of(args.pod, self.policies)
        except DemandError as error:
            return filter_error(str(error))
        if not request.asks:
            return filter_result(args, args.names, {}, {})
        verdict = await self._verdict(request, args.names, bound_soon(args.pod, self.now()))
        if verdict.unfinished:
            # An error, as kube-scheduler comes back soon after one; a pod without a node may wait for minutes.
            return filter_error(f"{NOT_LOOKED_AT.reason}; tried again from there")
        self._promise(request, verdict.fitting)
        log.info("filter pod=%s fitting=%d refused=%d", request.pod, len(verdict.fitting), len(verdict.refused))
        return filter_result(args, verdict.fitting, verdict.reasons(permanent=False), verdict.reasons(permanent=True))

    async def _verdict(self, request: Request, names: Sequence[str], soon: str) -> Verdict:
        """Judge, and judge again while all that stands between the pod and a node is a promise still open.

        A pod that an earlier bind may yet bind to one of the nodes goes to no other, if there is room on that one.
        """
        if soon in names and self._judge(request, [soon]).fitting:
            elsewhere = Refusal(f"pod may yet be bound to node {soon}")
            return Verdict([soon], refused={name: elsewhere for name in names if name != soon})
        deadline = time.monotonic() + BIND_WITHIN
        while True:
            verdict = self._judge(request, names)
            if verdict.fitting or not verdict.open or time.monotonic() >= deadline:
                return verdict
            await self.reservations.any_settled(but=request.pod.uid)

    def _judge(self, request: Request, names: Sequence[str]) -> Verdict:
        self._forget_gone()
        refused = {name: refusal for name in names if (refusal := self.heartbeats.refusal(name))}
        refused.update(self.budget.refusals(request, names))
        verdict = self.fits.judge(request, [name for name in names if name not in refused])
        verdict.refused.update(refused)
        return verdict

    def _forget_gone(self) -> None:
        """Nodes come and go under new names all the time, and what is known of one may be 100 KiB."""
        while self.state.gone:
            node = self.state.gone.pop()
            for memory in (self.fits, self.scores, self.reservations):
                memory.forget(node)

    def _promise(self, request: Request, nodes: Sequence[str]) -> None:
        self.reservations.promise(request, frozenset(nodes), self.budget.cost(request, nodes))

    def prioritize(self, args: FilterArgs) -> list[dict[str, object]]:
        """Return the nodes' scores, less what the binds that wait for a node cost it."""
        score = self.scores.scorer(Request.of(args.pod, self.policies))
        waiting = self.reservations.decided()
        return [{"Host": name, "Score": less_queue(score(name), waiting.get(name, 0))} for name in args.names]

    async def preempt(self, args: PreemptArgs) -> dict[str, object]:
        """Return which pods must go for this one on each node; none, where that cannot be told."""
        if not self.state.is_synced or not await self._is_active():
            return preempt_result({})
        try:
            request = Request.of(args.pod, self.policies)
        except DemandError:
            return preempt_result({})
        if not request.asks:
            return preempt_result(args.victims)
        victims = self.preemption.victims(request, args)
        log.info("preempt pod=%s asked=%d possible=%d", request.pod, len(args.victims), len(victims))
        return preempt_result(victims)

    async def bind(self, args: BindArgs) -> dict[str, object]:
        """Bind the pod."""
        if not await self._is_active():
            return {"Error": self._standby()}
        self.reservations.decide(args.uid, args.node)
        try:
            await self.binder.bind(args, lambda request: self._admit(request, args.node))
        except BindError as error:
            if not isinstance(error.__cause__, UnknownOutcomeError):
                self.reservations.drop(args.uid)
            log.warning("bind pod=%s/%s node=%s: %s", args.namespace, args.name, args.node, error)
            if self.events is not None:
                about = About.pod(PodRef(args.namespace, args.name, args.uid))
                self.events.note(about, "BindFailed", "Binding", str(error))
            return {"Error": str(error)}
        await self._hand_over(args.uid)
        return {"Error": ""}

    def _admit(self, request: Request, node: str) -> Refusal | None:
        """Return why a pod may not be bound after all, as its namespace's quotas have no room any more.

        Only a pod without a promise is asked: it took longer than promises last, or another process made the promise.
        """
        if self.reservations.holds(request.pod.uid):
            return None
        refusal = self.budget.refusals(request, [node]).get(node)
        if refusal is None:
            self._promise(request, [node])
            self.reservations.decide(request.pod.uid, node)
        return refusal

    async def _is_active(self) -> bool:
        """Return whether this replica decides, after waiting for that a while.

        kube-scheduler chooses the leader among its own replicas, and this one's Lease follows some moments later.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_ACTIVE_WITHIN):
                await self.leadership.wait_held()
        return self.leadership.held

    def _standby(self) -> str:
        return f"this replica of the extender is on standby; active is {self.leadership.holder or 'none'}"

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
    app.router.add_post("/preempt", _preempt)
    app.router.add_post("/bind", _bind)
    return app


def make_health_app(extender: Extender) -> web.Application:
    """Return the application that the kubelet probes and monitoring reads."""
    app = web.Application(client_max_size=_MAX_BODY)
    app[EXTENDER] = extender
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/metrics", _metrics)
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


async def _preempt(request: web.Request) -> web.Response:
    async def answer(body: Json) -> object:
        return await request.app[EXTENDER].preempt(read_preempt_args(body))

    # The answer has no place for an error: nobody is evicted then.
    return await _answered(request, answer, lambda _message: preempt_result({}))


async def _bind(request: web.Request) -> web.Response:
    async def answer(body: Json) -> object:
        return await request.app[EXTENDER].bind(read_bind_args(body))

    return await _answered(request, answer, lambda message: {"Error": message})


async def _answered(
    request: web.Request, answer: Callable[[Any], Awaitable[object]], failed: Callable[[str], object]
) -> web.Response:
    """Return the answer as JSON; what goes wrong is an answer too, in the form that this verb has for it."""
    began, outcome = time.monotonic(), "error"
    try:
        result = await answer(await request.json())
        outcome = outcome_of(result)
    except (WireError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        log.warning("%s: bad request: %s", request.path, error)
        result = failed(f"{request.path}: {error}")
    except web.HTTPRequestEntityTooLarge:
        result = failed(f"{request.path}: body of more than {_MAX_BODY} bytes")
    except Exception:
        log.exception("%s failed", request.path)
        result = failed(f"{request.path}: internal error, see the log of the extender")
    request.app[EXTENDER].metrics.answered(request.path.strip("/"), outcome, time.monotonic() - began)
    return web.json_response(result)


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[EXTENDER].metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    # A standby is ready too: kube-scheduler reaches the extender of its own pod only, so readiness chooses nothing, and
    # a Deployment whose new pods wait for the end of the old ones would never come to an end.
    if request.app[EXTENDER].state.is_synced:
        return web.Response(text="active\n" if request.app[EXTENDER].leadership.held else "standby\n")
    return web.Response(status=503, text="the extender has not read the cluster yet\n")
