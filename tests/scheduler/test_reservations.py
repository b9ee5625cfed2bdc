"""Promised room: what filter offered is not offered twice, and comes back when nobody takes it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from protocol.usage import GpuUsage
from scheduler import reservations as module
from scheduler.fit import Fits, Verdict
from scheduler.nominations import Nominations
from scheduler.request import Policies, Request
from scheduler.reservations import BIND_WITHIN, SEEN_WITHIN, Reservations
from scheduler.state import ClusterState
from tests.protocol.makers import MI300X, container, pod, pod_spec

NOBODY_NOMINATED = Nominations(ClusterState(), Policies())


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    """Nodes with one empty GPU each, and the pods that the watch has shown."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.empty = {MI300X.id: GpuUsage(MI300X)}
        self.seen: set[str] = set()
        self.room = Reservations(self.usages, self.seen.__contains__, self.clock)
        self.fits = Fits(self.room, NOBODY_NOMINATED)

    def usages(self, node: str) -> Mapping[str, GpuUsage]:
        assert node in NODES
        return self.empty

    def filter(self, name: str, cores: int, *nodes: str) -> Verdict:
        request = Request.of(pod(name, pod_spec(container(gpu=1, gpumem=64, gpucores=cores)), {}), Policies())
        verdict = self.fits.judge(request, nodes)
        self.room.promise(request, frozenset(verdict.fitting))
        return verdict


NODES = ("a", "b")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_node_is_asked_only_about_promises_that_may_end_there() -> None:
    """In a burst hundreds of binds wait for some node; a cluster has thousands of others."""
    looked: list[str] = []

    class Nodes(frozenset[str]):
        def __contains__(self, node: object) -> bool:
            looked.append(str(node))
            return super().__contains__(node)

    state = Reservations(lambda _: {MI300X.id: GpuUsage(MI300X)}, lambda _: False)
    for number in range(100):
        request = Request.of(pod(f"p{number}", pod_spec(container(gpu=1, gpucores=3)), {}), Policies())
        state.promise(request, Nodes([f"n{number}"]))
    room = state.room()
    for number in range(100, 200):
        room.sure(f"n{number}")
        room.undecided(f"n{number}")
    assert looked == []
    assert room.sure("n3")[MI300X.id].cus


def test_b6_room_is_not_promised_twice(cluster: Cluster) -> None:
    assert cluster.filter("first", 60, "a").fitting == ["a"]
    second = cluster.filter("second", 60, "a")
    assert second.reasons(permanent=False) == {"a": "GPU compute units: 122 free, 182 asked"}
    assert cluster.filter("small", 40, "a").fitting == ["a"]


def test_a_pod_that_is_filtered_again_does_not_stand_in_its_own_way(cluster: Cluster) -> None:
    assert cluster.filter("pod", 100, "a", "b").fitting == ["a", "b"]
    assert cluster.filter("pod", 100, "a", "b").fitting == ["a", "b"]


def test_a_pod_that_may_end_on_either_node_leaves_neither_sure(cluster: Cluster) -> None:
    cluster.filter("first", 60, "a", "b")
    second = cluster.filter("second", 60, "a", "b")
    assert (second.fitting, second.open) == ([], ["a", "b"])
    assert set(second.reasons(permanent=False).values()) == {"GPU room is promised to a pod that is being bound"}


def test_the_bind_decides_which_node_it_is(cluster: Cluster) -> None:
    cluster.filter("first", 60, "a", "b")
    cluster.room.decide("uid-first", "a")
    second = cluster.filter("second", 60, "a", "b")
    assert (second.fitting, second.open) == (["b"], [])


def test_b7_a_promise_that_nobody_takes_up_expires(cluster: Cluster) -> None:
    cluster.filter("first", 100, "a")
    cluster.clock.now = BIND_WITHIN - 0.01
    assert not cluster.filter("second", 100, "a").fitting
    cluster.clock.now = BIND_WITHIN + 0.01
    assert cluster.filter("second", 100, "a").fitting


def test_a_slow_bind_keeps_its_promise(cluster: Cluster) -> None:
    cluster.filter("first", 100, "a")
    cluster.room.decide("uid-first", "a")
    cluster.clock.now = 15 * BIND_WITHIN
    assert cluster.clock.now < SEEN_WITHIN
    assert not cluster.filter("second", 100, "a").fitting


def test_a_failed_bind_gives_the_room_back(cluster: Cluster) -> None:
    cluster.filter("first", 100, "a")
    cluster.room.decide("uid-first", "a")
    cluster.room.drop("uid-first")
    assert cluster.filter("second", 100, "a").fitting


def test_a_pod_that_is_seen_counts_once(cluster: Cluster) -> None:
    cluster.filter("first", 60, "a")
    cluster.seen.add("uid-first")
    # What the watch shows is the usage itself, which is empty here: only the promise is asked about.
    assert cluster.filter("second", 60, "a").fitting


def test_hami_987_a_pod_that_is_filtered_again_after_it_was_bound_holds_no_second_room(cluster: Cluster) -> None:
    cluster.filter("bound", 60, "a")
    cluster.room.decide("uid-bound", "a")
    cluster.seen.add("uid-bound")
    assert cluster.filter("bound", 60, "a", "b").fitting == ["a", "b"]
    assert cluster.filter("second", 60, "a").fitting == ["a"]


def test_a_bind_without_a_promise_is_none_of_ours(cluster: Cluster) -> None:
    cluster.room.decide("uid-unknown", "a")
    assert cluster.filter("pod", 100, "a").fitting


@pytest.mark.parametrize("end", ["decide", "drop", "expire"])
async def test_waiting_ends_when_a_promise_is_settled(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BIND_WITHIN", 0.05 if end == "expire" else 60.0)
    loop = asyncio.get_running_loop()
    room = Reservations(Cluster().usages, lambda _: False, loop.time)
    request = Request.of(pod("first", pod_spec(container(gpu=1)), {}), Policies())
    room.promise(request, frozenset(NODES))
    waiting = asyncio.create_task(room.any_settled())
    await asyncio.sleep(0)
    settle: dict[str, Any] = {"decide": lambda: room.decide("uid-first", "a"), "drop": lambda: room.drop("uid-first")}
    settle.get(end, lambda: None)()
    async with asyncio.timeout(5):
        await waiting


async def test_there_is_nothing_to_wait_for_without_open_promises(cluster: Cluster) -> None:
    cluster.filter("first", 60, "a")
    async with asyncio.timeout(5):
        await cluster.room.any_settled()
