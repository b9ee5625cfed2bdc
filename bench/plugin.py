"""What the device plugin of a node of 8 GPUs costs. Run as root: python -m bench.plugin.

The plugin is a process of its own and talks to a real kube-apiserver, with the rights of its service account. What
stands in: the GPUs (a made tree) and the kubelet, which is here the program that measures.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from bench.machine import describe
from kube import paths
from kube.client import KubeClient
from plugin.discovery import Snapshot, discover
from plugin.v1beta1 import api_pb2, api_pb2_grpc
from protocol.lock import NodeLock
from protocol.names import NODE_LOCK
from tests.cluster.cluster import Cluster
from tests.cluster.product import BASE, NAMESPACE, render
from tests.plugin.made_pods import bound_pod, container
from tests.plugin.standin_kubelet import StandInKubelet
from tests.trees import MACHINES, make_tree

Object = dict[str, Any]

NODE = "bench-node"
MACHINE = "mi210-x8"
REPLICAS = 80
SHARES = 80
"""Pods of one round, which take all replicas."""
ROUNDS = 4
STARTS = 5
SHM = "/dev/shm"  # noqa: S108 - a tmpfs on every Linux; the folder in it has a name of its own
COMMAND = (sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main())", "plugin")
RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


class Plugin:
    """The plugin's process, as the kernel counts it."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads, from the scheduler's own count: clock ticks are too coarse."""
        return sum(int((task / "schedstat").read_text().split()[0]) for task in self._folder.glob("task/*")) / 1e9

    def memory_mib(self) -> tuple[float, float]:
        """Return its resident memory now and at most, in MiB."""
        lines = dict(line.split(":", 1) for line in (self._folder / "status").read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


class Bench:
    """A cluster without a node, a made machine, and a folder for the kubelet's sockets.

    Args:
        cluster: only its API server is used.
        folder: for everything but what the plugin keeps of its pods.
        run: for that, on a tmpfs as /run is.
    """

    def __init__(self, cluster: Cluster, folder: Path, run: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.sockets = folder / "k"
        self.sockets.mkdir()
        self._run = run
        make_tree(folder / "made", MACHINES[MACHINE])
        (folder / "library.so").write_bytes(b"a stand-in for the library: nothing is loaded here")
        cluster.apply([item for item in render(BASE) if item["kind"] in RIGHTS])
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        cluster.wait_for_service_account(NAMESPACE, "plugin")
        self._kubeconfig = cluster.kubeconfig_for_service_account(NAMESPACE, "plugin")

    def snapshot(self) -> Snapshot:
        """Return the GPUs that the plugin finds."""
        return discover(self.folder / "made/sys", self.folder / "made/dev")

    @contextmanager
    def plugin(self) -> Iterator[Plugin]:
        """Run the plugin with its usual settings."""
        made = self.folder / "made"
        options = (
            f"--kubeconfig={self._kubeconfig}",
            f"--node-name={NODE}",
            f"--library={self.folder / 'library.so'}",
            f"--library-dir={self.folder / 'library'}",
            f"--run-dir={self._run}",
            f"--kubelet-dir={self.sockets}",
            f"--sysfs-root={made / 'sys'}",
            f"--dev-root={made / 'dev'}",
        )
        with (self.folder / "plugin.log").open("ab") as log:
            process = subprocess.Popen([*COMMAND, *options], stdout=log, stderr=log)
        try:
            yield Plugin(process.pid)
        finally:
            process.terminate()
            process.wait(10)


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=float, default=60, metavar="SECONDS", help="how long (default: %(default)g)")
    idle = parser.parse_args().idle
    temporary = tempfile.TemporaryDirectory
    with Cluster(node=False) as cluster, temporary(prefix="b-") as folder, temporary(dir=SHM) as run:
        bench = Bench(cluster, Path(folder), Path(run))
        print(describe())
        print(f"{MACHINE}: 8 GPUs, {REPLICAS} replicas; Kubernetes 1.{cluster.binaries.minor}\n")
        starts = [await measure_start(bench) for _ in range(STARTS)]
        print(f"{'start to registered':40}{statistics.median(starts):>9.2f} s  (longest {max(starts):.2f} s)")
        async with running(bench) as (kubelet, plugin):
            share = await measure_idle(plugin, idle)
            print(f"{'idle CPU':40}{share * 100:>9.3f} %  (over {idle:g} s)")
            rounds = await measure_allocate(bench, kubelet)
            for pods in (20, SHARES):
                cuts = statistics.quantiles([one for times in rounds for one in times[:pods]], n=100)
                label = f"Allocate, up to {pods} pods on the node"
                print(f"{label:40}{cuts[49]:>9.1f} ms p50{cuts[98]:>9.1f} ms p99")
            for name, alone in (await measure_api(bench)).items():
                cuts = statistics.quantiles(alone, n=100)
                print(f"{f'  one {name} alone':40}{cuts[49]:>9.1f} ms p50{cuts[98]:>9.1f} ms p99")
            now, most = plugin.memory_mib()
            print(f"{'memory':40}{now:>9.1f} MiB  (at most {most:.1f} MiB)")


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[tuple[StandInKubelet, Plugin]]:
    """Run a kubelet and a plugin, and wait until the kubelet has the GPUs."""
    async with StandInKubelet.running(bench.sockets) as kubelet:
        with bench.plugin() as plugin:
            await kubelet.until_healthy(REPLICAS)
            yield kubelet, plugin


async def measure_start(bench: Bench) -> float:
    """Return the seconds from the start of the process until the kubelet has its GPUs."""
    begin = time.perf_counter()
    async with running(bench):
        return time.perf_counter() - begin


async def measure_idle(plugin: Plugin, seconds: float) -> float:
    """Return the processor time of a plugin that nobody asks anything, as a part of one core."""
    await asyncio.sleep(5)  # what it does at its start is over
    begin, used = time.perf_counter(), plugin.cpu_seconds()
    await asyncio.sleep(seconds)
    return (plugin.cpu_seconds() - used) / (time.perf_counter() - begin)


async def measure_allocate(bench: Bench, kubelet: StandInKubelet) -> list[list[float]]:
    """Return the milliseconds of each call while the node fills with pods of one container, for each round."""
    rounds: list[list[float]] = []
    snapshot = bench.snapshot()
    # One connection, as a kubelet keeps it.
    socket = bench.sockets / kubelet.registrations[-1].endpoint
    async with (
        KubeClient.connect(bench.cluster.kubeconfig) as client,
        grpc.aio.insecure_channel(f"unix:{socket}") as channel,
    ):
        stub = api_pb2_grpc.DevicePluginStub(channel)
        for number in range(ROUNDS):
            placed: list[Object] = []
            times: list[float] = []
            for at in range(SHARES):
                name = f"pod-{number}-{at}"
                pod = bound_pod(name, [container("main", mem=4096, cores=8)], snapshot, others=placed, node=NODE)
                placed.append(await created(client, pod))
                one = api_pb2.ContainerAllocateRequest(devicesIDs=[f"{snapshot.gpus[0].id}-{at % 10}"])
                begin = time.perf_counter()
                await stub.Allocate(api_pb2.AllocateRequest(container_requests=[one]))
                times.append((time.perf_counter() - begin) * 1000)
            rounds.append(times)
            bench.cluster.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    return rounds


async def measure_api(bench: Bench) -> dict[str, list[float]]:
    """Return the milliseconds of the API server's own part. Allocate waits for a read and for two patches after it."""
    times: dict[str, list[float]] = {"get": [], "patch": []}
    path = paths.node(NODE)
    async with KubeClient.connect(bench.cluster.kubeconfig) as client:
        for number in range(SHARES):
            begin = time.perf_counter()
            await client.get(path)
            between = time.perf_counter()
            await client.patch(path, {"metadata": {"annotations": {"bench": str(number)}}})
            times["get"].append((between - begin) * 1000)
            times["patch"].append((time.perf_counter() - between) * 1000)
    return times


async def created(client: KubeClient, pod: Object) -> Object:
    """Create a pod that was bound just now, and let it hold the node's lock."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "annotations")}
    item = await client.create(paths.pods("default"), {"metadata": meta, "spec": pod["spec"]})
    lock = NodeLock(datetime.now(UTC), "default", meta["name"]).encode()
    await client.patch(paths.node(NODE), {"metadata": {"annotations": {NODE_LOCK: lock}}})
    return item


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("bench.plugin needs root: it starts a kube-apiserver")
    asyncio.run(main())
