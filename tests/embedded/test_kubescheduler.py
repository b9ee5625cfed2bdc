"""The kube-scheduler stand-in: what it counts, in which order it tries, and how it calls an extender."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from embedded.kubescheduler.calls import ExtenderClient, ExtenderError
from embedded.kubescheduler.config import ConfigError, Extender, read_config
from embedded.kubescheduler.queue import Queue
from embedded.kubescheduler.scheduler import enough_nodes, no_nodes
from embedded.kubescheduler.snapshot import Snapshot
from embedded.product import scheduler_config
from protocol.pods import PodRef
from tests.embedded.conftest import MANIFESTS
from tests.protocol.makers import container, pod, pod_spec
from tests.scheduler import virtual_time

Json = dict[str, Any]


def node(name: str, allocatable: dict[str, str], **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}


def asks(name: str, where: str = "", **limits: Any) -> Json:
    body = pod_spec(container(**limits))
    for one in body["containers"]:
        one["resources"]["requests"] = one["resources"]["limits"]
    return pod(name, body, {}, node=where)


def test_the_manifests_configuration_is_understood() -> None:
    config = read_config(scheduler_config(MANIFESTS))
    assert config.name == "amd-vgpu-scheduler"
    assert config.extender.caches_nodes
    assert config.extender.seconds == 30
    assert config.extender.managed == {"amd.com/gpu", "amd.com/gpumem", "amd.com/gpucores"}
    assert config.extender.ignored == {"amd.com/gpumem", "amd.com/gpucores"}


def test_a_configuration_without_an_extender_is_refused() -> None:
    with pytest.raises(ConfigError, match="profiles, extenders: 1, 0"):
        read_config({"profiles": [{"schedulerName": "x"}]})


def test_a_node_is_full_when_its_slots_are() -> None:
    snapshot = Snapshot(frozenset({"amd.com/gpumem", "amd.com/gpucores"}))
    snapshot.set_node(node("a", {"amd.com/gpu": "2"}))
    wanted = snapshot.wanted(asks("new", gpu=1, gpumem=10**9))
    assert wanted == {"amd.com/gpu": 1}, "memory is not kube-scheduler's business"
    assert not list(snapshot.nodes["a"].obstacles(wanted))
    snapshot.set_pod(asks("one", "a", gpu=1))
    snapshot.assume(asks("two", gpu=1), "a")
    assert list(snapshot.nodes["a"].obstacles(wanted)) == ["Insufficient amd.com/gpu"]
    snapshot.set_node(node("a", {"amd.com/gpu": "2"}, unschedulable=False))
    assert list(snapshot.nodes["a"].obstacles(wanted)) == ["Insufficient amd.com/gpu"], (
        "a new node object forgets nothing"
    )
    snapshot.remove_pod(PodRef.of(asks("two")).uid)
    assert not list(snapshot.nodes["a"].obstacles(wanted))


def test_only_some_changes_of_a_node_may_make_room() -> None:
    snapshot = Snapshot(frozenset())
    assert snapshot.set_node(node("a", {"amd.com/gpu": "1"}))
    locked = node("a", {"amd.com/gpu": "1"})
    locked["metadata"]["annotations"] = {"lock": "1"}
    assert not snapshot.set_node(locked)
    assert snapshot.nodes["a"].node == locked
    assert snapshot.set_node(node("a", {"amd.com/gpu": "2"}))
    assert snapshot.nodes["a"].allocatable == {"amd.com/gpu": 2}


def test_a_finished_pod_takes_nothing() -> None:
    snapshot = Snapshot(frozenset())
    snapshot.set_node(node("a", {"amd.com/gpu": "1"}))
    running = asks("one", "a", gpu=1)
    snapshot.set_pod(running)
    snapshot.set_pod({**running, "status": {"phase": "Succeeded"}})
    assert not list(snapshot.nodes["a"].obstacles({"amd.com/gpu": 1}))


def test_pods_that_are_gone_are_counted_no_more() -> None:
    snapshot = Snapshot(frozenset())
    snapshot.set_node(node("a", {"amd.com/gpu": "2"}))
    for name in ("one", "two"):
        snapshot.set_pod(asks(name, "a", gpu=1))
    snapshot.keep_pods({PodRef.of(asks("one")).uid})
    assert snapshot.has_pod(PodRef.of(asks("one")).uid)
    assert not snapshot.has_pod(PodRef.of(asks("two")).uid)
    assert list(snapshot.nodes["a"].obstacles({"amd.com/gpu": 2})) == ["Insufficient amd.com/gpu"]
    assert not list(snapshot.nodes["a"].obstacles({"amd.com/gpu": 1}))


def test_cordoned_and_tainted_nodes() -> None:
    snapshot = Snapshot(frozenset())
    snapshot.set_node(node("a", {}, unschedulable=True))
    snapshot.set_node(node("b", {}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    assert list(snapshot.nodes["a"].obstacles({})) == ["node(s) were unschedulable"]
    assert list(snapshot.nodes["b"].obstacles({})) == ["node(s) had taint {k: v}, that the pod didn't tolerate"]


@pytest.mark.parametrize(("total", "enough"), [(3, 3), (99, 99), (100, 100), (1000, 420), (5000, 500), (10000, 500)])
def test_of_many_nodes_only_some_are_looked_at(total: int, enough: int) -> None:
    assert enough_nodes(total) == enough


def test_the_words_for_a_pod_that_fits_nowhere() -> None:
    assert no_nodes(0, {}) == "no nodes available to schedule pods"
    words = "0/3 nodes are available: 1 Insufficient amd.com/gpu, 2 GPU memory: 1 MiB free, 2 asked."
    assert no_nodes(3, {"GPU memory: 1 MiB free, 2 asked": 2, "Insufficient amd.com/gpu": 1}) == words


def test_a_pod_that_failed_waits_for_its_backoff_and_a_change() -> None:
    async def story() -> list[float]:
        loop, queue, times = asyncio.get_running_loop(), Queue(), []
        queue.see(asks("a"))
        for _ in range(3):
            waiting = await queue.pop()
            times.append(loop.time())
            queue.put_back(waiting)
        queue.something_changed()
        await queue.pop()
        return [*times, loop.time()]

    # Without a change after a minute; with one after its backoff, 4 seconds after three attempts.
    assert virtual_time.run(story()) == [0, 60, 120, 124]


def test_a_pod_comes_once_while_it_is_tried() -> None:
    async def story() -> tuple[int, bool]:
        queue = Queue()
        queue.see(asks("a"))
        waiting = await queue.pop()
        queue.see(asks("a"))
        left = len(queue)
        queue.forget(PodRef.of(asks("a")).uid)
        queue.put_back(waiting)
        return left, len(queue) == 0

    assert virtual_time.run(story()) == (0, True)


async def answering(verb: str, answer: object, status: int = 200) -> tuple[web.AppRunner, str, list[Json]]:
    bodies: list[Json] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_post(f"/{verb}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}", bodies


def extender(url: str, *, caches_nodes: bool = True) -> Extender:
    return Extender(url, "filter", "prioritize", "bind", 2, caches_nodes, 5, frozenset({"amd.com/gpu"}), frozenset())


@pytest.mark.parametrize("caches_nodes", [True, False])
async def test_nodes_are_sent_as_the_extender_wants_them(*, caches_nodes: bool) -> None:
    names, items = (["a"], None) if caches_nodes else (None, {"items": [node("a", {})]})
    answer = {
        "NodeNames": names,
        "Nodes": items,
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "no"},
    }
    runner, url, bodies = await answering("filter", answer)
    async with ExtenderClient(extender(url, caches_nodes=caches_nodes)) as client:
        filtered = await client.filter(asks("x", gpu=1), [node("a", {}), node("b", {})])
    await runner.cleanup()
    assert filtered.names == ["a"]
    assert filtered.failed == {"b": "full", "c": "no"}
    (body,) = bodies
    assert body["Pod"]["metadata"]["name"] == "x"
    assert body["NodeNames"] == (["a", "b"] if caches_nodes else None)
    assert (body["Nodes"] is None) is caches_nodes


RECORDED = Path(__file__).resolve().parents[1] / "scheduler/recorded"


@pytest.fixture(params=["names-20", "names-35", "nodes-20", "nodes-35"])
def recording(request: pytest.FixtureRequest) -> Json:
    """What a real kube-scheduler of 1.20 or 1.35 and the extender said to each other."""
    found: Json = json.loads((RECORDED / f"{request.param}.json").read_text())
    return found


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_it_asks_what_a_real_kube_scheduler_asked(recording: Json, verb: str) -> None:
    exchange = recording[verb]
    asked = exchange["asked"]
    caches_nodes = asked["Nodes"] is None
    nodes = [node(name, {}) for name in asked["NodeNames"]] if caches_nodes else asked["Nodes"]["items"]
    as_watched = {"kind": "Pod", "apiVersion": "v1", **asked["Pod"]}
    runner, url, bodies = await answering(verb, exchange["answered"])
    async with ExtenderClient(extender(url, caches_nodes=caches_nodes)) as client:
        understood = await getattr(client, verb)(as_watched, nodes)
    await runner.cleanup()
    assert bodies == [asked]
    if verb == "filter":
        assert len(understood.names) + len(understood.failed) == len(nodes)


async def test_scores_are_weighted_and_none_are_no_reason_to_stop() -> None:
    runner, url, _ = await answering("prioritize", [{"Host": "a", "Score": 7}])
    async with ExtenderClient(extender(url)) as client:
        assert await client.prioritize(asks("x"), [node("a", {})]) == {"a": 140}
        with pytest.raises(ExtenderError, match="code 404"):
            await client.filter(asks("x"), [])
    await runner.cleanup()
    async with ExtenderClient(extender(url)) as client:
        assert await client.prioritize(asks("x"), [node("a", {})]) == {}


async def test_an_extender_says_that_it_cannot() -> None:
    runner, url, bodies = await answering("bind", {"Error": "no room any more"})
    async with ExtenderClient(extender(url)) as client:
        with pytest.raises(ExtenderError, match="no room any more"):
            await client.bind(PodRef("n", "x", "u"), "a")
        assert client.is_interested(asks("x", gpu=1))
        assert not client.is_interested(asks("x", gpumem=1)), "only gpu is managed here"
    await runner.cleanup()
    assert bodies == [{"PodNamespace": "n", "PodName": "x", "PodUID": "u", "Node": "a"}]
