"""Which replica is active, and what the others answer."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kube import paths
from kube.client import KubeClient, UnreachableError
from kube.listwatch import Snapshot
from protocol.devices import encode_register
from protocol.names import CU_ALLOCATED, NODE_LOCK, NODE_REGISTER
from protocol.pods import annotations, node_name
from scheduler import app
from scheduler.app import Extender
from scheduler.binder import Binder
from scheduler.leader import Leader, LeaderSettings
from scheduler.nodelock import NodeLocks
from scheduler.openbinds import OpenBinds
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import BindArgs, FilterArgs
from tests.certs.fakes import FakeApi
from tests.protocol.makers import MI300X, container, pod_spec
from tests.scheduler.standin_api import StandInApi, now
from tests.scheduler.virtual_time import run

SPACE = "amd-vgpu"
OURS = paths.named(paths.leases(SPACE), "amd-vgpu-extender")
THEIRS = paths.named(paths.leases(SPACE), "amd-vgpu-scheduler")
POD = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "main"}]}}


class Told:
    """A leadership that the test gives and takes."""

    holder = "pod-b_1"

    def __init__(self) -> None:
        self.held = False
        self.given = asyncio.Event()

    def give(self) -> None:
        self.held = True
        self.given.set()

    async def wait_held(self) -> None:
        await self.given.wait()


def kube_scheduler_leads(api: FakeApi, holder: str) -> None:
    api.put(THEIRS, {"metadata": {"name": "amd-vgpu-scheduler"}, "spec": {"holderIdentity": holder}})


@asynccontextmanager
async def replica(api: FakeApi, hostname: str) -> AsyncIterator[Leader]:
    settings = LeaderSettings(namespace=SPACE, duration_seconds=1, hostname=hostname)
    leader = Leader(cast(KubeClient, api), settings)
    task = asyncio.create_task(leader.run())
    yield leader
    task.cancel()
    await asyncio.wait({task})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        # A Lease tells nobody that it was lost.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def held(leader: Leader) -> None:
    async with asyncio.timeout(5):
        await leader.wait_held()


async def test_without_kube_schedulers_lease_the_first_is_active() -> None:
    api = FakeApi()
    async with replica(api, "pod-a") as leader:
        await held(leader)
        assert leader.holder.startswith("pod-a_")


async def test_it_goes_where_the_leading_kube_scheduler_is() -> None:
    api = FakeApi()
    kube_scheduler_leads(api, "pod-a_1234")
    async with replica(api, "pod-a") as first, replica(api, "pod-ab") as second:
        await held(first)
        kube_scheduler_leads(api, "pod-ab_5678")
        await held(second)
        assert not first.held
        await until(lambda: first.holder == "")
        assert second.holder.startswith("pod-ab_")


async def test_it_stands_when_kube_schedulers_lease_was_given_back() -> None:
    api = FakeApi()
    kube_scheduler_leads(api, "")
    async with replica(api, "pod-a") as leader:
        await held(leader)


async def test_the_end_of_one_is_the_beginning_of_the_next() -> None:
    api = FakeApi()
    async with replica(api, "pod-a") as first:
        await held(first)
    assert api.objects[OURS]["spec"]["holderIdentity"] == ""
    assert not first.held


def test_a_lease_without_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="lease duration: 0: must be at least 1 second"):
        LeaderSettings(duration_seconds=0)


def extender(client: Any, leadership: Told) -> Extender:
    state = ClusterState()
    state.see_nodes(Snapshot(()))
    state.see_pods(Snapshot(()))
    state.see_quotas(Snapshot(()))
    locks = NodeLocks(client, state)
    binder = Binder(client, state, locks, policies=Policies(), wait_seconds=60, leadership=leadership)
    return Extender.of(state, binder, Policies(), time.monotonic, leadership)


BIND = BindArgs("default", "p", "u", "node-a")
FILTER = FilterArgs(POD, ("node-a",), None)


async def test_a_standby_says_that_it_is_one_and_who_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_ACTIVE_WITHIN", 0.01)
    standby = extender(FakeApi(), Told())
    words = "this replica of the extender is on standby; active is pod-b_1"
    answer = await standby.filter(FILTER)
    assert (answer["Error"], answer["NodeNames"]) == (words, None)
    assert await standby.bind(BIND) == {"Error": words}


async def test_a_standby_that_becomes_active_meanwhile_answers() -> None:
    told = Told()
    standby = extender(FakeApi(), told)
    asking = asyncio.create_task(standby.filter(FILTER))
    await asyncio.sleep(0)
    assert not asking.done()
    told.give()
    async with asyncio.timeout(5):
        assert (await asking)["NodeNames"] == ["node-a"]


class Silent:
    """An API server that never answers; it tells when it was asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def get(self, path: str) -> Any:
        self.asked.set()
        await self.answer.wait()
        raise UnreachableError(path)


async def test_at_the_end_a_bind_that_waits_is_sent_away_and_none_begins() -> None:
    api, told = Silent(), Told()
    told.give()
    ending = extender(api, told)
    binding = asyncio.create_task(ending.bind(BIND))
    async with asyncio.timeout(5):
        await api.asked.wait()
        await ending.binder.drain()
        words = {"Error": "this replica of the extender is ending; try again"}
        assert await binding == words
        assert await ending.bind(BIND) == words


async def test_the_end_waits_for_a_bind_that_has_its_node() -> None:
    binds, locked, finish = OpenBinds(), asyncio.Event(), asyncio.Event()

    async def bind() -> None:
        async with asyncio.timeout(60) as limit, binds.waiting(limit):
            limit.reschedule(None)
            binds.wait_no_more(limit)
            locked.set()
            await finish.wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(bind())
        await locked.wait()
        closing = tasks.create_task(binds.close())
        await asyncio.sleep(0)
        assert not closing.done()
        finish.set()


def test_one_that_loses_its_lease_while_it_binds_takes_everything_back() -> None:
    told = Told()
    told.give()
    recorded: list[str] = []

    def lose_when_recorded(api: StandInApi) -> None:
        for pod in api.pods():
            if CU_ALLOCATED in annotations(pod):
                recorded.append(node_name(pod))
                told.held = False

    async def scenario() -> tuple[StandInApi, dict[str, object]]:
        api = StandInApi(random.Random(3), lose_when_recorded)  # noqa: S311 - to be repeated
        register = {NODE_REGISTER: encode_register([MI300X])}
        api.put(paths.node("node-a"), {"metadata": {"name": "node-a", "annotations": register}})
        metadata = {"namespace": "default", "name": "p", "uid": "u", "creationTimestamp": now().isoformat()}
        api.put(paths.pod("default", "p"), {"metadata": metadata, "spec": pod_spec(container(gpu=1, gpucores=25))})
        return api, await extender(api, told).bind(BIND)

    api, answer = run(scenario())
    assert recorded, "it was far enough"
    assert answer == {"Error": "this replica of the extender is not active any more; pod-b_1 is"}
    pod = api.objects[paths.pod("default", "p")]
    assert node_name(pod) == ""
    assert annotations(pod) == {}
    assert NODE_LOCK not in annotations(api.objects[paths.node("node-a")])
