"""A Lease between processes whose clocks need not agree."""

import asyncio
from typing import cast

import pytest

from kube import paths
from kube.client import KubeClient
from kube.lease import Lease, LeaseSettings
from tests.certs.fakes import FakeApi

PATH = paths.named(paths.leases("amd-vgpu"), "webhook")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def lease(api: FakeApi, identity: str, clock: Clock, renew: float = 4.0) -> Lease:
    settings = LeaseSettings("amd-vgpu", "webhook", identity, duration_seconds=15, renew_seconds=renew)
    return Lease(cast(KubeClient, api), settings, monotonic=clock)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_the_first_one_holds_it_and_the_second_does_not(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, "a", clock), lease(api, "b", clock)
    await first.attempt()
    await second.attempt()
    assert (first.held, second.held) == (True, False)
    assert api.objects[PATH]["spec"]["holderIdentity"] == "a"


async def test_it_is_taken_from_one_that_is_silent(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, "a", clock), lease(api, "b", clock)
    await first.attempt()
    await second.attempt()
    clock.seconds += 15
    await second.attempt()
    assert not second.held, "not before the whole time is over"
    clock.seconds += 0.1
    await second.attempt()
    assert (first.held, second.held) == (False, True)
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1
    await first.attempt()
    assert not first.held


async def test_the_holder_stops_before_others_begin(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, "a", clock), lease(api, "b", clock)
    await first.attempt()
    await second.attempt()
    for _ in range(30):
        clock.seconds += 0.5
        await second.attempt()
        assert not (first.held and second.held)


async def test_a_holder_whose_clock_is_wrong_keeps_it(api: FakeApi, clock: Clock) -> None:
    """Only that renewTime changes counts, not what it says."""
    second = lease(api, "b", clock)
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:00.000000Z"}
    for second_of_day in range(20):
        spec = {**spec, "renewTime": f"1970-01-01T00:00:{second_of_day:02}.000000Z"}
        api.put(PATH, {"metadata": {"name": "webhook"}, "spec": spec})
        await second.attempt()
        clock.seconds += 10
    assert not second.held


async def test_two_that_take_it_at_once_are_one_holder(api: FakeApi, clock: Clock) -> None:
    api.put(PATH, {"metadata": {"name": "webhook"}, "spec": {"holderIdentity": ""}})
    replicas = [lease(api, name, clock) for name in "ab"]
    found = await api.get(PATH)
    for replica in replicas:
        await replica._write(found, clock())
    assert [replica.held for replica in replicas] == [True, False]


async def test_it_is_released_at_the_end(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, "a", clock), lease(api, "b", clock)
    acquired = asyncio.Event()
    running = asyncio.create_task(first.run(acquired.set))
    async with asyncio.timeout(10):
        await acquired.wait()
    running.cancel()
    await asyncio.wait({running})
    await second.attempt()
    assert (first.held, second.held) == (False, True)


async def test_a_lost_answer_does_not_lose_the_lease(api: FakeApi, clock: Clock) -> None:
    first = lease(api, "a", clock, renew=0.01)
    changes: asyncio.Queue[bool] = asyncio.Queue()
    api.lose = "answer"
    running = asyncio.create_task(first.run(lambda: changes.put_nowait(first.held)))
    async with asyncio.timeout(10):
        assert await changes.get()
    running.cancel()
    await asyncio.wait({running})


async def test_one_that_may_not_hold_it_any_more_gives_it_back(api: FakeApi, clock: Clock) -> None:
    may = True

    async def stands() -> bool:
        return may

    settings = LeaseSettings("amd-vgpu", "webhook", "a", duration_seconds=15)
    first = Lease(cast(KubeClient, api), settings, stands=stands, monotonic=clock)
    second = lease(api, "b", clock)
    await first.attempt()
    assert (first.held, first.holder) == (True, "a")
    may = False
    await first.attempt()
    assert (first.held, first.holder) == (False, "")
    await second.attempt()
    assert second.held
    await first.attempt()
    assert not first.held, "it does not even ask"
    assert api.objects[PATH]["spec"]["holderIdentity"] == "b"
