"""Two extenders as processes on a real API server: one is active, and the other follows it in time."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import aiohttp
import pytest

from kube import paths
from kube.client import KubeClient, NotFoundError
from plugin.heartbeat import beat
from protocol.devices import encode_register
from protocol.heartbeat import lease_name
from protocol.names import NODE_REGISTER
from tests.certs.replicas import control_plane
from tests.cluster.extenders import Extenders, Replica, ask, state_of
from tests.cluster.product import NAMESPACE
from tests.protocol.makers import MI300X, container, pod_spec

Json = dict[str, Any]
NODE = "node-of-replicas"
LEASE = paths.named(paths.leases(NAMESPACE), "amd-vgpu-extender")
KUBE_SCHEDULER = paths.named(paths.leases(NAMESPACE), "amd-vgpu-scheduler")
MOST_TO_TAKE_OVER = 5.0
AT_ONCE = 1.5


@pytest.fixture(scope="module")
def extenders() -> Iterator[Extenders]:
    with control_plane() as cluster:
        yield Extenders(cluster)


@pytest.fixture
async def client(extenders: Extenders) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(extenders.cluster.kubeconfig) as client:
        register = {NODE_REGISTER: encode_register([MI300X])}
        await client.create(paths.NODES, {"metadata": {"name": NODE, "annotations": register}})
        yield client
        for path in (paths.node(NODE), LEASE, KUBE_SCHEDULER):
            try:
                await client.delete(path)
            except NotFoundError:
                continue


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def pair(extenders: Extenders, client: KubeClient, http: aiohttp.ClientSession) -> AsyncIterator[list[Replica]]:
    """The active extender and the one on standby."""
    assert await client.get(paths.node(NODE))
    first = await asyncio.to_thread(extenders.start, "pod-a")
    await until_active(http, first)
    running = [first, await asyncio.to_thread(extenders.start, "pod-b")]
    yield running
    for replica in running:
        await asyncio.to_thread(extenders.stop, replica)


async def until(holds: Callable[[], Awaitable[object]]) -> float:
    """Wait until something holds that tells nobody, and return when it did."""
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return time.monotonic()


async def until_active(http: aiohttp.ClientSession, replica: Replica) -> float:
    async def is_active() -> bool:
        return await state_of(http, replica) == "active"

    return await until(is_active)


def asking(name: str) -> Json:
    pod = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": pod_spec(container(gpu=1))}
    return {"Pod": pod, "NodeNames": [NODE]}


async def kube_scheduler_leads(client: KubeClient, hostname: str) -> None:
    spec = {"holderIdentity": f"{hostname}_1f0c", "leaseDurationSeconds": 4}
    body = {"metadata": {"name": "amd-vgpu-scheduler", "namespace": NAMESPACE}, "spec": spec}
    try:
        await client.patch(KUBE_SCHEDULER, body)
    except NotFoundError:
        await client.create(paths.leases(NAMESPACE), body)


async def test_a_standby_has_read_the_cluster_and_refuses_in_words(
    http: aiohttp.ClientSession, pair: list[Replica]
) -> None:
    active, standby = pair
    assert await state_of(http, standby) == "standby", "and ready: the Deployment counts on it"
    assert (await ask(http, active, "filter", asking("p")))["NodeNames"] == [NODE]
    refused = await ask(http, standby, "filter", asking("p"))
    assert refused["Error"].startswith("this replica of the extender is on standby; active is pod-a_")
    assert refused["NodeNames"] is None
    bind = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": NODE}
    assert "is on standby" in (await ask(http, standby, "bind", bind))["Error"]


async def test_b16_the_standby_takes_over_from_one_that_was_killed(
    extenders: Extenders, http: aiohttp.ClientSession, pair: list[Replica]
) -> None:
    active, standby = pair
    pair.remove(active)
    begin = time.monotonic()
    await asyncio.to_thread(extenders.kill, active)
    took = await until_active(http, standby) - begin
    print(f"took over {took:.2f} s after SIGKILL")  # noqa: T201 - the figure is worth seeing
    assert took < MOST_TO_TAKE_OVER
    assert (await ask(http, standby, "filter", asking("p")))["NodeNames"] == [NODE], "it had read the cluster before"


async def test_b16_the_standby_takes_over_at_once_from_one_that_ends(
    extenders: Extenders, http: aiohttp.ClientSession, pair: list[Replica]
) -> None:
    active, standby = pair
    pair.remove(active)
    stopping = time.monotonic()
    ending = asyncio.create_task(asyncio.to_thread(extenders.stop, active))
    took = await until_active(http, standby) - stopping
    print(f"took over {took:.2f} s after SIGTERM")  # noqa: T201
    await ending
    assert took < AT_ONCE


async def test_the_active_one_is_where_the_leading_kube_scheduler_is(
    client: KubeClient, http: aiohttp.ClientSession, pair: list[Replica]
) -> None:
    first, second = pair
    await kube_scheduler_leads(client, "pod-b")
    await until_active(http, second)
    await kube_scheduler_leads(client, "pod-a")
    # Asked at once, as by a kube-scheduler that leads as of now: it waits until it may answer.
    assert (await ask(http, first, "filter", asking("q")))["NodeNames"] == [NODE]
    assert await state_of(http, second) == "standby"


async def test_a_pod_that_does_not_say_what_it_holds_is_told_in_an_event(
    extenders: Extenders, client: KubeClient, pair: list[Replica]
) -> None:
    spec = {**pod_spec(container(gpu=1)), "nodeName": NODE}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "silent"}, "spec": spec}
    pod = await client.create(paths.pods("default"), body)
    try:
        await until(lambda: events_of(client, pod))
        found = await events_of(client, pod)
    finally:
        await client.delete(f"{paths.pod('default', 'silent')}?gracePeriodSeconds=0")
    (event,) = found
    assert event["reason"] == "MalformedAllocation"
    assert event["note"] == "its allocation cannot be read: it has no annotation hami.io/amd-devices-allocated"
    assert event["reportingInstance"] == "pod-a"
    for replica in pair:
        log = (extenders.cluster.log_folder / f"{replica.name}.log").read_text()
        assert "orbidden" not in log, "the rights of the manifests are enough"


async def events_of(client: KubeClient, pod: Json) -> list[Json]:
    items, _ = await client.list(paths.events("default"))
    return [item for item in items if item["regarding"].get("uid") == pod["metadata"]["uid"]]


async def test_b15_a_plugins_lease_is_seen_with_the_rights_of_both_sides(
    extenders: Extenders, client: KubeClient, http: aiohttp.ClientSession, pair: list[Replica]
) -> None:
    extenders.cluster.wait_for_service_account(NAMESPACE, "plugin")
    kubeconfig = extenders.cluster.kubeconfig_for_service_account(NAMESPACE, "plugin")
    async with KubeClient.connect(kubeconfig) as plugin:
        for _ in range(2):  # made, then renewed
            await beat(plugin, NAMESPACE, NODE)
    for replica in pair:
        await until(partial(shows, http, replica, 'plugins{state="fresh"} 1.0'))
    lease = await client.get(paths.named(paths.leases(NAMESPACE), lease_name(NODE)))
    (owner,) = lease["metadata"]["ownerReferences"]
    assert owner["uid"] == (await client.get(paths.node(NODE)))["metadata"]["uid"]


async def shows(http: aiohttp.ClientSession, replica: Replica, text: str) -> bool:
    return text in await metrics_of(http, replica)


async def metrics_of(http: aiohttp.ClientSession, replica: Replica) -> str:
    async with http.get(f"{replica.health}metrics") as response:
        return await response.text()


async def test_metrics_say_who_is_active(http: aiohttp.ClientSession, pair: list[Replica]) -> None:
    active, standby = [await metrics_of(http, replica) for replica in pair]
    assert "amd_vgpu_scheduler_active 1.0" in active
    assert "amd_vgpu_scheduler_active 0.0" in standby
