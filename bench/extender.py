"""The extender on a large cluster: 5,000 nodes of 8 GPUs, 20,000 running GPU pods. Run: python -m bench.extender.

One process, no API server: the watch's first list is handed to the watched state, then pods are filtered, scored and
"bound" (their event is handed in), as kube-scheduler would. 500 candidates are what kube-scheduler looks for in a
cluster of this size by default; all nodes are what it asks about when few of them fit.
"""

import asyncio
import gc
import random
import resource
import statistics
import time
from dataclasses import replace
from typing import Any, cast

from bench.machine import describe
from kube.client import KubeClient
from kube.listwatch import Change, Snapshot
from protocol.demand import read_demand
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
from protocol.placement import Placement, place
from protocol.pods import PodRef
from protocol.policy import Policy
from protocol.usage import GpuUsage, charge, node_usage
from scheduler.app import Extender
from scheduler.binder import Binder
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import FilterArgs
from tests.protocol.makers import MI300X, container, pod, pod_spec

NODES = 5000
GPUS = 8
PODS = 20_000
SAMPLES = 100
DEVICES = tuple(replace(MI300X, id=f"GPU-{index:016x}", index=index) for index in range(GPUS))
SHAPES = [(10, 8192), (25, 49152), (50, 65536), (100, 196608)]


def spec(seed: random.Random) -> dict[str, Any]:
    """Return a pod spec of one of a few usual sizes."""
    cores, memory = seed.choice(SHAPES)
    return pod_spec(container(gpu=1, gpucores=cores, gpumem=memory))


class Cluster:
    """Nodes, and pods that run on them."""

    def __init__(self, seed: random.Random) -> None:
        self.random = seed
        self.names = [f"node-{number}" for number in range(NODES)]
        register = {NODE_REGISTER: encode_register(DEVICES)}
        self.nodes = [{"metadata": {"name": name, "annotations": register}} for name in self.names]
        self.usages = {name: node_usage(DEVICES, ())[0] for name in self.names}
        self.pods = [one for number in range(PODS) if (one := self.run(f"pod-{number}", seed.choice(self.names)))]

    def run(self, name: str, node: str, wanted: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Place a pod on a node, and return it as it would run there; None when it does not fit."""
        body = wanted or spec(self.random)
        demands = read_demand(body)
        usage: dict[str, GpuUsage] = self.usages[node]
        placement = place(demands, usage.values(), Policy.BINPACK)
        if not isinstance(placement, Placement):
            return None
        item = pod(name, body, placement.annotations(), node=node)
        charge(usage, placement.holding(demands), PodRef.of(item))
        return item


async def measure(extender: Extender, cluster: Cluster, candidates: int) -> list[float]:
    """Return the milliseconds of filter and prioritize for a number of pods, each bound before the next comes."""
    times = []
    for number in range(SAMPLES):
        body = {"metadata": {"name": f"new-{number}", "namespace": "default", "uid": f"new-{candidates}-{number}"}}
        asked = {**body, "spec": spec(cluster.random)}
        names = tuple(cluster.random.sample(cluster.names, candidates))
        begin = time.perf_counter()
        answer = await extender.filter(FilterArgs(asked, names, None))
        fitting = tuple(cast("list[str]", answer["NodeNames"] or []))
        extender.prioritize(FilterArgs(asked, fitting, None))
        times.append((time.perf_counter() - begin) * 1000)
        bound = cluster.run(f"new-{candidates}-{number}", fitting[0], asked["spec"]) if fitting else None
        extender.reservations.drop(f"new-{candidates}-{number}")
        if bound is not None:
            extender.state.see_pods(Change("ADDED", bound))
    return times


async def main() -> None:
    """Measure and print."""
    cluster = Cluster(random.Random(1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    state = ClusterState()
    state.see_nodes(Snapshot(tuple(cluster.nodes)))
    state.see_pods(Snapshot(tuple(cluster.pods)))
    state.see_quotas(Snapshot(()))
    for name in cluster.names:
        state.usages(name)
    ready = time.perf_counter() - begin
    unused = KubeClient(None, timeout=1)
    binder = Binder(unused, state, NodeLocks(unused, state), policies=Policies(), wait_seconds=1)
    extender = Extender.of(state, binder, Policies(), time.monotonic)
    gc.collect()
    gc.freeze()  # as the service does
    print(describe())
    print(f"{NODES} nodes x {GPUS} GPUs, {len(cluster.pods)} running pods: read and counted in {ready:.1f} s, ", end="")
    print(f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f} MiB more")
    print(f"{'filter + prioritize of one pod':34}{'p50':>10}{'p99':>10}{'first':>10}")
    for candidates in (500, NODES):
        times = await measure(extender, cluster, candidates)
        cuts = statistics.quantiles(times, n=100)
        print(f"{candidates:>6} candidate nodes{'':>14}{cuts[49]:>7.1f} ms{cuts[98]:>7.1f} ms{times[0]:>7.1f} ms")


if __name__ == "__main__":
    asyncio.run(main())
