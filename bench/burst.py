"""1,000 pods at once on 100 nodes of 8 GPUs. Run as root: python -m bench.burst [--pods N] [--nodes N].

Real are etcd, kube-apiserver, kube-scheduler with the shipped configuration, and the extender with the shipped rights.
Stand-ins are the nodes: plain objects, whose kubelets and device plugins are played. KUBERNETES=1.35 in the environment
takes that release instead of 1.20.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from bench.machine import describe
from kube import paths
from kube.client import ConflictError, KubeClient
from kube.listwatch import Snapshot, list_watch
from protocol.devices import encode_register
from protocol.lock import decode_lock
from protocol.names import BIND_PHASE, NODE_LOCK, NODE_REGISTER, PHASE_ALLOCATING, PHASE_SUCCESS, SCHEDULER_NAME
from protocol.pods import annotations, node_name
from protocol.usage import node_usage
from tests.cluster.availability import running_cluster
from tests.cluster.extenders import Extenders
from tests.cluster.product import scheduler_configuration
from tests.protocol.makers import MI300X, container, pod_spec

Json = dict[str, Any]

SPACE = "burst"
GPUS = tuple(replace(MI300X, id=f"GPU-{index:016x}", index=index) for index in range(8))
SHAPES = [(10, 8192), (25, 49152), (50, 65536), (100, 196608)]
CREATORS = 20
REPORT_SECONDS = 20.0
LONGEST = 1200.0


@dataclass
class Burst:
    """The pods, as a watch shows them, and the nodes' part of serving them."""

    client: KubeClient
    names: list[str]
    serving_seconds: float
    pods: dict[str, Json] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Follow the pods, and serve each that is bound, until cancelled."""
        async with asyncio.TaskGroup() as tasks, aclosing(list_watch(self.client, paths.pods(SPACE))) as updates:
            async for update in updates:
                for pod in update.items if isinstance(update, Snapshot) else (update.item,):
                    name = pod["metadata"]["name"]
                    self.pods[name] = pod
                    if node_name(pod) and name not in self.bound:
                        self.bound[name] = time.monotonic()
                        tasks.create_task(self._serve(name, pod))

    async def _serve(self, name: str, pod: Json) -> None:
        """Do what kubelet and plugin do: admit the pod, answer Allocate, note it in the pod, release the lock."""
        await asyncio.sleep(self.serving_seconds)
        if annotations(pod).get(BIND_PHASE) != PHASE_ALLOCATING:
            raise RuntimeError(f"{name} is bound and does not say what it holds")
        await self.client.patch(paths.pod(SPACE, name), {"metadata": {"annotations": {BIND_PHASE: PHASE_SUCCESS}}})
        await self._release(node_name(pod), name)
        self.served[name] = time.monotonic()
        async with self._changed:
            self._changed.notify_all()

    async def _release(self, node: str, pod: str) -> None:
        while True:
            found = await self.client.get(paths.node(node))
            lock = decode_lock(annotations(found).get(NODE_LOCK, ""))
            if lock is None or lock.pod != pod:
                return  # the extender saw that the pod is served, and was faster
            version = found["metadata"]["resourceVersion"]
            try:
                note = {"resourceVersion": version, "annotations": {NODE_LOCK: None}}
                await self.client.patch(paths.node(node), {"metadata": note})
            except ConflictError:
                continue
            return

    async def until_served(self, count: int) -> None:
        """Return when so many pods are served."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.served) >= count)

    async def create(self, bodies: list[Json]) -> None:
        """Create pods, some at a time, as fast as the API server takes them."""
        waiting = iter(bodies)

        async def creator() -> None:
            for body in waiting:
                self.created[body["metadata"]["name"]] = time.monotonic()
                await self.client.create(paths.pods(SPACE), body)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(CREATORS):
                tasks.create_task(creator())

    def check(self) -> None:
        """No CU twice, no memory over-committed."""
        for name in self.names:
            usages, unreadable = node_usage(GPUS, [pod for pod in self.pods.values() if node_name(pod) == name])
            held = sum(len(usage.cus) for usage in usages.values())
            claims = sum(_cus(pod) for pod in self.pods.values() if node_name(pod) == name)
            if unreadable or held != claims or any(usage.free_memory_mib < 0 for usage in usages.values()):
                raise RuntimeError(f"{name}: {held} CUs are held where pods have {claims}; unreadable: {unreadable}")


def _cus(pod: Json) -> int:
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return MI300X.cus_for(int(limits["amd.com/gpucores"]))


def body(number: int, seed: random.Random) -> Json:
    """Return a pod of one of a few usual sizes."""
    cores, memory = seed.choice(SHAPES)
    spec = pod_spec(container(gpu=1, gpucores=cores, gpumem=memory))
    return {"metadata": {"name": f"pod-{number}"}, "spec": {**spec, "schedulerName": SCHEDULER_NAME}}


async def report(client: KubeClient, names: list[str]) -> None:
    """Say for all nodes that they are Ready."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    room = {"cpu": "640", "memory": "2560Gi", "pods": "500", "amd.com/gpu": str(10 * len(GPUS))}
    ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now}
    status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
    for name in names:
        await client.patch(f"{paths.node(name)}/status", status)


async def keep_reporting(client: KubeClient, names: list[str]) -> None:
    """Say it again and again, until cancelled."""
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        await report(client, names)


async def complaints(client: KubeClient) -> Counter[str]:
    """Return how often users were told what, without the numbers in it."""
    items, _ = await client.list(f"/api/v1/namespaces/{SPACE}/events")
    told: Counter[str] = Counter()
    for event in items:
        if event.get("type") == "Warning":
            message = str(event.get("message") or event.get("note") or "")
            told["a failed bind" if "binding rejected" in message.lower() else "no room yet"] += event.get("count") or 1
    return told


async def measure(extenders: Extenders, pods: int, nodes: int, serving_seconds: float) -> None:
    """Measure and print."""
    cluster = extenders.cluster
    seed = random.Random(1)
    names = [f"node-{number}" for number in range(nodes)]
    async with KubeClient.connect(cluster.kubeconfig, timeout=60) as client:
        for name in names:
            register = {NODE_REGISTER: encode_register(GPUS)}
            await client.create(paths.NODES, {"metadata": {"name": name, "annotations": register}})
        await report(client, names)
        extender = await asyncio.to_thread(extenders.start, "burst", "--kube-scheduler-lease=")
        config = scheduler_configuration() | {"leaderElection": {"leaderElect": False}}
        for one in config["extenders"]:
            one["urlPrefix"] = extender.url.rstrip("/")
        await asyncio.to_thread(cluster.start_scheduler, SCHEDULER_NAME, config, extenders.kubeconfig)
        burst = Burst(client, names, serving_seconds)
        begin = time.monotonic()
        async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(burst.run()), tasks.create_task(keep_reporting(client, names))]
            await burst.create([body(number, seed) for number in range(pods)])
            created = time.monotonic() - begin
            await burst.until_served(pods)
            for task in background:
                task.cancel()
        burst.check()
        print(describe())
        print(f"Kubernetes 1.{cluster.binaries.minor}, {nodes} nodes x {len(GPUS)} GPUs, {pods} pods at once; ", end="")
        print(f"a node serves a pod in {serving_seconds * 1000:.0f} ms and its API calls")
        _print(burst, created, begin, await complaints(client))


def _print(burst: Burst, created: float, begin: float, told: Counter[str]) -> None:
    last = max(burst.bound.values()) - begin
    waits = [(burst.bound[name] - at) for name, at in burst.created.items()]
    cuts = statistics.quantiles(waits, n=100)
    print(f"{'all created after':32}{created:8.1f} s")
    print(f"{'all bound after':32}{last:8.1f} s {len(burst.bound) / last:8.1f} pods/s")
    print(f"{'creation to Binding of one pod':32}{'p50':>4}{cuts[49]:6.1f} s{'p99':>6}{cuts[98]:6.1f} s")
    print(f"{'binds that failed':32}{told['a failed bind']:8}")
    print(f"{'refusals for want of room':32}{told['no room yet']:8}")


def main() -> None:
    """Start a control plane, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--serving", type=float, default=0.1, metavar="SECONDS", help="of kubelet and Allocate")
    options = parser.parse_args()
    with running_cluster(node=False) as cluster:
        cluster.create_namespace(SPACE)
        asyncio.run(measure(Extenders(cluster), options.pods, options.nodes, options.serving))


if __name__ == "__main__":
    main()
