"""Binding a pod: lock the node, read it afresh, choose, record the choice, bind; and the way back from each step.

The choice stands in the pod's annotations before the Binding exists, so a crash at any step leaves either a pod that is
not bound, whose annotations count for nothing, or a bound pod that says what it holds.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kube import paths
from kube.client import ConflictError, KubeClient, KubeError, NotFoundError, UnreachableError
from protocol.demand import DemandError
from protocol.names import ASSIGNED_NODE, ASSIGNED_TIME, BIND_PHASE, BIND_TIME, PHASE_ALLOCATING
from protocol.placement import Placement, Refusal
from protocol.pods import Json, PodRef, node_name
from protocol.usage import node_usage
from scheduler.nodelock import NodeLocks, clear_allocation
from scheduler.request import Policies, Request
from scheduler.state import devices_of
from scheduler.wire import BindArgs

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10


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
        locks: of the nodes.
        policies: preferences, for pods that do not name their own.
        wait_seconds: how long a bind may wait for the node, well below the extender's `httpTimeout`.
    """

    def __init__(self, client: KubeClient, locks: NodeLocks, *, policies: Policies, wait_seconds: float) -> None:
        self._client = client
        self._locks = locks
        self._policies = policies
        self._wait_seconds = wait_seconds
        # Within this process a node's binds queue here; against all others they meet at the node lock.
        self._queues: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def bind(self, args: BindArgs) -> None:
        """Bind the pod, or leave everything as it was.

        Raises:
            BindError: with the reason.
        """
        queue = self._queues[args.node]
        try:
            async with asyncio.timeout(self._wait_seconds) as limit, queue:
                if await self._is_bound(args):
                    return  # an earlier bind, whose answer was lost, did it
                await self._locks.acquire(args.node, args.namespace, args.name)
                # From here on the way is short and must not be cut between its steps.
                limit.reschedule(None)
                await self._bind_locked(args)
        except TimeoutError:
            holder = self._locks.watched_value(args.node) or "nobody"
            message = f"node {args.node} was not free within {self._wait_seconds:g} s; its lock: {holder}"
            raise BindError(message) from None
        except KubeError as error:
            raise BindError(str(error)) from error

    async def _bind_locked(self, args: BindArgs) -> None:
        try:
            placement = await self._choose(await self._read_pod(args), args.node)
            await self._carry_out(placement, args)
        except UnknownOutcomeError:
            raise
        except (BindError, KubeError):
            await self._undo(args)
            raise
        log.info("bound pod=%s/%s uid=%s node=%s", args.namespace, args.name, args.uid, args.node)

    async def _is_bound(self, args: BindArgs) -> bool:
        """Return whether the pod is bound to the node."""
        return node_name(await self._read_pod(args)) == args.node

    async def _carry_out(self, placement: Placement, args: BindArgs) -> None:
        """Record the choice and bind, again whenever others changed the pod meanwhile, such as its status."""
        for _ in range(_ATTEMPTS):
            pod = await self._read_pod(args)
            try:
                await self._post_binding(await self._record(pod, placement, args.node), args)
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
        return pod

    async def _choose(self, pod: Json, node: str) -> Placement:
        """Choose from what the API server says now, under the lock."""
        try:
            request = Request.of(pod, self._policies)
        except DemandError as error:
            raise BindError(str(error)) from error
        item = await self._client.get(paths.node(node))
        others, _ = await self._client.list(paths.PODS, field_selector=f"spec.nodeName={node}")
        usages, _unreadable = node_usage(devices_of(item), others)
        outcome = request.place(usages)
        if isinstance(outcome, Refusal):
            raise BindError(f"node {node} has no room any more: {outcome.reason}")
        return outcome

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
        except UnreachableError as error:
            if not await self._is_bound(args):
                raise UnknownOutcomeError(str(error)) from error

    async def _undo(self, args: BindArgs) -> None:
        """Take the annotations and the lock back, before anybody else gets the node."""
        try:
            pod = await self._client.get(paths.pod(args.namespace, args.name))
            if PodRef.of(pod).uid == args.uid:
                if node_name(pod) == args.node:
                    return
                await clear_allocation(self._client, pod)
            await self._locks.release(args.node, args.namespace, args.name)
        except NotFoundError:
            await self._locks.release(args.node, args.namespace, args.name)
        except KubeError as error:
            # Not lost: a holder that is not bound gives way to the next pod by itself.
            log.warning("bind pod=%s/%s node=%s: its traces stay: %s", args.namespace, args.name, args.node, error)
