"""A small cluster in virtual time, in which everything goes wrong: is a CU ever held twice?

Two extenders that know nothing of each other's memory, a kube-scheduler that filters one pod after the other and binds
beside, device plugins, pods that come, end and are deleted at any time, extenders that are killed at any await.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from kube import paths
from kube.client import KubeClient, KubeError
from protocol.devices import encode_register
from protocol.lock import decode_lock
from protocol.names import BIND_PHASE, NODE_LOCK, NODE_REGISTER, PHASE_ALLOCATING, PHASE_SUCCESS
from protocol.pods import annotations, is_finished, node_name, read_holding
from protocol.usage import node_usage
from scheduler.app import Extender
from scheduler.binder import Binder
from scheduler.janitor import keep_locks_tidy
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import BindArgs, FilterArgs
from tests.protocol.makers import MI300X, container, pod_spec, sidecar
from tests.scheduler.standin_api import StandInApi, now

SPACE = "default"
DEVICES = (MI300X, replace(MI300X, id="GPU-0000000000000002", index=1))
NODES = ("node-a", "node-b")
BIND_TIMEOUT = 30.0
LONGEST_LIFE = 300.0


def check(api: StandInApi) -> None:
    """The invariant, asked after every write: no CU twice, no memory over-committed, Allocate finds its pod."""
    held: dict[tuple[str, str], set[int]] = defaultdict(set)
    for pod in api.pods():
        if is_finished(pod) or not node_name(pod):
            continue
        holding = read_holding(pod)
        assert holding is not None, f"{pod['metadata']['name']} is bound and does not say what it holds"
        for device_id, ids in holding.cus.items():
            mine = held[node_name(pod), device_id]
            assert not mine & set(ids), f"CUs {sorted(mine & set(ids))} of {device_id} are held twice"
            mine.update(ids)
    for pod in api.pods():
        if node_name(pod) and not is_finished(pod) and annotations(pod).get(BIND_PHASE) == PHASE_ALLOCATING:
            lock = decode_lock(annotations(api.objects[paths.node(node_name(pod))]).get(NODE_LOCK, ""))
            waiting = pod["metadata"]["name"]
            assert lock is not None, f"{waiting} waits for Allocate and the node's lock is free"
            assert lock.pod == waiting, f"{waiting} waits for Allocate and the node's lock is that of {lock.pod}"
    for node in NODES:
        usages, unreadable = node_usage(DEVICES, [pod for pod in api.pods() if node_name(pod) == node])
        assert not unreadable
        assert all(usage.memory_mib <= usage.device.memory_mib and not usage.blocked for usage in usages.values())


async def _forgotten(call: "asyncio.Task[dict[str, object]]") -> None:
    await call


class Simulation:
    """One run; the same for the same seed."""

    def __init__(self, seed: int, pods: int, *, before_1_23: bool = False) -> None:
        self.random = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self.api = StandInApi(self.random, check, before_1_23=before_1_23)
        self.count = pods
        self.pending: asyncio.Queue[str] = asyncio.Queue()
        self.extenders: dict[str, Extender] = {}
        self.background: set[asyncio.Task[None]] = set()
        self.bound: set[str] = set()

    async def run(self) -> None:
        """Let the pods come and go, and in the end let the dust settle."""
        register = {NODE_REGISTER: encode_register(DEVICES)}
        for name in NODES:
            self.api.put(paths.node(name), {"metadata": {"name": name, "uid": name, "annotations": register}})
        for name in ("one", "two"):
            self._spawn(self._keep_extender(name))
        for name in NODES:
            self._spawn(self._plugin(name))
        self._spawn(self._kube_scheduler())
        for number in range(self.count):
            await asyncio.sleep(self.random.expovariate(2))
            self._create(f"pod-{number}")
        await asyncio.sleep(400)
        for task in self.background:
            task.cancel()
        for end in await asyncio.gather(*self.background, return_exceptions=True):
            if isinstance(end, Exception):
                raise end

    def leftovers(self) -> list[str]:
        """What should not be there when nobody does anything any more."""
        left = [
            f"{name}: {annotations(self.api.objects[paths.node(name)])[NODE_LOCK]}"
            for name in NODES
            if NODE_LOCK in annotations(self.api.objects[paths.node(name)])
        ]
        return left + [pod["metadata"]["name"] for pod in self.api.pods() if not is_finished(pod)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.add(asyncio.create_task(work))

    def _create(self, name: str) -> None:
        metadata = {"namespace": SPACE, "name": name, "uid": f"uid-{name}", "creationTimestamp": now().isoformat()}
        self.api.put(
            paths.pod(SPACE, name), {"metadata": metadata, "spec": self._spec(), "status": {"phase": "Pending"}}
        )
        self.pending.put_nowait(name)
        self._spawn(self._life(name))

    def _spec(self) -> dict[str, Any]:
        def one() -> dict[str, Any]:
            gpus = 2 if self.random.random() < 0.2 else 1
            return container(
                gpu=gpus, gpucores=self.random.choice([3, 10, 25, 33, 50, 100]), gpumem=self.random.randint(1, 90_000)
            )

        inits = [one() if self.random.random() < 0.5 else sidecar(one()) for _ in range(self.random.random() < 0.3)]
        return pod_spec(*(one() for _ in range(self.random.choice([1, 1, 1, 2]))), inits=tuple(inits))

    async def _life(self, name: str) -> None:
        """End a pod some time after it runs, or before."""
        path = paths.pod(SPACE, name)
        # Not for ever: in the end no pod may be there any more.
        await asyncio.sleep(min(LONGEST_LIFE, self.random.expovariate(1 / 40)))
        pod = self.api.objects[path]
        if self.random.random() < 0.5:
            self.api.put(path, {**pod, "status": {"phase": self.random.choice(["Succeeded", "Failed"])}})
            await asyncio.sleep(self.random.expovariate(1 / 10))
        self.api.remove(path)

    async def _keep_extender(self, name: str) -> None:
        """Run an extender, and kill it now and then wherever it is."""
        while True:
            client = cast("KubeClient", self.api)
            state = ClusterState()
            loop = asyncio.get_running_loop()
            locks = NodeLocks(client, state, now)
            binder = Binder(client, state, locks, policies=Policies(), wait_seconds=20)
            tasks = [asyncio.create_task(state.run(client)), asyncio.create_task(keep_locks_tidy(state, locks))]
            self.extenders[name] = Extender.of(state, binder, Policies(), loop.time, now=now)
            try:
                await asyncio.sleep(self.random.expovariate(1 / 30))
            finally:
                for task in tasks:
                    task.cancel()
                del self.extenders[name]
            await asyncio.sleep(self.random.expovariate(1))

    async def _kube_scheduler(self) -> None:
        """Filter one pod after the other; bind beside."""
        while True:
            name = await self.pending.get()
            pod = self.api.objects.get(paths.pod(SPACE, name))
            if pod is None or is_finished(pod) or node_name(pod):
                continue
            extender = self._any_extender()
            nodes: list[str] = []
            if extender is not None:
                answer = await extender.filter(FilterArgs(pod, NODES, None))
                nodes = cast("list[str]", answer["NodeNames"] or [])
            if nodes:
                self._spawn(self._bind(name, pod["metadata"]["uid"], self.random.choice(nodes)))
            else:
                self._spawn(self._later(name))

    async def _bind(self, name: str, uid: str, node: str) -> None:
        """Bind through one of the extenders, which may be killed meanwhile; kube-scheduler gives up after a while."""
        extender = self._any_extender()
        if extender is not None:
            call = asyncio.create_task(extender.bind(BindArgs(SPACE, name, uid, node)))
            dies = self.random.expovariate(1 / 3) if self.random.random() < 0.2 else BIND_TIMEOUT
            done, _ = await asyncio.wait({call}, timeout=dies)
            if done and call.result() == {"Error": ""}:
                self.bound.add(name)
                return
            if self.random.random() < 0.5:
                # An extender that nobody hears of any more goes on, while kube-scheduler asks another.
                self._spawn(_forgotten(call))
            else:
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
        await self._later(name)

    async def _later(self, name: str) -> None:
        await asyncio.sleep(self.random.expovariate(1 / 3))
        self.pending.put_nowait(name)

    def _any_extender(self) -> Extender | None:
        synced = [extender for extender in self.extenders.values() if extender.state.is_synced]
        return self.random.choice(synced) if synced else None

    async def _plugin(self, node: str) -> None:
        """Serve the pod that the lock names, as the device plugin does: its phase, then the lock."""
        while True:
            is_down = self.random.random() < 0.003
            await asyncio.sleep(90 if is_down else self.random.expovariate(2))
            with suppress(KubeError):
                await self._serve(node)

    async def _serve(self, node: str) -> None:
        item = await self.api.get(paths.node(node))
        lock = decode_lock(annotations(item).get(NODE_LOCK, ""))
        if lock is None:
            return
        pod = await self.api.get(paths.pod(lock.namespace, lock.pod))
        if node_name(pod) != node or annotations(pod).get(BIND_PHASE) != PHASE_ALLOCATING:
            return
        served = {"resourceVersion": pod["metadata"]["resourceVersion"], "annotations": {BIND_PHASE: PHASE_SUCCESS}}
        await self.api.patch(paths.pod(lock.namespace, lock.pod), {"metadata": served})
        again = await self.api.get(paths.node(node))
        if decode_lock(annotations(again).get(NODE_LOCK, "")) == lock:
            free = {"resourceVersion": again["metadata"]["resourceVersion"], "annotations": {NODE_LOCK: None}}
            await self.api.patch(paths.node(node), {"metadata": free})
