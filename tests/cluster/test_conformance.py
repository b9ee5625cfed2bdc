"""kube-scheduler and the extender, word for word: what the real one sends, in both of its modes, and what it shows.

The exchanges are kept in `tests/scheduler/recorded`, one file for each release and mode; `RECORD=1` writes them anew.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kube import paths
from kube.client import KubeClient
from protocol.names import ASSIGNED_NODE, CU_ALLOCATED
from protocol.pods import PodRef, annotations, node_name
from tests.cluster.availability import running_cluster
from tests.cluster.binaries import RELEASES
from tests.cluster.cluster import Cluster
from tests.cluster.recorder import MODES, Exchange, Recorder, add_node, remove, taped
from tests.protocol.makers import MI210, MI300X, container, pod_spec

Json = dict[str, Any]
SPACE = "conformance"
RECORDED = Path(__file__).parents[1] / "scheduler/recorded"
SECONDS = 60.0


@pytest.fixture(scope="module", params=RELEASES)
def plane(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running_cluster(node=False, kubernetes=request.param) as cluster:
        cluster.create_namespace(SPACE)
        yield cluster


@pytest.fixture
async def client(plane: Cluster) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(plane.kubeconfig) as client:
        yield client


@dataclass
class World:
    """Two nodes with a big GPU, one with a small one, an extender, and a kube-scheduler that talks through a tape."""

    cluster: Cluster
    client: KubeClient
    tape: Recorder
    scheduler: str

    async def create(self, name: str, spec: Json, notes: dict[str, str] | None = None) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE, "annotations": notes or {}},
            # The nodes have no kubelet, and are marked so.
            "spec": {**spec, "schedulerName": self.scheduler, "tolerations": [{"operator": "Exists"}]},
        }
        await self.client.create(paths.pods(SPACE), body)

    async def bound(self, name: str) -> Json:
        pod = await asyncio.to_thread(
            self.cluster.wait_for, paths.pods(SPACE), name, lambda pod: bool(pod and node_name(pod)), SECONDS
        )
        assert pod
        return pod

    async def event(self, name: str, *words: str) -> str:
        """Return the message of the first FailedScheduling event about a pod that has all these words."""
        uid = (await self.client.get(paths.pod(SPACE, name)))["metadata"]["uid"]
        async with asyncio.timeout(SECONDS):
            while True:
                found = await self.client.get(f"/api/v1/namespaces/{SPACE}/events")
                for event in found["items"]:
                    message = event.get("message") or event.get("note") or ""
                    about = (event["involvedObject"].get("uid"), event["reason"])
                    if about == (uid, "FailedScheduling") and all(word in message for word in words):
                        return str(message)
                await asyncio.sleep(0.2)


@pytest.fixture(params=MODES)
async def world(plane: Cluster, client: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    mode = request.param
    scheduler = f"{mode}-{plane.binaries.minor}"
    names = {f"{mode}-big-a": MI300X, f"{mode}-big-b": MI300X, f"{mode}-small": MI210}
    for name, device in names.items():
        await add_node(client, name, [device])
    try:
        async with taped(plane, scheduler, mode, SPACE, "--bind-wait=1") as tape:
            yield World(plane, client, tape, scheduler)
    finally:
        await remove(client, SPACE, names)


async def test_the_way_of_a_pod_in_both_modes(world: World) -> None:
    mode = world.scheduler.partition("-")[0]
    await world.create("fits", pod_spec(container(gpu=1, gpumem=65536, gpucores=50)))
    pod = await world.bound("fits")
    async with asyncio.timeout(SECONDS):
        filtered, scored, bound = [await world.tape.last(verb, "fits") for verb in ("filter", "prioritize", "bind")]
    big = {f"{mode}-big-a", f"{mode}-big-b"}

    assert set(filtered.asked) == {"Pod", "Nodes", "NodeNames"}
    assert filtered.asked["Pod"]["metadata"]["uid"] == pod["metadata"]["uid"]
    if MODES[mode]:
        assert filtered.asked["Nodes"] is None
        assert set(filtered.asked["NodeNames"]) >= big
        assert set(filtered.answered["NodeNames"]) == big
    else:
        assert filtered.asked["NodeNames"] is None
        assert {item["metadata"]["name"] for item in filtered.asked["Nodes"]["items"]} >= big
        assert {item["metadata"]["name"] for item in filtered.answered["Nodes"]["items"]} == big
    assert {score["Host"] for score in scored.answered} == big
    assert bound.asked == {
        "PodName": "fits",
        "PodNamespace": SPACE,
        "PodUID": pod["metadata"]["uid"],
        "Node": node_name(pod),
    }
    assert bound.answered == {"Error": ""}
    assert annotations(pod)[ASSIGNED_NODE] == node_name(pod)
    assert len(json.loads(annotations(pod)[CU_ALLOCATED])) == 1
    keep_or_compare(world, {one.verb: one for one in (filtered, scored, bound)})


async def test_what_users_read_of_a_pod_that_fits_nowhere(world: World) -> None:
    await world.create("huge", pod_spec(container(gpu=1, gpumem=200000)))
    message = await world.event("huge", "GPU memory")
    assert message.startswith("0/3 nodes are available: ")
    assert "2 GPU memory: 196608 MiB in all, 200000 asked" in message
    assert "1 GPU memory: 65520 MiB in all, 200000 asked" in message


async def test_what_users_read_of_a_pod_that_nobody_can_serve(world: World) -> None:
    """The error of a filter: here of a pod that no webhook saw."""
    await world.create("wrong", pod_spec(container(gpu=1, gpucores=101)))
    message = await world.event("wrong", "gpucores")
    assert "spec.containers[0].resources.limits[amd.com/gpucores]" in message
    assert "101" in message


async def test_what_users_read_of_a_bind_that_fails(world: World) -> None:
    """A node that serves another pod for longer than a bind waits."""
    await world.create("first", pod_spec(container(gpu=1, gpumem=1024, gpucores=10)))
    holder = await world.bound("first")
    node, first = node_name(holder), PodRef.of(holder)
    # Nobody runs an Allocate here, so the first pod keeps its node's lock.
    pinned = {"nodeSelector": {"only": "here"}}
    await world.client.patch(paths.node(node), {"metadata": {"labels": {"only": "here"}}})
    await world.create("second", pod_spec(container(gpu=1, gpumem=1024, gpucores=10)) | pinned)
    message = await world.event("second", "was not free")
    assert f"pod {first}, bound to it at 20" in message, "who stands in the way"
    assert f"`kubectl -n {first.namespace} describe pod first`" in message, "what to do about it"
    failed = [one for one in world.tape.of("bind", "second") if one.answered["Error"]]
    assert failed
    assert any(one.answered["Error"] in message for one in failed)


def keep_or_compare(world: World, exchanges: dict[str, Exchange]) -> None:
    """Keep what was recorded, or see that kube-scheduler still speaks in the form of what is kept."""
    file = RECORDED / f"{world.scheduler}.json"
    now = {verb: {"asked": one.asked, "answered": one.answered} for verb, one in exchanges.items()}
    if os.environ.get("RECORD") == "1":
        file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    kept = json.loads(file.read_text())
    assert {verb: form(one["asked"]) for verb, one in now.items()} == {
        verb: form(one["asked"]) for verb, one in kept.items()
    }


def form(value: Any) -> Any:
    """Return the keys and types of a body, in the depth that the extender reads."""
    if isinstance(value, dict):
        return {
            key: form(one) if key in {"Pod", "Nodes", "metadata"} else type(one).__name__ for key, one in value.items()
        }
    return type(value).__name__
