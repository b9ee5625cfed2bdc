"""The extender's HTTP side: every answer has status 200 and the form of its verb, whatever was sent."""

import gc
import io
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from kube.client import KubeClient
from kube.listwatch import Change, Snapshot
from protocol.devices import encode_register
from protocol.names import ASSIGNED_NODE, BIND_PHASE, BIND_TIME, NODE_REGISTER, PHASE_ALLOCATING
from protocol.selection import LISTS
from protocol.usage import GpuUsage
from scheduler.app import Extender, make_app, make_health_app
from scheduler.binder import Binder
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from tests.protocol.makers import MI300X, container, pod_spec

MANIFESTS = Path(__file__).parents[2] / "manifests/base"
Client = TestClient[Any, Any]
POD = {"metadata": {"name": "p", "namespace": "default"}, "spec": pod_spec(container(gpu=1, gpucores=50, gpumem=1024))}


@pytest.fixture
def state() -> ClusterState:
    return ClusterState()


@pytest.fixture
def extender(state: ClusterState) -> Extender:
    unused = KubeClient(None, timeout=1)
    binder = Binder(unused, state, NodeLocks(unused, state), policies=Policies(), wait_seconds=1)
    return Extender.of(state, binder, Policies(), time.monotonic)


@pytest.fixture
async def client(extender: Extender) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(extender))) as client:
        yield client


def sync(state: ClusterState) -> None:
    register = {NODE_REGISTER: encode_register([MI300X])}
    state.see_nodes(Snapshot(({"metadata": {"name": "node-a", "annotations": register}},)))
    state.see_pods(Snapshot(()))
    state.see_quotas(Snapshot(()))


async def answer(client: Client, verb: str, body: object) -> Any:
    response = await client.post(verb, json=body)
    assert response.status == 200
    return await response.json()


async def test_b16_an_extender_that_has_not_read_the_cluster_says_so(client: Client) -> None:
    found = await answer(client, "/filter", {"Pod": POD, "NodeNames": ["node-a"]})
    assert found["Error"] == "the extender has not read the cluster yet"
    assert found["NodeNames"] is None


async def test_a_pod_without_gpus_may_go_anywhere(client: Client, state: ClusterState) -> None:
    sync(state)
    plain = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
    found = await answer(client, "/filter", {"Pod": plain, "NodeNames": ["node-a", "node-b"]})
    assert found["NodeNames"] == ["node-a", "node-b"]


async def test_a_pod_that_asks_for_the_impossible_is_told_its_field(client: Client, state: ClusterState) -> None:
    sync(state)
    odd = {"metadata": {}, "spec": pod_spec(container(gpucores=150))}
    found = await answer(client, "/filter", {"Pod": odd, "NodeNames": ["node-a"]})
    assert found["Error"].startswith("spec.containers[0].resources.limits[amd.com/gpucores]: Invalid value")


async def test_filter_and_scores(client: Client, state: ClusterState) -> None:
    sync(state)
    found = await answer(client, "/filter", {"Pod": POD, "NodeNames": ["node-a", "node-b"]})
    assert found["NodeNames"] == ["node-a"]
    assert found["FailedAndUnresolvableNodes"] == {"node-b": "node has no registered AMD GPU"}
    assert await answer(client, "/prioritize", {"Pod": POD, "NodeNames": ["node-a"]}) == [
        {"Host": "node-a", "Score": 0}
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"Pod":1}', b"[" * 10_000])
@pytest.mark.parametrize("verb", ["/filter", "/prioritize", "/bind"])
async def test_hami_2689_a_body_that_is_none_is_an_answered_error(client: Client, verb: str, body: bytes) -> None:
    response = await client.post(verb, data=body)
    assert response.status == 200
    found = await response.json()
    assert found == [] if verb == "/prioritize" else verb in found["Error"]


async def test_hami_2046_a_body_of_whole_nodes_may_be_large(client: Client, state: ClusterState) -> None:
    sync(state)
    register = {NODE_REGISTER: encode_register([MI300X])}
    images = [{"names": ["x" * 1000]}] * 50
    nodes = [
        {"metadata": {"name": f"node-{number}", "annotations": register}, "status": {"images": images}}
        for number in range(100)
    ]
    named = [{"metadata": {"name": "node-a"}}, *nodes]
    body = json.dumps({"Pod": POD, "Nodes": {"items": named}, "NodeNames": None}).encode()
    response = await client.post("/filter", data=io.BytesIO(body))
    found = await response.json()
    assert [item["metadata"]["name"] for item in found["Nodes"]["items"]] == ["node-a"]


def shipped_configuration() -> dict[str, Any]:
    manifest = yaml.safe_load((MANIFESTS / "scheduler-config.yaml").read_text())
    (extender,) = yaml.safe_load(manifest["data"]["config.yaml"])["extenders"]
    assert isinstance(extender, dict)
    return extender


def test_every_verb_that_the_manifests_name_is_served_and_none_is_missing(extender: Extender) -> None:
    shipped = shipped_configuration()
    verbs = {f"/{value}" for key, value in shipped.items() if key.endswith("Verb")}
    served = {route.resource.canonical for route in make_app(extender).router.routes() if route.resource and route.method == "POST"}  # fmt: skip  # noqa: E501
    assert verbs == served == {"/filter", "/prioritize", "/preempt", "/bind"}


def test_b12_kube_scheduler_counts_slots_and_leaves_shares_to_the_extender() -> None:
    managed = {one["name"]: one["ignoredByScheduler"] for one in shipped_configuration()["managedResources"]}
    assert managed == {"amd.com/gpu": False, "amd.com/gpumem": True, "amd.com/gpucores": True}


def test_b13_the_extender_is_asked_over_loopback() -> None:
    assert shipped_configuration()["urlPrefix"] == "http://127.0.0.1:8888"


async def test_health_tells_life_from_readiness(extender: Extender, state: ClusterState) -> None:
    async with TestClient(TestServer(make_health_app(extender))) as client:
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/readyz")).status == 503
        sync(state)
        assert (await client.get("/readyz")).status == 200
        assert (await client.post("/bind", json={})).status == 404, "probes come from outside the pod"


@pytest.mark.parametrize("key", LISTS)
async def test_a_list_that_is_too_long_to_be_meant_is_refused_in_words(
    client: Client, state: ClusterState, key: str
) -> None:
    """64 pods with 256 KiB of ids each took half a GiB, as what was found for them is remembered."""
    sync(state)
    notes = {key: ",".join(f"GPU-{number}" for number in range(5000))}
    asked = {**POD, "metadata": {**POD["metadata"], "annotations": notes}}
    result = await answer(client, "/filter", {"Pod": asked, "NodeNames": ["node-a"]})
    assert result["Error"].startswith(f'metadata.annotations[{key}]: Invalid value: "GPU-0,')
    assert result["Error"].endswith("must have at most 16384 characters")
    assert len(result["Error"]) < 300


async def test_nothing_is_kept_of_a_node_that_is_gone(client: Client, state: ClusterState) -> None:
    """Nodes come and go under new names every day; what is found of each is remembered for 64 shapes of pods."""
    sync(state)
    register = encode_register([replace(MI300X, id="GPU-spot")])
    node = {"metadata": {"name": "spot", "annotations": {NODE_REGISTER: register}}}
    for end in (Change("DELETED", node), Snapshot(())):
        state.see_nodes(Change("ADDED", node))
        asked = {"Pod": POD, "NodeNames": ["node-a", "spot"]}
        assert "spot" in (await answer(client, "/filter", asked))["NodeNames"]
        await answer(client, "/prioritize", asked)
        state.see_nodes(end)
        await answer(client, "/filter", {"Pod": POD, "NodeNames": ["node-a"]})
        kept = [one for one in gc.get_objects() if isinstance(one, GpuUsage) and one.device.id == "GPU-spot"]
        assert kept == []


async def test_a_pod_that_an_earlier_bind_may_yet_bind_is_offered_that_node_alone(
    client: Client, state: ClusterState
) -> None:
    sync(state)
    node = {"metadata": {"name": "node-b", "annotations": {NODE_REGISTER: encode_register([MI300X])}}}
    state.see_nodes(Change("ADDED", node))
    notes = {ASSIGNED_NODE: "node-b", BIND_PHASE: PHASE_ALLOCATING, BIND_TIME: str(int(time.time()))}
    asked = {**POD, "metadata": {**POD["metadata"], "annotations": notes}}
    result = await answer(client, "/filter", {"Pod": asked, "NodeNames": ["node-a", "node-b"]})
    assert result["NodeNames"] == ["node-b"]
    assert result["FailedNodes"] == {"node-a": "pod may yet be bound to node node-b"}
