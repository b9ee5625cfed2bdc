"""A large cluster in one process: the real extender, on stand-ins for all else. Run: python -m bench.cluster.

Stand-ins: the API server (without a network), kube-scheduler, and one task that does for all nodes what their device
plugins and kubelets do to API objects. Between kube-scheduler and the extender is HTTP, as on a real cluster.
"""

import argparse
import asyncio
import gc
import resource
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import describe
from embedded.apiserver.core import Core
from embedded.apiserver.direct import DirectClient
from embedded.apiserver.identity import ADMIN, User
from embedded.apiserver.server import serving
from embedded.kubescheduler.config import read_config
from embedded.kubescheduler.scheduler import KubeScheduler
from embedded.product import NAMESPACE, free_ports, scheduler_config, until_ready
from kube import paths
from kube.client import ConflictError, KubeClient, NotFoundError
from kube.listwatch import Snapshot, list_watch
from protocol.allocation import decode_cus
from protocol.devices import DeviceInfo, encode_register
from protocol.lock import decode_lock
from protocol.names import BIND_PHASE, CU_ALLOCATED, NODE_LOCK, NODE_REGISTER, PHASE_ALLOCATING, PHASE_SUCCESS
from protocol.pods import Json, PodRef, annotations, node_name
from scheduler.leader import LeaderSettings
from scheduler.server import SchedulerSettings, run

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests/base"
SPACE = "default"
GPUS = 4
AT_ONCE = 64
CHURN_ROW = 10_000
SHAPES = ((16384, 12), (24576, 12), (49152, 25), (98304, 50), (8192, 5))


@dataclass
class Served:
    """Pods that were created, until their node has served them."""

    created: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    live: deque[str] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def create(self, name: str) -> None:
        """Note that a pod is created."""
        self.created[name] = time.perf_counter()

    def serve(self, name: str) -> None:
        """Note that a pod runs."""
        begin = self.created.pop(name, None)
        if begin is not None:
            self.seconds.append(time.perf_counter() - begin)
            self.live.append(name)
            self.changed.set()

    async def until_fewer(self, waiting: int) -> None:
        """Wait until fewer pods wait."""
        while len(self.created) >= waiting:
            self.changed.clear()
            await self.changed.wait()


def devices() -> list[DeviceInfo]:
    """Return the GPUs of one node."""
    return [
        DeviceInfo(f"GPU-{index:016x}", index, 10, 196592, 304, "AMD Instinct MI300X", index // 2, xcc_count=8)
        for index in range(GPUS)
    ]


async def make_nodes(client: KubeClient, count: int) -> None:
    """Create nodes that have registered their GPUs."""
    register = encode_register(devices())
    allocatable = {"amd.com/gpu": str(10 * GPUS), "pods": "110"}
    for number in range(count):
        metadata = {"name": f"node-{number}", "annotations": {NODE_REGISTER: register}}
        status = {"capacity": allocatable, "allocatable": allocatable}
        await client.create(paths.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


async def serve_nodes(client: KubeClient, served: Served, tasks: asyncio.TaskGroup) -> None:
    """Do what plugins and kubelets do: serve each pod that is bound, one after the other on each node."""
    queues: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def serve(pod: Json) -> None:
        async with queues[node_name(pod)]:
            await serve_pod(client, pod)
        served.serve(PodRef.of(pod).name)

    async with aclosing(list_watch(client, paths.PODS)) as updates:
        async for update in updates:
            for pod in update.items if isinstance(update, Snapshot) else (update.item,):
                phase = annotations(pod).get(BIND_PHASE)
                is_new = not isinstance(update, Snapshot) and update.kind != "DELETED"
                if is_new and node_name(pod) and phase == PHASE_ALLOCATING:
                    tasks.create_task(serve(pod))


async def serve_pod(client: KubeClient, pod: Json) -> None:
    """Mark a pod as served and running, and give its node's lock up."""
    ref, node = PodRef.of(pod), node_name(pod)
    phase = {"metadata": {"annotations": {BIND_PHASE: PHASE_SUCCESS}}, "status": {"phase": "Running"}}
    try:
        await client.patch(f"{paths.pod(ref.namespace, ref.name)}/status", phase)
        while True:
            item = await client.get(paths.node(node))
            lock = decode_lock(annotations(item).get(NODE_LOCK, ""))
            if lock is None or not lock.held_by(ref.namespace, ref.name):
                return
            free = {"resourceVersion": item["metadata"]["resourceVersion"], "annotations": {NODE_LOCK: None}}
            try:
                await client.patch(paths.node(node), {"metadata": free})
            except ConflictError:
                continue
    except NotFoundError:
        return


async def create_pods(client: KubeClient, served: Served, numbers: Iterator[int], *, most: int) -> None:
    """Create pods, some at once; with more than `most` live ones the oldest goes for each that comes."""
    for number in numbers:
        await served.until_fewer(AT_ONCE)
        memory, cores = SHAPES[number % len(SHAPES)]
        limits = {"amd.com/gpu": "1", "amd.com/gpumem": str(memory), "amd.com/gpucores": str(cores)}
        name = f"pod-{number}"
        served.create(name)
        spec = {
            "schedulerName": "amd-vgpu-scheduler",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await client.create(paths.pods(SPACE), body)
        if len(served.live) >= most:
            await client.delete(f"{paths.pod(SPACE, served.live.popleft())}?gracePeriodSeconds=0")
    await served.until_fewer(1)


def check(pods: list[dict[str, Any]]) -> None:
    """Fail if any CU is held twice."""
    held: set[tuple[str, str, int]] = set()
    for pod in pods:
        for device, ids in decode_cus(annotations(pod)[CU_ALLOCATED]).items():
            mine = {(node_name(pod), device, cu) for cu in ids}
            assert not held & mine, f"{PodRef.of(pod)} holds what another has"
            held |= mine


def row(title: str, count: int, seconds: float, served: Served) -> None:
    """Print a line of the table."""
    times = served.seconds or [0.0, 0.0]
    p50, p99 = statistics.median(times) * 1000, statistics.quantiles(times, n=100)[98] * 1000
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{title:44}{count:>8}{seconds:>9.1f} s{count / seconds:>8.0f}/s{p50:>9.0f} ms{p99:>9.0f} ms{memory:>7.0f} MiB",
        flush=True,
    )
    served.seconds.clear()


async def measure(core: Core, options: argparse.Namespace) -> None:
    """Make nodes, fill them, let pods come and go."""
    client = DirectClient(core, ADMIN)
    account = DirectClient(core, User.service_account(NAMESPACE, "scheduler"))
    served, stop = Served(), asyncio.Event()
    begin = time.perf_counter()
    await make_nodes(client, options.nodes)
    print(f"{'':44}{'count':>8}{'time':>11}{'rate':>10}{'p50':>12}{'p99':>12}{'memory':>11}")
    row("nodes created", options.nodes, time.perf_counter() - begin, served)
    extender_port, health_port = free_ports(2)
    settings = SchedulerSettings(
        port=extender_port,
        health_port=health_port,
        # The only replica, in an event loop that it shares with all others: it must not lose its Lease to their pauses.
        leader=LeaderSettings(NAMESPACE, duration_seconds=60, kube_scheduler_lease=""),
    )
    config = scheduler_config(MANIFESTS)
    config["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{extender_port}"
    async with asyncio.TaskGroup() as tasks:
        extender = tasks.create_task(run(settings, account, stop))
        parts = [tasks.create_task(serve_nodes(client, served, tasks))]
        begin = time.perf_counter()
        await until_ready(f"http://127.0.0.1:{health_port}/readyz")
        row("nodes read by the extender", options.nodes, time.perf_counter() - begin, served)
        parts.append(tasks.create_task(KubeScheduler(read_config(config), account).run()))
        begin = time.perf_counter()
        await create_pods(client, served, iter(range(options.pods)), most=options.pods)
        row("pods created, bound, served", options.pods, time.perf_counter() - begin, served)
        gc.collect()
        for first in range(0, options.churn, CHURN_ROW):
            begin, count = time.perf_counter(), min(CHURN_ROW, options.churn - first)
            numbers = range(options.pods + first, options.pods + first + count)
            await create_pods(client, served, iter(numbers), most=options.pods)
            row(f"the same while {options.pods} run and as many go", count, time.perf_counter() - begin, served)
        check((await client.list(paths.PODS))[0])
        stop.set()
        await extender
        for part in parts:
            part.cancel()


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="default: %(default)s")
    parser.add_argument("--pods", type=int, default=20_000, help="that run at once (default: %(default)s)")
    parser.add_argument("--churn", type=int, default=100_000, help="pods that come and go (default: %(default)s)")
    options = parser.parse_args()
    print(describe())
    async with serving(history=50_000) as server:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await server.apply([namespace])
        await measure(server.core, options)


if __name__ == "__main__":
    asyncio.run(main())
