"""The extender's HTTP side: every answer has status 200 and the form of its verb, whatever was sent."""

import io
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from kube.client import KubeClient
from kube.listwatch import Snapshot
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
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
