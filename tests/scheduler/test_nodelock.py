"""Taking a lock from a pod that was never bound, whose bind comes back to life just then."""

import asyncio
import random
from datetime import timedelta
from typing import Any, cast

import pytest

from kube import paths
from kube.client import KubeClient
from protocol.lock import NodeLock
from protocol.names import ASSIGNED_TIME, CU_ALLOCATED, NODE_LOCK
from protocol.pods import annotations
from scheduler.nodelock import UNBOUND_GRACE, NodeLocks, lock_of
from scheduler.state import ClusterState
from tests.scheduler.standin_api import EPOCH, StandInApi, now
from tests.scheduler.virtual_time import run

NODE = paths.node("node-a")
OLD = NodeLock(EPOCH - UNBOUND_GRACE - timedelta(seconds=60), "default", "old")


class CalmApi(StandInApi):
    """Takes its time, and does not fail."""

    async def _gap(self) -> None:
        await asyncio.sleep(0.01)


class World:
    """A node whose lock a pod has held for long without being bound; it may be bound as soon as another takes over."""

    def __init__(self, *, comes_back: bool) -> None:
        self.comes_back = comes_back
        self.api = CalmApi(random.Random(3), self._after_each_write)  # noqa: S311 - to be repeated
        self.values: list[str] = []
        notes = {CU_ALLOCATED: '{"GPU-1":"0-75"}'}
        created = (OLD.since - timedelta(seconds=5)).isoformat()
        for name in ("old", "new"):
            metadata = {"namespace": "default", "name": name, "uid": name, "creationTimestamp": created}
            self.api.put(paths.pod("default", name), {"metadata": {**metadata, "annotations": notes}, "spec": {}})
        self.api.put(NODE, {"metadata": {"name": "node-a", "annotations": {NODE_LOCK: OLD.encode()}}})

    def _after_each_write(self, api: StandInApi) -> None:
        value = annotations(api.objects.get(NODE, {})).get(NODE_LOCK, "")
        if self.values[-1:] != [value]:
            self.values.append(value)
        if self.comes_back and value.endswith(",new"):
            self.comes_back = False
            path = paths.pod("default", "old")
            api.put(path, {**api.objects[path], "spec": {"nodeName": "node-a"}})

    def locks(self) -> NodeLocks:
        return NodeLocks(cast(KubeClient, self.api), ClusterState(), now)


def test_the_claim_of_a_pod_that_was_never_bound_is_void_before_its_lock_goes_on() -> None:
    world = World(comes_back=False)
    before = dict(world.api.objects[paths.pod("default", "old")]["metadata"])

    async def scenario() -> NodeLock:
        return (await world.locks().acquire("node-a", "default", "new")).lock

    own = run(scenario())
    assert lock_of(world.api.objects[NODE]) == own
    after = world.api.objects[paths.pod("default", "old")]["metadata"]
    assert set(after["annotations"]) == {ASSIGNED_TIME}
    assert after["resourceVersion"] != before["resourceVersion"], "a bind that is under way must not go through"


def test_a_lock_from_a_clock_that_was_far_ahead_binds_nobody() -> None:
    world = World(comes_back=False)
    ahead = NodeLock(EPOCH + timedelta(days=365), "default", "old")
    world.api.put(NODE, {"metadata": {"name": "node-a", "annotations": {NODE_LOCK: ahead.encode()}}})

    async def scenario() -> None:
        async with asyncio.timeout(10):
            await world.locks().acquire("node-a", "default", "new")

    run(scenario())


def test_a_lock_of_the_same_pod_that_is_too_old_is_not_inherited() -> None:
    world = World(comes_back=False)

    async def scenario() -> NodeLock | None:
        return (await world.locks().acquire("node-a", "default", "old")).inherited

    assert run(scenario()) is None
    assert set(annotations(world.api.objects[paths.pod("default", "old")])) == {ASSIGNED_TIME}, "its claim is void"


def test_an_inherited_lock_is_given_back_as_old_as_it_was() -> None:
    world = World(comes_back=False)
    young = NodeLock(EPOCH - timedelta(seconds=10), "default", "new")
    world.api.put(NODE, {"metadata": {"name": "node-a", "annotations": {NODE_LOCK: young.encode()}}})

    async def scenario() -> None:
        locks = world.locks()
        hold = await locks.acquire("node-a", "default", "new")
        assert hold.lock != hold.inherited == young
        await locks.give_back("node-a", hold)

    run(scenario())
    assert lock_of(world.api.objects[NODE]) == young


def test_a_lock_is_given_back_to_a_pod_that_was_bound_between_the_two_looks() -> None:
    world = World(comes_back=True)

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await world.locks().acquire("node-a", "default", "new")

    run(scenario())
    assert lock_of(world.api.objects[NODE]) == OLD, "it waits for Allocate, which is told by the lock whose it is"
    assert [value.rpartition(",")[2] for value in world.values] == ["", "old", "new", "old"]


def test_a_lock_of_the_same_pod_is_taken_again_with_another_time() -> None:
    world = World(comes_back=False)

    async def scenario() -> list[NodeLock]:
        locks: list[Any] = [world.locks(), world.locks()]
        first = await locks[0].acquire("node-a", "default", "new")
        second = await locks[1].acquire("node-a", "default", "new")
        await locks[0].give_back("node-a", first)  # not its own any more
        assert second.inherited == first.lock
        return [first.lock, second.lock]

    first, second = run(scenario())
    assert first != second
    assert lock_of(world.api.objects[NODE]) == second
