"""Binding a pod: lock the node, choose, record the choice, prove it, bind; and the way back from each step.

The choice stands in the pod's annotations before the Binding exists, so a crash at any step leaves either a pod that is
not bound, whose annotations count for nothing, or a bound pod that says what it holds.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Final

from kube import paths
from kube.client import ConflictError, KubeClient, KubeError, NotFoundError
from protocol.demand import DemandError
from protocol.lock import NodeLock
from protocol.names import ASSIGNED_NODE, ASSIGNED_TIME, BIND_PHASE, BIND_TIME, PHASE_ALLOCATING
from protocol.placement import Placement, Refusal
from protocol.pods import Json, PodRef, node_name
from protocol.usage import node_usage
from scheduler.earlier import GRACE_SECONDS, bound_soon
from scheduler.leader import Alone, Leadership
from scheduler.nodelock import Hold, NodeLocks, clear_allocation, lock_of
from scheduler.openbinds import OpenBinds
from scheduler.request import Policies, Request
from scheduler.state import ClusterState, devices_of, survivors_of
from scheduler.wire import BindArgs

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
_SERVER_ERRORS: Final = 500
_WATCH_SECONDS: Final = 2.0
"""How long the watch may lag behind a write before the API server is asked for a list instead."""

Admit = Callable[[Request], Refusal | None]
"""Says why a pod may not be bound for another reason than the node's room; None for a pod that may."""


class BindError(Exception):
    """The pod was not bound; the message is what kube-scheduler shows in the pod's events."""


class UnknownOutcomeError(KubeError):
    """The Binding may exist, or come to exist. Nothing is undone then: a bound pod must keep what says what it holds.

    kube-scheduler tries again, and the same pod gets its lock again.
    """


class Binder:
    """Binds pods to nodes, one at a time per node.

    Args:
        client: the API server.
        state: the watched cluster.
        locks: of the nodes.
        policies: preferences, for pods that do not name their own.
        wait_seconds: how long a bind may wait for the node, well below the extender's `httpTimeout`.
        leadership: whether this replica may bind; asked once more when all but the Binding is done.
        locked: called with the seconds until a bind had its node's lock.
    """

    def __init__(
        self,
        client: KubeClient,
        state: ClusterState,
        locks: NodeLocks,
        *,
        policies: Policies,
        wait_seconds: float,
        leadership: Leadership | None = None,
        locked: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._locked = locked
        self._client = client
        self._state = state
        self._locks = locks
        self._policies = policies
        self._wait_seconds = wait_seconds
        self._leadership = leadership or Alone()
        # Within this process a node's binds queue here; against all others they meet at the node lock.
        self._queues: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open = OpenBinds()

    async def bind(self, args: BindArgs, admit: Admit) -> None:
        """Bind the pod, or leave everything as it was.

        Args:
            args: which pod, and where.
            admit: asked under the node lock, when the node has room.

        Raises:
            BindError: with the reason.
        """
        queue, began = self._queues[args.node], time.monotonic()
        try:
            async with asyncio.timeout(self._wait_seconds) as limit, self._open.waiting(limit), queue:
                if await self._is_bound(args):
                    return  # an earlier bind, whose answer was lost, did it
                hold = await self._locks.acquire(args.node, args.namespace, args.name)
                # From here on the way is short and must not be cut between its steps.
                limit.reschedule(None)
                self._locked(time.monotonic() - began)
                self._open.wait_no_more(limit)
                await self._bind_locked(args, hold, admit)
        except TimeoutError:
            raise BindError(self._why_not_in_time(args.node)) from None
        except KubeError as error:
            raise BindError(str(error)) from error

    async def drain(self) -> None:
        """Refuse binds from now on, send those away that wait for their node, and let the others get through."""
        await self._open.close()

    def _why_not_in_time(self, node: str) -> str:
        if self._open.closing:
            return "this replica of the extender is ending; try again"
        busy = f"node {node} was not free within {self._wait_seconds:g} s"
        lock = self._locks.watched(node)
        if lock is None:
            return f"{busy}: it starts one GPU pod after the other, and others came first; tried again"
        pod, since = f"{lock.namespace}/{lock.pod}", f"{lock.since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if self._state.find_pod(lock.namespace, lock.pod, node) is None:
            return f"{busy}: pod {pod} is being bound to it since {since}; tried again"
        return (
            f"{busy}: it starts one GPU pod after the other, and pod {pod}, bound to it at {since}, still waits for "
            f"its GPUs; tried again. If it stays so, see `kubectl -n {lock.namespace} describe pod {lock.pod}` and "
            f"the device plugin on the node; deleting that pod frees the node"
        )

    async def _bind_locked(self, args: BindArgs, hold: Hold, admit: Admit) -> None:
        try:
            await self._carry_out(args, hold, admit)
        except UnknownOutcomeError:
            raise
        except (BindError, KubeError):
            await self._undo(args, hold)
            raise
        log.info("bound pod=%s/%s uid=%s node=%s", args.namespace, args.name, args.uid, args.node)

    async def _is_bound(self, args: BindArgs) -> bool:
        """Return whether the pod is bound to the node."""
        return node_name(await self._read_pod(args)) == args.node

    async def _carry_out(self, args: BindArgs, hold: Hold, admit: Admit) -> None:
        """Choose, record and bind, again whenever others changed the pod meanwhile, such as its status.

        Each time in this order: the pod, then the lock. Whoever takes the lock from a pod changes that pod afterwards,
        so what is written here with the pod's resource version is written under the lock.
        """
        proven: Placement | None = None
        for _ in range(_ATTEMPTS):
            pod = await self._read_pod(args)
            if node_name(pod):
                return  # a Binding of an earlier bind has arrived: the pod keeps what that one chose
            request, node = self._request(pod), await self._locked_node(pod, args.node, hold.lock)
            placement = proven or await self._choose(request, node, admit, surely=hold.inherited is not None)
            try:
                recorded = await self._record(pod, placement, args.node)
                proven = _placed(request, node, await self._pods_since(pod, recorded, args.node))
                if proven != placement:
                    continue  # it was chosen from an old view
                if not self._leadership.held:
                    raise BindError(
                        f"this replica of the extender is not active any more; {self._leadership.holder} is"
                    )
                await self._post_binding(recorded, args)
            except ConflictError:
                continue
            return
        raise BindError(f"pod {args.namespace}/{args.name} changed {_ATTEMPTS} times while it was bound")

    async def _read_pod(self, args: BindArgs) -> Json:
        try:
            pod = await self._client.get(paths.pod(args.namespace, args.name))
        except NotFoundError as error:
            raise BindError(f"pod {args.namespace}/{args.name} is gone") from error
        if PodRef.of(pod).uid != args.uid:
            raise BindError(f"pod {args.namespace}/{args.name} was replaced by another of its name")
        if node_name(pod) not in {"", args.node}:
            raise BindError(f"pod {args.namespace}/{args.name} is bound to node {node_name(pod)} already")
        soon = bound_soon(pod, self._locks.now())
        if soon not in {"", args.node}:
            raise BindError(
                f"pod {args.namespace}/{args.name} may yet be bound to node {soon}, as a bind to it has not come to an "
                f"end; it can go elsewhere {GRACE_SECONDS:g} s after that began"
            )
        return pod

    def _request(self, pod: Json) -> Request:
        try:
            return Request.of(pod, self._policies)
        except DemandError as error:
            raise BindError(str(error)) from error

    async def _locked_node(self, pod: Json, name: str, lock: NodeLock) -> Json:
        """Return the node as it is under the lock."""
        node = await self._client.get(paths.node(name))
        if lock_of(node) != lock:
            raise BindError(f"node {name}: another bind has taken the lock over from pod {PodRef.of(pod)}")
        return node

    async def _choose(self, request: Request, node: Json, admit: Admit, *, surely: bool) -> Placement:
        """Choose from what the watch shows; where that has no room, from what the API server says.

        Args:
            request: of the pod.
            node: under the lock.
            admit: see `bind`.
            surely: only from what the API server says, as an earlier Binding may be on its way, with which the choice
                counts as soon as it is recorded.
        """
        name = node["metadata"]["name"]
        if not surely:
            with suppress(BindError):
                return _placed(request, node, self._state.pods_on(name).values(), admit)
        return _placed(request, node, await self._pods_of(name), admit)

    async def _pods_since(self, before: Json, recorded: Json, node: str) -> Iterable[Json]:
        """Return the pods on a node at a time after the choice was recorded.

        Every earlier holder of the lock has recorded its choice, and was bound, before the lock was had: all of that
        was written before this record. So the watch tells the truth as soon as it shows the record, and an API server
        need not read all pods of the cluster to find those of a node, as it would for a consistent list.
        """
        # A record that says what the pod said already is no write, and may be older than the lock.
        if recorded["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SECONDS):
                    await self._state.wait_until(lambda: self._state.shows_pods_since(recorded))
                return self._state.pods_on(node).values()
        return await self._pods_of(node)

    async def _pods_of(self, node: str) -> Sequence[Json]:
        pods, _ = await self._client.list(paths.PODS, field_selector=f"spec.nodeName={node}")
        return pods

    async def _record(self, pod: Json, placement: Placement, node: str) -> Json:
        """Write the choice into the pod, if it is still the pod that was read."""
        now = str(int(self._locks.now().timestamp()))
        notes: Mapping[str, str] = {
            **placement.annotations(),
            ASSIGNED_NODE: node,
            ASSIGNED_TIME: now,
            BIND_PHASE: PHASE_ALLOCATING,
            BIND_TIME: now,
        }
        metadata = pod["metadata"]
        body = {
            "metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "annotations": notes,
            }
        }
        return await self._client.patch(paths.pod(metadata["namespace"], metadata["name"]), body)

    async def _post_binding(self, pod: Json, args: BindArgs) -> None:
        # The uid guards against a pod recreated under the name; the resource version (Kubernetes >= 1.23) against
        # annotations that somebody took off because this bind seemed dead.
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
        }
        try:
            await self._client.create(f"{paths.pod(args.namespace, args.name)}/binding", body)
        except ConflictError:
            if not await self._is_bound(args):
                raise
        except KubeError as error:
            if 0 < error.status < _SERVER_ERRORS:
                raise
            # No answer, or one such as `etcdserver: request timed out`: the Binding may still come to exist.
            if not await self._seems_bound(args):
                raise UnknownOutcomeError(str(error)) from error

    async def _seems_bound(self, args: BindArgs) -> bool:
        try:
            return await self._is_bound(args)
        except KubeError:
            return False

    async def _undo(self, args: BindArgs, hold: Hold) -> None:
        """Take the annotations and the lock back, before anybody else gets the node.

        Where an earlier bind of the pod held the lock both stay, for its Binding may be on its way.
        """
        try:
            if hold.inherited is not None or await self._clear(args, hold.lock):
                await self._locks.give_back(args.node, hold)
        except KubeError as error:
            # Not lost: a holder that is not bound gives way to the next pod by itself.
            log.warning("bind pod=%s/%s node=%s: its traces stay: %s", args.namespace, args.name, args.node, error)

    async def _clear(self, args: BindArgs, lock: NodeLock) -> bool:
        """Take the annotations off the pod, and return whether the lock can go too."""
        for _ in range(_ATTEMPTS):
            with suppress(ConflictError):
                return await self._clear_once(args, lock)
        return False

    async def _clear_once(self, args: BindArgs, lock: NodeLock) -> bool:
        """Do so as long as the pod stays as it was read.

        Not when the pod is bound after all; and a lock that is another bind's, perhaps of the same pod, means that what
        the pod says is that one's as well. The pod is read first, see `_carry_out`.
        """
        try:
            pod = await self._client.get(paths.pod(args.namespace, args.name))
        except NotFoundError:
            return True
        if PodRef.of(pod).uid != args.uid or node_name(pod) not in {"", args.node}:
            return True  # what it says now is another's choice, or that of its bind to another node
        if bound_soon(pod, self._locks.now()) not in {"", args.node}:
            return True
        if node_name(pod) or lock_of(await self._client.get(paths.node(args.node))) != lock:
            return False
        await clear_allocation(self._client, pod)
        return True


def _placed(request: Request, node: Json, pods: Iterable[Json], admit: Admit = lambda _: None) -> Placement:
    """Return where the pod goes on the node beside these pods.

    Raises:
        BindError: it has no room, or may not have it.
    """
    usages, _unreadable = node_usage(devices_of(node), pods, survivors_of(node))
    outcome = request.place(usages)
    if isinstance(outcome, Refusal):
        raise BindError(f"node {node['metadata']['name']} has no room any more: {outcome.reason}")
    obstacle = admit(request)
    if obstacle is not None:
        raise BindError(obstacle.reason)
    return outcome
