"""Nodes that changed are looked at, and only these; the active replica tells, all of them count."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from kube.client import KubeClient
from kube.listwatch import Change, Snapshot
from protocol.devices import DeviceInfo, encode_register
from protocol.names import NODE_REGISTER
from scheduler.app import Extender, make_app, make_health_app
from scheduler.binder import Binder
from scheduler.events import About, Events
from scheduler.findings import Kind, inspect
from scheduler.heartbeats import Heartbeats
from scheduler.metrics import Metrics
from scheduler.nodelock import NodeLocks
from scheduler.readings import add_readings
from scheduler.request import Policies
from scheduler.reservations import Reservations
from scheduler.state import ClusterState
from scheduler.watchman import Watchman
from tests.protocol.makers import MI300X, container, pod_spec
from tests.scheduler.test_findings import holder


class Told(Events):
    """Takes the notes instead of writing them."""

    def __init__(self) -> None:
        super().__init__(cast(KubeClient, None), "pod-a")
        self.notes: list[tuple[About, str]] = []

    def note(self, about: About, reason: str, action: str, text: str, importance: Any = "Warning") -> None:
        assert (action, importance) == ("Accounting", "Warning")
        assert text
        self.notes.append((about, reason))


class Given:
    """A leadership that the test gives and takes."""

    holder = ""

    def __init__(self) -> None:
        self.held = True

    async def wait_held(self) -> None:
        raise AssertionError("nobody waits for it here")


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.state, self.events, self.metrics, self.leadership = ClusterState(), Told(), Metrics(), Given()
        self.watchman = Watchman(self.state, self.events, self.metrics, self.leadership, monotonic=lambda: self.now)
        self.state.see_nodes(Snapshot((node("node-a", MI300X), node("node-b", replace(MI300X, id="GPU-b")))))
        self.state.see_pods(Snapshot(()))
        self.state.see_quotas(Snapshot(()))

    def values(self) -> dict[str, float]:
        lines = self.metrics.render().decode().splitlines()
        return {
            name.removeprefix("amd_vgpu_scheduler_"): float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }


def node(name: str, *devices: DeviceInfo) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {NODE_REGISTER: encode_register(devices)}}}


@pytest.fixture
def world() -> World:
    return World()


PRODUCT = f'product="{MI300X.product}"'


async def test_the_sums_follow_the_cluster(world: World) -> None:
    await world.watchman.look()
    assert world.values()[f'gpus{{{PRODUCT},state="open"}}'] == 2
    world.state.see_pods(Change("ADDED", holder("a")))
    await world.watchman.look()
    assert world.values()[f'compute_units{{{PRODUCT},state="held"}}'] == 76
    assert world.values()[f'memory_mebibytes{{{PRODUCT},state="held"}}'] == 1024
    world.state.see_pods(Change("DELETED", holder("a")))
    world.state.see_nodes(Change("DELETED", node("node-b")))
    await world.watchman.look()
    assert world.values()[f'compute_units{{{PRODUCT},state="held"}}'] == 0
    assert world.values()[f'gpus{{{PRODUCT},state="open"}}'] == 1
    assert world.values()[f'gpus_by_free_compute_units{{free="100%",{PRODUCT}}}'] == 1


async def test_a_product_that_is_gone_leaves_the_metrics(world: World) -> None:
    for number in range(50):
        world.state.see_nodes(Snapshot((node("node-a", replace(MI300X, product=f"Product {number}")),)))
        await world.watchman.look()
    text = world.metrics.render().decode()
    assert "Product 49" in text
    assert "Product 48" not in text


async def test_only_nodes_that_changed_are_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.watchman.look()
    looked: list[str] = []

    def noting(name: str, *rest: Any) -> Any:
        looked.append(name)
        return inspect(name, *rest)

    monkeypatch.setattr("scheduler.watchman.inspect", noting)
    world.state.see_pods(Change("ADDED", holder("a")))
    touched = {**node("node-b", replace(MI300X, id="GPU-b")), "status": {"images": []}}
    world.state.see_nodes(Change("MODIFIED", touched))
    await world.watchman.look()
    assert looked == ["node-a"], "a kubelet's report changes nothing"


async def test_troubles_are_told_and_counted_until_they_are_gone(world: World) -> None:
    world.state.see_pods(Change("ADDED", holder("a", cus="{")))
    await world.watchman.look()
    assert [(about.name, reason) for about, reason in world.events.notes] == [("a", "MalformedAllocation")]
    assert world.values()['findings{kind="MalformedAllocation"}'] == 1
    assert world.values()[f'gpus{{{PRODUCT},state="blocked"}}'] == 1
    world.state.see_pods(Change("DELETED", holder("a")))
    await world.watchman.look()
    assert world.values()['findings{kind="MalformedAllocation"}'] == 0
    assert len(world.events.notes) == 1


async def test_a_gpu_that_changes_under_a_pod_is_noticed(world: World) -> None:
    world.state.see_pods(Change("ADDED", holder("a")))
    await world.watchman.look()
    world.state.see_nodes(Change("MODIFIED", node("node-a", replace(MI300X, cu_count=320))))
    await world.watchman.look()
    world.state.see_nodes(Change("MODIFIED", node("node-a")))
    await world.watchman.look()
    assert [reason for _, reason in world.events.notes] == ["GpuChanged", "GpuLost"]


async def test_a_standby_counts_and_tells_nothing_until_it_is_active(world: World) -> None:
    world.leadership.held = False
    world.state.see_pods(Change("ADDED", holder("a", cus="{")))
    await world.watchman.look()
    assert world.values()['findings{kind="MalformedAllocation"}'] == 1
    assert world.events.notes == []
    world.leadership.held = True
    await world.watchman.look()
    assert len(world.events.notes) == 1


async def test_what_lasts_is_noted_again(world: World) -> None:
    world.state.see_pods(Change("ADDED", holder("a", cus="{")))
    for now, notes in ((0, 1), (59, 1), (61, 2)):
        world.now = now
        await world.watchman.look()
        assert len(world.events.notes) == notes


async def test_the_metrics_of_the_whole_extender(world: World) -> None:
    unused = KubeClient(None, timeout=1)
    binder = Binder(unused, world.state, NodeLocks(unused, world.state), policies=Policies(), wait_seconds=1)
    beats = Heartbeats(lambda: world.now)
    extender = Extender.of(world.state, binder, Policies(), lambda: world.now, heartbeats=beats, metrics=world.metrics)
    add_readings(world.metrics, world.state, extender.reservations, beats, world.leadership)
    world.state.snapshots["/api/v1/pods"] = 3
    beats.see(Snapshot(({"metadata": {"name": "plugin-node-a"}, "spec": {}},)))

    def pod(name: str, cores: int) -> dict[str, Any]:
        spec = pod_spec(container(gpu=1, gpucores=cores))
        return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}

    async with TestClient(TestServer(make_app(extender))) as client:
        for body in ({"Pod": pod("p", 50), "NodeNames": ["node-a"]}, {"Pod": pod("q", 60), "NodeNames": ["node-a"]}):
            await client.post("/filter", json=body)
        await client.post("/filter", data=b"{")
    world.now += 100
    async with TestClient(TestServer(make_health_app(extender))) as client:
        answer = await client.get("/metrics")
        assert answer.status == 200
        assert answer.content_type == "text/plain"
    values = world.values()
    for result in ("ok", "nowhere", "error"):
        assert values[f'request_seconds_count{{result="{result}",verb="filter"}}'] == 1
    assert values["active"] == 1
    assert values["promises_expired_total"] == 1
    assert values['promises{state="open"}'] == values['promises{state="decided"}'] == 0
    assert values['index_objects{kind="nodes"}'] == 2
    assert values['watch_restarts_total{path="/api/v1/pods"}'] == 2
    assert values['plugins{state="fresh"}'] == 1


MANUAL = (Path(__file__).parents[2] / "docs/scheduler.md").read_text()


def test_every_metric_is_in_the_manual(world: World) -> None:
    reservations = Reservations(world.state.usages, world.state.shows, lambda: 0)
    add_readings(world.metrics, world.state, reservations, Heartbeats(), world.leadership)
    kinds = [line.split()[2:] for line in world.metrics.render().decode().splitlines() if line.startswith("# TYPE")]
    # The client library adds when a series began.
    names = [name for name, _ in kinds if not name.endswith("_created")]
    assert len(names) > 15
    assert [name for name in names if f"`{name}" not in MANUAL] == []


@pytest.mark.parametrize("reason", [*Kind, "BindFailed", "StaleLockReleased"])
def test_every_event_is_in_the_manual(reason: str) -> None:
    assert f"| `{reason}` |" in MANUAL
