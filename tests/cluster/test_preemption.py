"""A pod of higher priority takes the place of a lower one, through a real kube-scheduler, and only where that helps.

The node is a plain object; instead of its kubelet and device plugin the test says that pods were served, and takes away
what is to be deleted. kube-scheduler before 1.20.10 and 1.21.4 asks no extender (kubernetes#102971), so only a recent
one is tried. That one asks about nodes where its own filters find victims: here the cpu is short too.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kube import paths
from kube.client import KubeClient
from protocol.names import BIND_PHASE, DEVICES_ALLOCATED, NODE_LOCK, PHASE_SUCCESS
from protocol.pods import PodRef, annotations, node_name
from tests.cluster.availability import running_cluster
from tests.cluster.binaries import RECENT
from tests.cluster.cluster import Cluster
from tests.cluster.recorder import MODES, Recorder, add_node, remove, taped
from tests.protocol.makers import MI300X, container, pod_spec

Json = dict[str, Any]
SPACE = "preemption"
NODE = "two-gpus"
FIRST, SECOND = MI300X.id, "GPU-0000000000000002"
PRIORITIES = {"low": 100, "mid": 500, "high": 1000}
SECONDS = 60.0


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    with running_cluster(node=False, kubernetes=RECENT) as cluster:
        cluster.create_namespace(SPACE)
        for name, value in PRIORITIES.items():
            meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            cluster.apply({**meta, "value": value})
        yield cluster


@pytest.fixture
async def client(plane: Cluster) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(plane.kubeconfig) as client:
        yield client


@dataclass
class World:
    """A node with two GPUs and 8 CPUs, an extender, and a kube-scheduler that talks through a tape."""

    cluster: Cluster
    client: KubeClient
    tape: Recorder
    scheduler: str

    async def create(self, name: str, *, gpu: str = "") -> str:
        """Create a pod of the priority class of its name with 3 CPUs and 60 % of a GPU; return its uid."""
        body = container(gpu=1, gpumem=1024, gpucores=60)
        body["resources"]["requests"] = {"cpu": "3"}
        spec = {"schedulerName": self.scheduler, "tolerations": [{"operator": "Exists"}], "priorityClassName": name}
        notes = {"amd.com/use-gpu-uuid": gpu} if gpu else {}
        metadata = {"name": name, "namespace": SPACE, "annotations": notes}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**pod_spec(body), **spec}}
        return PodRef.of(await self.client.create(paths.pods(SPACE), pod)).uid

    async def served(self, name: str, *, gpu: str = "") -> tuple[str, str]:
        """Create a pod and have it served; return its uid and its GPU."""
        uid = await self.create(name, gpu=gpu)
        return uid, await self.serve(name)

    async def serve(self, name: str) -> str:
        """Do what the device plugin does when a pod has come to its node; return the pod's GPU."""
        pod = await self.until(name, lambda pod: bool(node_name(pod)))
        await self.client.patch(paths.pod(SPACE, name), {"metadata": {"annotations": {BIND_PHASE: PHASE_SUCCESS}}})
        await self.client.patch(paths.node(NODE), {"metadata": {"annotations": {NODE_LOCK: None}}})
        return annotations(pod)[DEVICES_ALLOCATED].partition(",")[0]

    async def end_when_deleted(self, name: str) -> None:
        """Do what the kubelet does when a pod has had its time to end."""
        await self.until(name, lambda pod: "deletionTimestamp" in pod["metadata"])
        await self.client.delete(f"{paths.pod(SPACE, name)}?gracePeriodSeconds=0")

    async def until(self, name: str, fits: Any) -> Json:
        pod = await asyncio.to_thread(
            self.cluster.wait_for, paths.pods(SPACE), name, lambda pod: bool(pod and fits(pod)), SECONDS
        )
        assert pod
        return pod

    async def is_running(self, name: str, uid: str) -> bool:
        pod = await self.client.get(paths.pod(SPACE, name))
        return PodRef.of(pod).uid == uid and "deletionTimestamp" not in pod["metadata"]


@pytest.fixture(params=MODES)
async def world(plane: Cluster, client: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    devices = [MI300X, replace(MI300X, id=SECOND, index=1)]
    await add_node(client, NODE, devices)
    scheduler = f"preempting-{request.param}"
    try:
        async with taped(plane, scheduler, request.param, SPACE) as tape:
            yield World(plane, client, tape, scheduler)
    finally:
        await remove(client, SPACE, [NODE])


async def test_hami_1494_the_lowest_priority_gives_way(world: World) -> None:
    await world.served("low", gpu=FIRST)
    mid, _ = await world.served("mid", gpu=SECOND)
    await world.create("high")
    await world.end_when_deleted("low")
    assert await world.serve("high") == FIRST
    assert await world.is_running("mid", mid)


async def test_hami_1878_a_pod_on_another_gpu_stays_though_its_priority_is_lower(world: World) -> None:
    low, _ = await world.served("low", gpu=FIRST)
    mid, _ = await world.served("mid", gpu=SECOND)
    await world.create("high", gpu=SECOND)
    async with asyncio.timeout(SECONDS):
        exchange = await world.tape.last("preempt", "high")
    asked = exchange.asked["NodeNameToMetaVictims"] or exchange.asked["NodeNameToVictims"]
    (named,) = asked[NODE]["Pods"]
    assert low in {named.get("UID"), named.get("metadata", {}).get("uid")}, "kube-scheduler's own choice, for the cpu"
    assert exchange.answered["NodeNameToMetaVictims"][NODE]["Pods"] == [{"UID": mid}]
    await world.end_when_deleted("mid")
    assert await world.serve("high") == SECOND
    assert await world.is_running("low", low)


async def test_room_that_a_pod_was_evicted_for_goes_to_no_other(world: World) -> None:
    await world.served("low", gpu=FIRST)
    await world.served("mid", gpu=SECOND)
    await world.create("high")
    await world.until("low", lambda pod: "deletionTimestamp" in pod["metadata"])
    await world.until("high", lambda pod: pod["status"].get("nominatedNodeName") == NODE)
    await world.client.delete(f"{paths.pod(SPACE, 'low')}?gracePeriodSeconds=0")
    await world.create("low")  # as its controller would
    assert await world.serve("high") == FIRST
    await world.until("low", is_unschedulable)


async def test_nobody_is_evicted_for_a_gpu_that_there_is_not(world: World) -> None:
    low, _ = await world.served("low", gpu=FIRST)
    mid, _ = await world.served("mid", gpu=SECOND)
    await world.create("high", gpu="GPU-none")
    await world.until("high", is_unschedulable)
    assert await world.is_running("low", low)
    assert await world.is_running("mid", mid)
    (exchange,) = world.tape.of("preempt", "high")
    assert exchange.answered == {"NodeNameToMetaVictims": {}}, "kube-scheduler would have evicted one for the cpu"


def is_unschedulable(pod: Json) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
