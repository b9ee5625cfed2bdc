"""Answering Allocate: from the node's lock to the pod, from its annotations to the answer, and back to the API server.

The kubelet does not say which pod a call is for; the node's lock does, and nothing else is ever taken for it. Of
every pod it is checked that it can be the one. One call is answered at a time.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kube.client import ConflictError, Json, KubeClient, KubeError, NotFoundError
from kube.paths import PODS
from kube.paths import node as node_path
from kube.paths import pod as pod_path
from plugin.allocate import Answer, Host
from plugin.bookkeeping import Verdict
from plugin.callers import Callers
from plugin.decision import Grant, decide, repeat
from plugin.heldcus import HeldCus
from plugin.holder import (
    NotYetError,
    RefusedError,
    Remedy,
    StillHeldError,
    check_holder,
    check_nobody_is_left,
)
from plugin.inventory import Inventory
from plugin.ledger import Ledger
from plugin.nodelock import fenced, lock_of, settle
from plugin.patience import Backoff, Patience, both
from plugin.pending import is_complete
from plugin.podfolders import make_region
from plugin.repeats import Served
from plugin.replicas import gpus_by_replica
from plugin.settings import PluginSettings
from plugin.standalone import whole_gpus
from plugin.survivors import Survivors
from protocol.allocation import AllocationError
from protocol.lock import NodeLock
from protocol.names import ENV_BELOW_HIP, NODE_LOCK
from protocol.pods import PodRef, annotations

log = logging.getLogger(__name__)


class UnavailableError(Exception):
    """The API server did not answer in time; whether the pod could be served is not known."""


@dataclass(slots=True)
class _Call:
    """What is known so far of the call that is being answered.

    Attributes:
        device_ids: as the kubelet chose them.
        began: when it came, by the event loop's clock.
        node: as it was first read; its lock is the one that the call is about.
        pod: the lock's holder.
        patiently: makes calls to the API server.
    """

    device_ids: frozenset[str]
    began: float
    node: Json = field(default_factory=dict)
    pod: PodRef | None = None
    patiently: Patience = field(default_factory=Patience)

    def wait(self, reason: NotYetError, seconds: float) -> None:
        """Refuse when so much of the call's time is over, in seconds, that waiting for this ends."""
        if asyncio.get_running_loop().time() >= self.began + seconds * reason.patience:
            raise RefusedError(f"pod {self.pod}: {reason}", reason.remedy) from reason
        log.warning("pod %s waits: %s", self.pod, reason)


class Allocator:
    """Answers the kubelet's Allocate calls of one node."""

    def __init__(self, settings: PluginSettings, client: KubeClient, inventory: Inventory) -> None:
        self._settings = settings
        self._client = client
        self._inventory = inventory
        self._node = settings.node_name
        self._ledger = Ledger(settings.run_dir)
        self._survivors = Survivors.of(settings)
        env = {ENV_BELOW_HIP: "1"} if settings.below_hip else {}
        self._host = Host(settings.dev_root, settings.library_dir, settings.run_dir, env)
        self._callers = Callers(settings.pod_resources)
        self._held = HeldCus()
        self._one_at_a_time = asyncio.Lock()

    async def allocate(self, device_ids: Sequence[str]) -> Answer:
        """Return what the container gets that waits for its devices on this node.

        Args:
            device_ids: as the kubelet chose them; only their number matters.

        Raises:
            RefusedError: no container can be served by this call.
            UnavailableError: the API server was away for too long.
        """
        async with self._one_at_a_time:
            call = _Call(frozenset(device_ids), asyncio.get_running_loop().time())
            try:
                answer, remedy = await self._in_time(call)
            except RefusedError as refusal:
                await self._settle(call, refusal.remedy)
                raise
            await self._settle(call, remedy)
            return answer

    async def _in_time(self, call: _Call) -> tuple[Answer, Remedy]:
        seconds = self._settings.allocate_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._serve(call)
        except TimeoutError as error:
            raise UnavailableError(f"not served within {seconds:g} s: {call.patiently.last_error}") from error
        except KubeError as error:
            raise UnavailableError(str(error)) from error
        except OSError as error:
            reason = f"{error.filename or self._host.run_dir}: {error.strerror}"
            raise RefusedError(f"pod {call.pod}: the plugin's own files on the node: {reason}") from error

    async def _settle(self, call: _Call, remedy: Remedy) -> None:
        await settle(self._client, call.node, call.pod, remedy)

    async def _serve(self, call: _Call) -> tuple[Answer, Remedy]:
        # Side by side, though the lock may pass on in between: the pod is written only as this list has it, and what
        # others were given before it took the lock is in every list that has it.
        call.node, on_node = await both(self._read_node(call), self._list_pods(call))
        lock, value = lock_of(call.node), annotations(call.node).get(NODE_LOCK)
        holder = _holder_in(on_node, lock)
        call.pod = PodRef.of(holder) if holder else None
        verdict = await self._survivors.among(on_node)
        served = await self._callers.repeated(call.device_ids, verdict.standing, on_node, lock)
        if served is not None:
            # The first answer's process may have ended before it released the lock.
            return await self._repeat(call, served), Remedy.RELEASE if is_complete(served.pod) else Remedy.NOTHING
        if not value and self._settings.standalone:
            return self._alone(call, on_node, verdict), Remedy.NOTHING
        if lock is None:
            found = f"its value is {value[:80]!r}" if value else "nobody holds it"
            raise RefusedError(f"expected a pod in the lock {NODE_LOCK} of node {self._node}: {found}", Remedy.NOTHING)
        grant = await self._grant(call, lock, on_node, verdict)
        return grant.given.answer, grant.remedy

    async def _read_node(self, call: _Call) -> Json:
        return await call.patiently(lambda: self._client.get(node_path(self._node)))

    async def _list_pods(self, call: _Call) -> list[Json]:
        """Return all pods that are bound to the node, as the store has them."""
        selector = f"spec.nodeName={self._node}"
        on_node, _ = await call.patiently(lambda: self._client.list(PODS, field_selector=selector))
        self._held.keep_only(on_node)
        return on_node

    async def _repeat(self, call: _Call, served: Served) -> Answer:
        given = repeat(served, self._inventory.snapshot.by_id(), self._host)
        # With the ids of this call: by them the kubelet's own account is compared.
        await asyncio.to_thread(self._ledger.record, served.entry.served(served.name, call.device_ids))
        if self._settings.cdi_dir is not None:
            given = given.by_cdi_name()
        log.info("answered a repeated call for container %d of pod %s", given.position, given.pod)
        return given.answer

    def _alone(self, call: _Call, on_node: Sequence[Json], verdict: Verdict) -> Answer:
        """Answer for a pod that nobody has placed."""
        gpus = gpus_by_replica(self._inventory.snapshot.gpus)
        try:
            answer = whole_gpus(call.device_ids, gpus, on_node, self._host)
            check_nobody_is_left({gpus[one].id for one in call.device_ids}, verdict.survivors)
        except (AllocationError, StillHeldError) as error:
            raise RefusedError(f"standalone: {error}", Remedy.NOTHING) from error
        log.info("devices %s: whole GPUs, %s", sorted(call.device_ids), dict(answer.env))
        return answer

    async def _grant(self, call: _Call, lock: NodeLock, on_node: Sequence[Json], verdict: Verdict) -> Grant:
        """Decide, and record it on the pod; decide anew whenever the pod changed meanwhile."""
        backoff = Backoff()
        grant: Grant | None = None
        while True:
            pod = await self._holder(call, lock, on_node)
            if grant is not None and grant.has_landed(pod):
                return grant
            check_holder(pod, lock, self._node)
            try:
                grant = self._decide(call, pod, on_node, verdict)
                await self._callers.check_rivals(pod, len(call.device_ids), on_node, verdict.standing)
            except NotYetError as reason:
                call.wait(reason, self._settings.allocate_seconds)
            else:
                await self._prepare(grant)
                if await self._record(call, pod, grant):
                    return grant
            await asyncio.sleep(backoff.next())
            on_node = await self._list_pods(call)
            verdict = await self._survivors.among(on_node)

    async def _holder(self, call: _Call, lock: NodeLock, on_node: Sequence[Json]) -> Json:
        """Return the pod that holds the lock; one that is not on the node is asked for by its name, to say why."""
        pod = _holder_in(on_node, lock) or await self._named(call, lock)
        ref = PodRef.of(pod)
        if call.pod is not None and call.pod != ref:
            raise RefusedError(f"pod {ref} was replaced by another of its name", Remedy.RELEASE)
        call.pod = ref
        return pod

    async def _named(self, call: _Call, lock: NodeLock) -> Json:
        try:
            return await call.patiently(lambda: self._client.get(pod_path(lock.namespace, lock.pod)))
        except NotFoundError as error:
            gone = f"pod {lock.namespace}/{lock.pod}, which holds the node's lock, does not exist"
            raise RefusedError(gone, Remedy.RELEASE) from error

    def _decide(self, call: _Call, pod: Json, on_node: Sequence[Json], verdict: Verdict) -> Grant:
        grant = decide(
            pod,
            on_node,
            self._inventory.snapshot.by_id(),
            call.device_ids,
            self._host,
            survivors=verdict.survivors,
            standing=verdict.standing,
            read=self._held.of,
        )
        return grant if self._settings.cdi_dir is None else grant.by_cdi_name()

    async def _prepare(self, grant: Grant) -> None:
        """Note what the pod holds, and make what the container will find, before anybody is told."""
        given = grant.given
        log.info("container %d of pod %s gets %s", given.position, given.pod, dict(given.answer.env))
        await asyncio.to_thread(self._make, grant)

    def _make(self, grant: Grant) -> None:
        self._ledger.record(grant.entry)
        for mount in grant.given.answer.mounts:
            if not mount.read_only:
                make_region(Path(mount.host_path))

    async def _record(self, call: _Call, pod: Json, grant: Grant) -> bool:
        """Write a grant to its pod, and return whether it is certain that it was written."""
        ref = grant.given.pod
        try:
            await self._client.patch(pod_path(ref.namespace, ref.name), fenced(pod, grant.patch))
        except NotFoundError as error:
            raise RefusedError(f"pod {ref} was deleted while it was served", Remedy.RELEASE) from error
        except ConflictError:
            return False
        except KubeError as error:
            call.patiently.note(error)
            return False
        return True


def _holder_in(on_node: Sequence[Json], lock: NodeLock | None) -> Json | None:
    if lock is None:
        return None
    refs = zip(map(PodRef.of, on_node), on_node, strict=True)
    return next((pod for ref, pod in refs if lock.held_by(ref.namespace, ref.name)), None)
