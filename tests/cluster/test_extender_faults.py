"""Two extenders that are killed and cut off all the time, and the invariant, looked at from outside.

Real are the API server, kube-scheduler with the shipped configuration, and the extenders as processes with the shipped
rights. Stand-ins are the nodes: plain objects, whose kubelet and device plugin are played here. One kube-scheduler
asks, through a line that leads to the active extender, as the one beside it would.

FAULT_PODS=500 for a long run; FAULT_SEED for another course of it.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml

from kube import paths
from kube.client import KubeClient, KubeError, NotFoundError
from kube.listwatch import Snapshot, list_watch
from protocol.allocation import AllocationError
from protocol.devices import encode_register
from protocol.lock import decode_lock
from protocol.names import BIND_PHASE, NODE_LOCK, NODE_REGISTER, PHASE_ALLOCATING, PHASE_SUCCESS, SCHEDULER_NAME
from protocol.pods import Holding, annotations, is_finished, node_name, read_holding
from protocol.usage import node_usage
from tests.certs.replicas import control_plane
from tests.cluster.extenders import Extenders, Replica, state_of
from tests.cluster.line import Line
from tests.cluster.product import scheduler_configuration
from tests.protocol.makers import MI300X, container, pod_spec

Json = dict[str, Any]
PODS: Final = int(os.environ.get("FAULT_PODS", "60"))
SEED: Final = int(os.environ.get("FAULT_SEED", "1"))
SPACE: Final = "faults"
NODES: Final = tuple(f"fault-node-{letter}" for letter in "abc")
GPUS: Final = (MI300X, replace(MI300X, id="GPU-0000000000000002", index=1))
ARRIVALS: Final = 8.0
"""Pods a second."""
PATIENCE: Final = 120.0 + 2.0 * PODS
"""Seconds; kube-scheduler before 1.24 leaves a pod alone for a minute after an error when nothing else happens."""


@pytest.fixture(scope="module")
def extenders() -> Iterator[Extenders]:
    with control_plane() as cluster:
        cluster.create_namespace(SPACE)
        yield Extenders(cluster)


@pytest.fixture
async def client(extenders: Extenders) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(extenders.cluster.kubeconfig) as client:
        yield client


class Outside:
    """All pods as a watch of its own shows them, checked after every single change."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.bound: set[str] = set()
        self.checks = 0
        self.most_at_once = 0
        self._changed = asyncio.Condition()

    async def run(self, client: KubeClient) -> None:
        async with aclosing(list_watch(client, paths.pods(SPACE))) as updates:
            async for update in updates:
                if isinstance(update, Snapshot):
                    self.pods = {item["metadata"]["name"]: item for item in update.items}
                elif update.kind == "DELETED":
                    self.pods.pop(update.item["metadata"]["name"], None)
                else:
                    self.pods[update.item["metadata"]["name"]] = update.item
                self._check()
                async with self._changed:
                    self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    def _check(self) -> None:
        """No CU twice, no memory over-committed, and every bound pod says what it holds."""
        self.checks += 1
        live = [pod for pod in self.pods.values() if node_name(pod) and not is_finished(pod)]
        self.bound.update(pod["metadata"]["name"] for pod in live)
        self.most_at_once = max(self.most_at_once, len(live))
        held: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for pod in live:
            holding = _holding(pod)
            for device_id, ids in holding.cus.items():
                held[node_name(pod), device_id].update(ids)
        twice = {where: [cu for cu, times in ids.items() if times > 1] for where, ids in held.items()}
        assert not any(twice.values()), f"CUs are held twice: {twice}"
        for node in NODES:
            usages, unreadable = node_usage(GPUS, [pod for pod in live if node_name(pod) == node])
            assert not unreadable
            for usage in usages.values():
                assert usage.memory_mib <= usage.device.memory_mib, f"{node}: memory is over-committed"
                assert not usage.blocked, usage.blocked


def _holding(pod: Json) -> Holding:
    try:
        holding = read_holding(pod)
    except AllocationError as error:
        raise AssertionError(f"{pod['metadata']['name']} is bound and does not say what it holds: {pod}") from error
    assert holding is not None
    return holding


class StandInNode:
    """Plays a node's kubelet and device plugin: serves the pod that the lock names, lets it run, ends it."""

    def __init__(self, client: KubeClient, name: str, seed: random.Random) -> None:
        self._client = client
        self._name = name
        self._random = seed

    async def create(self) -> None:
        register = {NODE_REGISTER: encode_register(GPUS)}
        await self._client.create(paths.NODES, {"metadata": {"name": self._name, "annotations": register}})
        await self._report()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_reporting())
            async with aclosing(
                list_watch(self._client, paths.NODES, field_selector=f"metadata.name={self._name}")
            ) as updates:
                async for _ in updates:
                    # Any change may be a lock, or the Binding that its pod still waits for.
                    while await self._serve():  # noqa: ASYNC110 - this is how long serving takes
                        await asyncio.sleep(self._random.uniform(0.02, 0.2))

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(5)
            with suppress(KubeError):
                await self._report()

    async def _report(self) -> None:
        """Be Ready, with room for pods and slots for GPUs."""
        room = {"cpu": "64", "memory": "256Gi", "pods": "200", "amd.com/gpu": str(10 * len(GPUS))}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        await self._client.patch(f"{paths.node(self._name)}/status", {"status": status})

    async def _serve(self) -> bool:
        """Do one step for the lock's holder; return whether there is a lock, so that there may be more to do."""
        try:
            lock = decode_lock(annotations(await self._client.get(paths.node(self._name))).get(NODE_LOCK, ""))
            if lock is None:
                return False
            path = paths.pod(lock.namespace, lock.pod)
            pod = await self._client.get(path)
            if node_name(pod) != self._name or annotations(pod).get(BIND_PHASE) != PHASE_ALLOCATING:
                return True
            await self._client.patch(path, _fenced(pod, {BIND_PHASE: PHASE_SUCCESS}))
            node = await self._client.get(paths.node(self._name))
            if decode_lock(annotations(node).get(NODE_LOCK, "")) == lock:
                await self._client.patch(paths.node(self._name), _fenced(node, {NODE_LOCK: None}))
        except KubeError:
            pass  # changed meanwhile, or gone: look again
        return True


def _fenced(item: Json, notes: dict[str, str | None]) -> Json:
    return {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"], "annotations": notes}}


class Chaos:
    """Two extenders, each behind a line to the API server, and everything that happens to them."""

    def __init__(self, extenders: Extenders, http: aiohttp.ClientSession, seed: random.Random) -> None:
        self._extenders = extenders
        self._http = http
        self._random = seed
        self._replicas: dict[str, Replica] = {}
        self._lines = {name: Line(urlsplit(extenders.cluster.server).port or 0) for name in ("pod-a", "pod-b")}
        self.to_active = Line()
        self.done: Counter[str] = Counter()
        self.enough = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Chaos"]:
        async with self.to_active.running(), self._lines["pod-a"].running(), self._lines["pod-b"].running():
            for name in self._lines:
                await self._start(name)
            yield self
            for replica in self._replicas.values():
                await asyncio.to_thread(self._extenders.kill, replica)

    async def follow_active(self) -> None:
        """Let the line for kube-scheduler lead to the active extender."""
        while True:
            for replica in tuple(self._replicas.values()):
                with suppress(aiohttp.ClientError, TimeoutError):
                    port = urlsplit(replica.url).port or 0
                    if await state_of(self._http, replica) == "active" and port != self.to_active.target:
                        self.to_active.target = port
                        self.to_active.cut()
            await asyncio.sleep(0.05)

    async def rage(self) -> None:
        """Do harm, again and again, until it is enough; none of it is left half done."""
        harms: dict[str, Callable[[str], Awaitable[None]]] = {
            "killed": self._kill,
            "cut off": self._cut,
            "away for a while": self._isolate,
            "ended": self._end,
            "paused": self._pause,
        }
        while not self.enough.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0.3, 3.0)):
                    await self.enough.wait()
            harm, name = self._random.choice(list(harms)), self._random.choice(list(self._lines))
            await harms[harm](name)
            self.done[harm] += 1

    async def _start(self, name: str) -> None:
        line = self._lines[name]
        config = yaml.safe_load(self._extenders.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{line.port}"
        kubeconfig = self._extenders.cluster.state / f"{name}.kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        start = self._extenders.start
        self._replicas[name] = await asyncio.to_thread(start, name, "--kube-scheduler-lease=", kubeconfig=kubeconfig)

    async def _kill(self, name: str) -> None:
        await asyncio.to_thread(self._extenders.kill, self._replicas.pop(name))
        await self._start(name)

    async def _end(self, name: str) -> None:
        await asyncio.to_thread(self._extenders.stop, self._replicas.pop(name))
        await self._start(name)

    async def _pause(self, name: str) -> None:
        """Let it stand still for longer than its Lease, in which it believes when it goes on."""
        group = self._replicas[name].service.pid
        os.killpg(group, signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(3.5, 6.0))
        os.killpg(group, signal.SIGCONT)

    async def _cut(self, name: str) -> None:
        self._lines[name].cut()

    async def _isolate(self, name: str) -> None:
        line = self._lines[name]
        line.down = True
        line.cut()
        await asyncio.sleep(self._random.uniform(0.5, 5.0))
        line.down = False


class Users:
    """Create pods, and delete them: some before they run, the others when they have run for a while."""

    def __init__(self, client: KubeClient, outside: Outside, seed: random.Random) -> None:
        self._client = client
        self._outside = outside
        self._random = seed
        self.hasty = 0

    async def run(self, count: int) -> None:
        """Return when every pod has come and gone; those that nobody deletes early must have been served."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(self._life(f"pod-{number}"))
                await asyncio.sleep(self._random.expovariate(ARRIVALS))

    async def whole(self, count: int) -> None:
        """Have pods take all there is of every node, which works only if nothing of it is lost."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(self._served(f"whole-{number}", container(gpu=len(GPUS))))

    async def _life(self, name: str) -> None:
        if self._random.random() < 0.15:
            self.hasty += 1
            await self._create(name, self._container())
            await asyncio.sleep(self._random.uniform(0, 2))
        else:
            await self._served(name, self._container())
            await asyncio.sleep(self._random.uniform(0, 2))
            if self._random.random() < 0.5:
                phase = {"status": {"phase": self._random.choice(["Succeeded", "Failed"])}}
                await self._client.patch(f"{paths.pod(SPACE, name)}/status", phase)
                await asyncio.sleep(self._random.uniform(0, 1))
        await self.remove(name)

    async def _served(self, name: str, body: Json) -> None:
        await self._create(name, body)
        await self._outside.until(
            lambda: annotations(self._outside.pods.get(name, {})).get(BIND_PHASE) == PHASE_SUCCESS
        )

    async def _create(self, name: str, body: Json) -> None:
        spec = {**pod_spec(body), "schedulerName": SCHEDULER_NAME, "terminationGracePeriodSeconds": 0}
        await self._client.create(paths.pods(SPACE), {"metadata": {"name": name}, "spec": spec})

    async def remove(self, name: str) -> None:
        with suppress(NotFoundError):
            await self._client.delete(f"{paths.pod(SPACE, name)}?gracePeriodSeconds=0")

    def _container(self) -> Json:
        cores, memory = self._random.choice([3, 10, 25, 33, 50, 100]), self._random.randint(1, 90_000)
        return container(gpu=2 if self._random.random() < 0.2 else 1, gpucores=cores, gpumem=memory)


async def test_no_cu_is_held_twice_and_nothing_leaks_whoever_is_killed(
    extenders: Extenders, client: KubeClient
) -> None:
    seed, outside = random.Random(SEED), Outside()  # noqa: S311 - to be repeated
    users = Users(client, outside, seed)
    nodes = [StandInNode(client, name, seed) for name in NODES]
    for node in nodes:
        await node.create()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http:
        chaos = Chaos(extenders, http, seed)
        async with chaos.running():
            await asyncio.to_thread(start_kube_scheduler, extenders, chaos.to_active.port)
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(work)
                    for work in (outside.run(client), chaos.follow_active(), *(node.run() for node in nodes))
                ]
                raging = tasks.create_task(chaos.rage())
                begin = time.monotonic()
                await users.run(PODS)
                took = time.monotonic() - begin
                chaos.enough.set()
                await raging
                await no_locks(client)
                await users.whole(len(NODES))
                for number in range(len(NODES)):
                    await users.remove(f"whole-{number}")
                await outside.until(lambda: not outside.pods)
                await no_locks(client)
                for task in background:
                    task.cancel()
    print(f"{PODS} pods in {took:.0f} s, {outside.checks} checks, {dict(chaos.done)}")  # noqa: T201
    assert len(outside.bound) >= PODS - users.hasty + len(NODES)
    assert outside.most_at_once > 1
    assert sum(chaos.done.values()) >= PODS / 20


def start_kube_scheduler(extenders: Extenders, port: int) -> None:
    config = scheduler_configuration()
    for extender in config["extenders"]:
        extender["urlPrefix"] = f"http://127.0.0.1:{port}"
    extenders.cluster.start_scheduler(SCHEDULER_NAME, config, extenders.kubeconfig)


async def no_locks(client: KubeClient) -> None:
    """Wait until no node is locked: what a killed extender left is taken off by another."""
    async with asyncio.timeout(60):
        while True:
            items, _ = await client.list(paths.NODES)
            if not any(NODE_LOCK in annotations(item) for item in items):
                return
            await asyncio.sleep(0.1)
