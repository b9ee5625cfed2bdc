"""The extender against a real API server. Nodes are plain objects: nobody runs pods on them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from kube import paths
from kube.client import KubeClient, NotFoundError
from protocol.allocation import decode_cus
from protocol.devices import encode_register
from protocol.lock import NodeLock
from protocol.names import BIND_PHASE, CU_ALLOCATED, NODE_LOCK, NODE_REGISTER, PHASE_SUCCESS
from protocol.pods import annotations, node_name
from scheduler import nodelock
from scheduler.leader import LeaderSettings
from scheduler.server import SchedulerSettings, run
from tests.cluster.cluster import Cluster
from tests.cluster.network import free_port
from tests.protocol.makers import MI300X, container, pod_spec

Json = dict[str, Any]
SPACE = "extender"
WAIT_SECONDS = 3.0


@pytest.fixture(scope="module")
def space(cluster: Cluster) -> Iterator[str]:
    cluster.create_namespace(SPACE)
    yield SPACE
    cluster.kubectl("delete", "namespace", SPACE, "--wait")


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(cluster.kubeconfig) as client:
        yield client


class World:
    """One node, its pods, and the extender's HTTP side."""

    def __init__(self, client: KubeClient, http: aiohttp.ClientSession, node: str) -> None:
        self.client = client
        self.http = http
        self.node = node
        self._pods: list[str] = []

    async def post(self, verb: str, body: object) -> Any:
        async with self.http.post(verb, json=body) as response:
            assert response.status == 200
            return await response.json()

    async def pod(self, name: str, **limits: Any) -> Json:
        """Create a pod that no scheduler looks at."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {**pod_spec(container(**limits)), "schedulerName": "nobody"},
        }
        self._pods.append(name)
        return await self.client.create(paths.pods(SPACE), body)

    async def filter(self, pod: Json) -> Json:
        answer: Json = await self.post("filter", {"Pod": pod, "NodeNames": [self.node]})
        return answer

    async def bind(self, pod: Json) -> str:
        metadata = pod["metadata"]
        body = {"PodName": metadata["name"], "PodNamespace": SPACE, "PodUID": metadata["uid"], "Node": self.node}
        answer: str = (await self.post("bind", body))["Error"]
        return answer

    async def serve(self, name: str) -> None:
        """Do what a device plugin does after the last Allocate of a pod."""
        phase = {"metadata": {"annotations": {BIND_PHASE: PHASE_SUCCESS}}}
        await self.client.patch(paths.pod(SPACE, name), phase)
        await self.set_lock(None)

    async def set_lock(self, value: str | None) -> None:
        await self.client.patch(paths.node(self.node), {"metadata": {"annotations": {NODE_LOCK: value}}})

    async def lock(self) -> str | None:
        return annotations(await self.client.get(paths.node(self.node))).get(NODE_LOCK)

    async def get(self, name: str) -> Json:
        return await self.client.get(paths.pod(SPACE, name))

    async def remove(self, name: str) -> None:
        """Delete a pod at once, as the controller for pods of absent nodes does."""
        await self.client.delete(f"{paths.pod(SPACE, name)}?gracePeriodSeconds=0")

    async def finish(self, name: str) -> None:
        status = {"status": {"phase": "Failed"}}
        await self.client.patch(f"{paths.pod(SPACE, name)}/status", status)

    async def close(self) -> None:
        for name in self._pods:
            try:
                await self.remove(name)
            except NotFoundError:
                continue
        await self.client.delete(paths.node(self.node))


@pytest.fixture
async def world(client: KubeClient, space: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """An extender that has read the cluster, and a node with one GPU."""
    assert space == SPACE
    name = request.node.originalname.replace("_", "-")[:50].strip("-")
    register = {NODE_REGISTER: encode_register([MI300X])}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": register}}
    await client.create(paths.NODES, body)
    port, health, stop = free_port(), free_port(), asyncio.Event()
    leader = LeaderSettings(namespace=SPACE, lease=name, kube_scheduler_lease="")
    settings = SchedulerSettings(port=port, health_port=health, bind_wait_seconds=WAIT_SECONDS, leader=leader)
    async with asyncio.TaskGroup() as tasks, aiohttp.ClientSession(f"http://127.0.0.1:{port}/") as http:
        tasks.create_task(run(settings, client, stop))
        await until_ready(http)
        world = World(client, http, name)
        yield world
        await world.close()
        stop.set()


async def until_ready(http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                async with http.get("readyz") as response:
                    if await response.text() == "active\n":
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)


def cus(pod: Json) -> set[int]:
    return set(decode_cus(annotations(pod)[CU_ALLOCATED])[MI300X.id])


async def test_filter_knows_the_nodes(world: World) -> None:
    pod = await world.pod("asks", gpu=1, gpucores=50, gpumem=1024)
    answer = await world.post("filter", {"Pod": pod, "NodeNames": [world.node, "nowhere"], "Nodes": None})
    assert answer["NodeNames"] == [world.node]
    assert answer["FailedAndUnresolvableNodes"] == {"nowhere": "node has no registered AMD GPU"}
    node = await world.client.get(paths.node(world.node))
    whole = await world.post("filter", {"Pod": pod, "Nodes": {"items": [node]}, "NodeNames": None})
    assert [item["metadata"]["name"] for item in whole["Nodes"]["items"]] == [world.node]
    assert await world.post("prioritize", {"Pod": pod, "NodeNames": [world.node]}) == [{"Host": world.node, "Score": 0}]


async def test_b6_what_filter_promised_is_not_promised_again(world: World) -> None:
    pods = [await world.pod(f"pod-{number}", gpu=1, gpucores=60, gpumem=1024) for number in range(2)]
    answers = [await world.post("filter", {"Pod": pod, "NodeNames": [world.node]}) for pod in pods]
    assert [answer["NodeNames"] for answer in answers] == [[world.node], []]
    assert answers[1]["FailedNodes"] == {world.node: "GPU compute units: 122 free, 182 asked"}
    assert await world.bind(pods[0]) == ""


async def test_hami_1393_a_quota_counts_times_the_gpus_and_its_numbers_reach_the_pod(world: World) -> None:
    quotas = f"/api/v1/namespaces/{SPACE}/resourcequotas"
    hard = {"limits.amd.com/gpumem": "4k", "requests.amd.com/gpucores": "100"}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu-team"}, "spec": {"hard": hard}}
    first = await world.pod("first", gpu=1, gpucores=25, gpumem=1024)
    assert await world.bind(first) == ""
    await world.client.create(quotas, body)
    # To the API server a container of two GPUs is 2000 MiB and 30 %; a pod may name more than all that is left.
    double = await world.pod("double", gpu=2, gpucores=30, gpumem=2000)
    single = await world.pod("single", gpu=1, gpucores=30, gpumem=2000)
    reason = "quota gpu-team: limits.amd.com/gpumem: 1024 of 4000 MiB used, 4000 asked"
    try:
        async with asyncio.timeout(5):
            # The extender tells nobody outside when its watch has caught up.
            while (answer := await world.filter(double))["FailedNodes"] != {world.node: reason}:
                assert answer["FailedNodes"] == {world.node: "GPUs: 1 on the node, 2 asked"}
                await asyncio.sleep(0.05)
        assert (await world.filter(single))["NodeNames"] == [world.node]
    finally:
        await world.client.delete(f"{quotas}/gpu-team")


async def test_b7_a_pod_that_is_gone_again_holds_no_promised_room(world: World) -> None:
    pods = [await world.pod(f"pod-{number}", gpu=1) for number in range(2)]
    assert (await world.post("filter", {"Pod": pods[0], "NodeNames": [world.node]}))["NodeNames"] == [world.node]
    assert await world.bind(pods[0]) == ""
    await world.serve("pod-0")
    await world.remove("pod-0")
    async with asyncio.timeout(5):
        # The extender tells nobody outside when its watch has caught up.
        while not (await world.post("filter", {"Pod": pods[1], "NodeNames": [world.node]}))["NodeNames"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_bind_records_locks_and_binds(world: World) -> None:
    pod = await world.pod("first", gpu=1, gpucores=25, gpumem=1024)
    assert await world.bind(pod) == ""
    bound = await world.get("first")
    assert node_name(bound) == world.node
    assert cus(bound) == set(range(76))
    assert (await world.lock() or "").endswith(f",{SPACE},first")


async def test_b6_a_second_pod_waits_for_the_node_and_gets_other_cus(world: World) -> None:
    first = await world.pod("first", gpu=1, gpucores=25, gpumem=1024)
    second = await world.pod("second", gpu=1, gpucores=25, gpumem=1024)
    assert await world.bind(first) == ""
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(world.bind(second))
        assert not (await asyncio.wait({waiting}, timeout=0.5))[0], "the first pod still waits for Allocate"
        await world.serve("first")
    assert waiting.result() == ""
    assert not cus(await world.get("first")) & cus(await world.get("second"))


async def test_b9_a_bound_pod_that_waits_keeps_its_lock(world: World) -> None:
    assert await world.bind(await world.pod("first", gpu=1, gpucores=25, gpumem=1024)) == ""
    held = await world.lock()
    error = await world.bind(await world.pod("second", gpu=1, gpucores=25, gpumem=1024))
    assert f"was not free within {WAIT_SECONDS:g} s" in error
    assert f"pod {SPACE}/first, bound to it at {str(held).partition(',')[0]}, still waits for its GPUs" in error
    assert await world.lock() == held
    assert CU_ALLOCATED not in annotations(await world.get("second"))


@pytest.mark.parametrize("end", ["removed", "failed", "served"])
async def test_b9_a_holder_that_needs_it_no_more_gives_way(world: World, end: str) -> None:
    assert await world.bind(await world.pod(f"holder-{end}", gpu=1, gpucores=25, gpumem=1024)) == ""
    if end == "removed":
        await world.remove(f"holder-{end}")
    elif end == "failed":
        await world.finish(f"holder-{end}")
    else:
        phase = {"metadata": {"annotations": {BIND_PHASE: PHASE_SUCCESS}}}
        await world.client.patch(paths.pod(SPACE, f"holder-{end}"), phase)
    assert await world.bind(await world.pod(f"next-{end}", gpu=1, gpucores=25, gpumem=1024)) == ""
    held = cus(await world.get(f"next-{end}"))
    assert held == (set(range(76, 152)) if end == "served" else set(range(76)))


@pytest.mark.parametrize("value", ["foo,bar", "nonsense", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z,nowhere,gone"])
async def test_b9_a_lock_that_names_nobody_binds_nobody(world: World, value: str) -> None:
    await world.set_lock(value)
    assert await world.bind(await world.pod(f"pod-{len(value)}", gpu=1)) == ""


async def test_b9_a_lock_from_before_the_holder_was_made_is_another_pods(world: World) -> None:
    await world.pod("same-name", gpu=1, gpucores=25, gpumem=1024)
    before = datetime.now(UTC) - timedelta(hours=1)
    await world.set_lock(NodeLock(before, SPACE, "same-name").encode())
    assert await world.bind(await world.pod("next", gpu=1, gpucores=25, gpumem=1024)) == ""


async def test_b9_a_holder_that_is_never_bound_gives_way_and_loses_its_claim(world: World) -> None:
    await world.pod("unbound", gpu=1, gpucores=25, gpumem=1024)
    claim = {"metadata": {"annotations": {CU_ALLOCATED: f'{{"{MI300X.id}":"0-75"}}'}}}
    await world.client.patch(paths.pod(SPACE, "unbound"), claim)
    await world.set_lock(NodeLock(datetime.now(UTC), SPACE, "unbound").encode())
    following = await world.pod("next", gpu=1, gpucores=25, gpumem=1024)
    error = await world.bind(following)
    assert f"pod {SPACE}/unbound is being bound to it since" in error, "it may still be on its way"
    long_ago = datetime.now(UTC) - nodelock.UNBOUND_GRACE - timedelta(seconds=5)
    await world.set_lock(NodeLock(long_ago, SPACE, "unbound").encode())
    assert await world.bind(following) == ""
    assert CU_ALLOCATED not in annotations(await world.get("unbound"))


async def test_a_pod_that_others_change_meanwhile_is_bound_all_the_same(world: World) -> None:
    pod = await world.pod("busy", gpu=1, gpucores=25, gpumem=1024)
    done = asyncio.Event()

    async def keep_changing() -> None:
        number = 0
        while not done.is_set():
            number += 1
            label = {"metadata": {"labels": {"changed": str(number)}}}
            await world.client.patch(paths.pod(SPACE, "busy"), label)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_changing())
        assert await world.bind(pod) == ""
        done.set()


async def test_b4_a_bind_that_is_repeated_succeeds_and_changes_nothing(world: World) -> None:
    pod = await world.pod("twice", gpu=1, gpucores=25, gpumem=1024)
    assert await world.bind(pod) == ""
    before = await world.get("twice")
    assert await world.bind(pod) == ""
    assert annotations(await world.get("twice")) == annotations(before)


async def test_b5_a_pod_that_was_replaced_under_its_name_is_not_bound(world: World) -> None:
    old = await world.pod("stateful-0", gpu=1)
    await world.remove("stateful-0")
    await world.pod("stateful-0", gpu=1)
    assert "was replaced by another of its name" in await world.bind(old)
    assert node_name(await world.get("stateful-0")) == ""
    assert await world.lock() is None


async def test_a_pod_that_is_gone_is_told_so(world: World) -> None:
    pod = await world.pod("gone", gpu=1)
    await world.remove("gone")
    assert await world.bind(pod) == f"pod {SPACE}/gone is gone"


async def test_a_bind_without_room_leaves_no_trace(world: World) -> None:
    assert await world.bind(await world.pod("first", gpu=1, gpucores=60, gpumem=1024)) == ""
    await world.serve("first")
    error = await world.bind(await world.pod("second", gpu=1, gpucores=60, gpumem=1024))
    assert error == f"node {world.node} has no room any more: GPU compute units: 122 free, 182 asked"
    assert await world.lock() is None
    assert annotations(await world.get("second")) == {}


async def test_a_burst_on_one_node_is_bound_one_by_one(world: World) -> None:
    pods = [await world.pod(f"burst-{number}", gpu=1, gpucores=8, gpumem=1024) for number in range(10)]

    async def bind_and_serve(pod: Json) -> str:
        error = await world.bind(pod)
        if not error:
            await world.serve(pod["metadata"]["name"])
        return error

    assert set(await asyncio.gather(*map(bind_and_serve, pods))) == {""}
    held = [cus(await world.get(f"burst-{number}")) for number in range(10)]
    assert sum(map(len, held)) == len(set().union(*held)) == 10 * 24
