"""Answering Allocate: from the node's lock to the pod, from its annotations to the answer, and back to the API server.

The kubelet does not say which pod a call is for; the node's lock does, and nothing else is ever taken for it. Of
every pod it is checked that it can be the one. One call is answered at a time.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kube.client import ConflictError, Json, KubeClient, KubeError, NotFoundError
from kube.paths import PODS
from kube.paths import pod as pod_path
from plugin.allocate import Answer, HostPaths
from plugin.decision import Grant, decide
from plugin.holder import RefusedError, Remedy, StillHeldError, check_holder, check_nobody_is_left
from plugin.inventory import Inventory
from plugin.ledger import Ledger
from plugin.nodelock import fenced, lock_value, settle
from plugin.patience import Backoff, Patience
from plugin.pending import read_pending
from plugin.podfolders import make_region
from plugin.repeats import Given, Repeats, may_repeat
from plugin.replicas import gpus_by_replica
from plugin.settings import PluginSettings
from plugin.standalone import whole_gpus
from plugin.survivors import Survivors
from protocol.allocation import AllocationError
from protocol.demand import Role
from protocol.lock import NodeLock, decode_lock
from protocol.names import NODE_LOCK
from protocol.pods import PodRef

log = logging.getLogger(__name__)

_FOR_SURVIVORS: Final = 0.75
"""How much of a call's time may be spent on waiting for the processes of pods that are over."""


class UnavailableError(Exception):
    """The API server did not answer in time; whether the pod could be served is not known."""


@dataclass(slots=True)
class _Call:
    """What is known so far of the call that is being answered."""

    device_ids: frozenset[str]
    give_up_at: float
    lock: NodeLock | None = None
    pod: PodRef | None = None
    patiently: Patience = field(default_factory=Patience)

    def wait_for_survivors(self, held: StillHeldError) -> None:
        """Refuse when they had their time."""
        if asyncio.get_running_loop().time() >= self.give_up_at:
            raise RefusedError(f"pod {self.pod}: {held}") from held
        log.warning("pod %s waits: %s", self.pod, held)


class Allocator:
    """Answers the kubelet's Allocate calls of one node."""

    def __init__(self, settings: PluginSettings, client: KubeClient, inventory: Inventory) -> None:
        self._settings = settings
        self._client = client
        self._inventory = inventory
        self._node = settings.node_name
        self._ledger = Ledger(settings.run_dir)
        self._survivors = Survivors.of(settings)
        self._paths = HostPaths(settings.dev_root, settings.library_dir, settings.run_dir)
        self._repeats = Repeats()
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
            # Time is left after it to fail the pod and free the node for others.
            give_up_at = asyncio.get_running_loop().time() + self._settings.allocate_seconds * _FOR_SURVIVORS
            call = _Call(frozenset(device_ids), give_up_at)
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
            reason = f"{error.filename or self._paths.run_dir}: {error.strerror}"
            raise RefusedError(f"pod {call.pod}: the plugin's own files on the node: {reason}") from error

    async def _settle(self, call: _Call, remedy: Remedy) -> None:
        if call.lock is not None:
            await settle(self._client, self._node, call.lock, call.pod, remedy)

    async def _serve(self, call: _Call) -> tuple[Answer, Remedy]:
        value = await call.patiently(lambda: lock_value(self._client, self._node))
        call.lock = decode_lock(value or "")
        repeated = await self._repeated(call)
        if repeated is not None:
            log.info("answered a repeated call for container %d of pod %s", repeated.position, repeated.pod)
            return repeated.answer, Remedy.NOTHING
        if not value and self._settings.standalone:
            return await self._alone(call), Remedy.NOTHING
        if call.lock is None:
            found = f"its value is {value[:80]!r}" if value else "nobody holds it"
            raise RefusedError(f"expected a pod in the lock {NODE_LOCK} of node {self._node}: {found}", Remedy.NOTHING)
        grant = await self._grant(call, call.lock)
        return grant.given.answer, grant.remedy

    async def _alone(self, call: _Call) -> Answer:
        """Answer for a pod that nobody has placed."""
        selector = f"spec.nodeName={self._node}"
        on_node, _ = await call.patiently(lambda: self._client.list(PODS, field_selector=selector))
        survivors = (await self._survivors.among(on_node)).survivors
        gpus = gpus_by_replica(self._inventory.snapshot.gpus)
        try:
            answer = whole_gpus(call.device_ids, gpus, on_node, self._paths)
            check_nobody_is_left({gpus[one].id for one in call.device_ids}, survivors)
        except (AllocationError, StillHeldError) as error:
            raise RefusedError(f"standalone: {error}", Remedy.NOTHING) from error
        log.info("devices %s: whole GPUs, %s", sorted(call.device_ids), dict(answer.env))
        return answer

    async def _grant(self, call: _Call, lock: NodeLock) -> Grant:
        """Decide, and record it on the pod; decide anew whenever the pod changed meanwhile."""
        backoff = Backoff()
        grant: Grant | None = None
        while True:
            pod = await self._holder(call, lock)
            if grant is not None and grant.has_landed(pod):
                return grant
            check_holder(pod, lock, self._node)
            try:
                grant = await self._decide(call, pod)
            except StillHeldError as held:
                call.wait_for_survivors(held)
            else:
                await self._prepare(grant)
                if await self._record(call, pod, grant):
                    return grant
            await asyncio.sleep(backoff.next())

    async def _holder(self, call: _Call, lock: NodeLock) -> Json:
        try:
            pod = await call.patiently(lambda: self._client.get(pod_path(lock.namespace, lock.pod)))
        except NotFoundError as error:
            gone = f"pod {lock.namespace}/{lock.pod}, which holds the node's lock, does not exist"
            raise RefusedError(gone, Remedy.RELEASE) from error
        ref = PodRef.of(pod)
        if call.pod is not None and call.pod != ref:
            raise RefusedError(f"pod {ref} was replaced by another of its name", Remedy.RELEASE)
        call.pod = ref
        return pod

    async def _decide(self, call: _Call, pod: Json) -> Grant:
        selector = f"spec.nodeName={self._node}"
        on_node, _ = await call.patiently(lambda: self._client.list(PODS, field_selector=selector))
        ledger = await self._survivors.among(on_node)
        grant = decide(
            pod,
            on_node,
            self._inventory.snapshot.by_id(),
            call.device_ids,
            self._paths,
            survivors=ledger.survivors,
            standing=ledger.standing,
        )
        if self._settings.cdi_dir is not None:
            grant = grant.by_cdi_name()
        given = grant.given
        log.info("container %d of pod %s gets %s", given.position, given.pod, dict(given.answer.env))
        return grant

    async def _prepare(self, grant: Grant) -> None:
        """Note what the pod holds, and make what the container will find, before anybody is told."""
        await asyncio.to_thread(self._make, grant)

    def _make(self, grant: Grant) -> None:
        self._ledger.record(grant.entry)
        for mount in grant.given.answer.mounts:
            if not mount.read_only:
                make_region(Path(mount.host_path))

    async def _record(self, call: _Call, pod: Json, grant: Grant) -> bool:
        """Write a grant to its pod, and return whether it is certain that it was written."""
        self._repeats.remember(grant.given)
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

    async def _repeated(self, call: _Call) -> Given | None:
        """Return the answer to give again, or None when the call is a new one."""
        given = self._repeats.find(call.device_ids)
        if given is None or (call.lock and not call.lock.held_by(given.pod.namespace, given.pod.name)):
            return None
        try:
            pod = await call.patiently(lambda: self._client.get(pod_path(given.pod.namespace, given.pod.name)))
            left = read_pending(pod).positions
        except (NotFoundError, AllocationError):
            return None
        # The containers after an init container get its device ids: with some left, this is the next one's call.
        is_next = given.position in left or (given.role is Role.INIT and bool(left))
        return given if not is_next and may_repeat(given, pod, self._node) else None
