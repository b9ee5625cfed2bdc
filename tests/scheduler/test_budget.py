"""Quotas in force: whatever pods come, are promised room, are bound late or end, no quota is ever passed."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kube.listwatch import Change, Snapshot
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
from protocol.placement import Placement
from protocol.pods import PodRef
from scheduler import app
from scheduler.app import Extender
from scheduler.binder import Admit, Binder, BindError
from scheduler.quota import Cost, cost_of_pod
from scheduler.request import Policies, Request
from scheduler.reservations import BIND_WITHIN
from scheduler.state import ClusterState
from scheduler.wire import BindArgs, FilterArgs
from tests.protocol.makers import MI300X, container, pod, pod_spec

SMALL, LARGE = 64, 100
NODES = {"small": [SMALL] * 8, "large": [LARGE] * 8, "mixed": [SMALL] * 4 + [LARGE] * 4}
UNSEEN_AT_MOST = 30.0


def node(name: str, sizes: list[int]) -> dict[str, Any]:
    devices = [
        replace(MI300X, id=f"GPU-{name}-{index}", index=index, memory_mib=size, product=f"GPU {size}")
        for index, size in enumerate(sizes)
    ]
    return {"metadata": {"name": name, "annotations": {NODE_REGISTER: encode_register(devices)}}}


def quota(name: str, hard: dict[str, int], **spec: Any) -> dict[str, Any]:
    limits = {f"limits.amd.com/{key}": str(value) for key, value in hard.items()}
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"hard": limits, **spec}}


def waiting(name: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return pod(name, spec, annotations, node="", phase="Pending")


class StandInBinder:
    """Stands in for the binder, which speaks to the API server: asks whether it may, then places the pod."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.waiting: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, dict[str, Any]] = {}
        self.is_seen = True

    async def bind(self, args: BindArgs, admit: Admit) -> None:
        item = self.waiting[args.name]
        request = Request.of(item, Policies())
        refusal = admit(request)
        if refusal is not None:
            raise BindError(refusal.reason)
        placement = request.place(self.state.usages(args.node))
        assert isinstance(placement, Placement)
        self.bound[args.name] = pod(args.name, item["spec"], placement.annotations(), node=args.node)
        if self.is_seen:
            self.state.see_pods(Change("ADDED", self.bound[args.name]))


class World:
    """An extender on three nodes, and the quotas of one namespace."""

    def __init__(self, *quotas: dict[str, Any]) -> None:
        self.now = 0.0
        self.binder = StandInBinder()
        self.state = self.binder.state
        self.state.see_nodes(Snapshot(tuple(node(name, sizes) for name, sizes in NODES.items())))
        self.state.see_pods(Snapshot(()))
        self.state.see_quotas(Snapshot(quotas))
        binder = cast("Binder", self.binder)
        self.extender = Extender.of(self.state, binder, Policies(), lambda: self.now)

    async def filter(self, item: dict[str, Any]) -> dict[str, Any]:
        self.binder.waiting[item["metadata"]["name"]] = item
        return await self.extender.filter(FilterArgs(item, tuple(NODES), None))

    async def bind(self, name: str, node_name: str) -> str:
        answer = await self.extender.bind(BindArgs("default", name, f"uid-{name}", node_name))
        return str(answer["Error"])


@pytest.fixture(autouse=True)
def nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the watch nor other pods' promises: time passes only when a test says so."""
    monkeypatch.setattr(app, "_SEEN_SECONDS", 0)
    monkeypatch.setattr(app, "BIND_WITHIN", 0)


def test_hami_893_a_pod_over_quota_is_refused_on_every_node_with_the_numbers() -> None:
    world = World(quota("gpu-team", {"gpumem": 100}))
    first = waiting("first", pod_spec(container(gpu=2, gpumem=30, gpucores=10)))
    second = waiting("second", pod_spec(container(gpu=2, gpumem=21, gpucores=10)))

    async def both() -> dict[str, Any]:
        assert (await world.filter(first))["NodeNames"] == list(NODES)
        return await world.filter(second)

    answer = asyncio.run(both())
    reason = "quota gpu-team: limits.amd.com/gpumem: 60 of 100 MiB used, 42 asked"
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == dict.fromkeys(NODES, reason)


async def test_hami_2468_a_pod_that_takes_all_memory_is_refused_only_where_that_is_too_much() -> None:
    world = World(quota("gpu", {"gpumem": 70}))
    answer = await world.filter(waiting("whole", pod_spec(container(gpu=1))))
    assert answer["NodeNames"] == ["small"]
    assert answer["FailedNodes"]["mixed"] == "quota gpu: limits.amd.com/gpumem: 0 of 70 MiB used, 100 asked"
    choosy = waiting("choosy", pod_spec(container(gpu=1)), **{"amd.com/use-gputype": f"GPU {SMALL}"})
    world.extender.reservations.drop("uid-whole")
    assert (await world.filter(choosy))["NodeNames"] == ["small", "mixed"]


async def test_other_namespaces_and_finished_pods_take_nothing() -> None:
    world = World(quota("gpu", {"gpucores": 100}))
    spec = pod_spec(container(gpu=1, gpumem=1, gpucores=100))
    other = waiting("other", spec)
    other["metadata"]["namespace"] = "elsewhere"
    assert (await world.filter(other))["NodeNames"]
    assert (await world.filter(waiting("first", spec)))["NodeNames"]
    assert await world.bind("first", "small") == ""
    assert not (await world.filter(waiting("second", spec)))["NodeNames"]
    ended = {**world.binder.bound["first"], "status": {"phase": "Succeeded"}}
    world.state.see_pods(Change("MODIFIED", ended))
    assert (await world.filter(waiting("second", spec)))["NodeNames"]


async def test_a_quota_with_scopes_counts_its_own_pods_only() -> None:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    world = World(quota("high", {"gpucores": 100}, scopeSelector={"matchExpressions": [scope]}))
    spec = pod_spec(container(gpu=1, gpumem=1, gpucores=60))
    for name in ("a", "b"):
        assert (await world.filter(waiting(name, spec)))["NodeNames"]
    high = {**spec, "priorityClassName": "high"}
    assert (await world.filter(waiting("c", high)))["NodeNames"]
    assert (await world.filter(waiting("d", high)))["FailedNodes"]["small"] == (
        "quota high: limits.amd.com/gpucores: 60 of 100 % used, 60 asked"
    )


async def test_hami_2157_a_quota_that_is_raised_or_made_anew_with_other_scopes_is_in_force_at_once() -> None:
    world = World(quota("gpu", {"gpucores": 100}))
    spec = pod_spec(container(gpu=1, gpumem=1, gpucores=60))
    assert (await world.filter(waiting("first", spec)))["NodeNames"]
    assert await world.bind("first", "small") == ""
    second = waiting("second", spec)
    for changed, admitted in (
        (quota("gpu", {"gpucores": 119}), False),
        (quota("gpu", {"gpucores": 120}), True),
        (quota("gpu", {"gpucores": 60}, scopes=["Terminating"]), True),
        (quota("gpu", {"gpucores": 60}, scopes=["NotTerminating"]), False),
    ):
        world.state.see_quotas(Change("MODIFIED", changed))
        assert bool((await world.filter(second))["NodeNames"]) is admitted
        world.extender.reservations.drop("uid-second")
    world.state.see_quotas(Change("MODIFIED", quota("gpu", {"gpucores": 60}, scopes=["Terminating"])))
    ending = waiting("third", {**spec, "activeDeadlineSeconds": 60})
    assert (await world.filter(ending))["NodeNames"], "the first is not counted any more"


async def test_hami_2386_a_bind_that_comes_after_its_promise_ended_is_held_to_the_quota() -> None:
    world = World(quota("gpu", {"gpucores": 100}))
    spec = pod_spec(container(gpu=1, gpumem=1, gpucores=60))
    assert (await world.filter(waiting("late", spec)))["NodeNames"]
    world.now += BIND_WITHIN + 1
    assert (await world.filter(waiting("prompt", spec)))["NodeNames"]
    assert await world.bind("late", "small") == "quota gpu: limits.amd.com/gpucores: 60 of 100 % used, 60 asked"
    assert await world.bind("prompt", "small") == ""


SPECS = st.lists(
    st.one_of(
        st.builds(container, gpu=st.integers(1, 2), gpumem=st.integers(1, SMALL), gpucores=st.integers(3, 40)),
        st.builds(container, gpu=st.integers(1, 2), gpucores=st.integers(3, 40)),
    ),
    min_size=1,
    max_size=2,
).map(lambda bodies: pod_spec(*bodies))
NAMES = st.sampled_from(["p", "q", "r"])


class QuotaKept(RuleBasedStateMachine):
    """Everything that moves a namespace's usage, in any order."""

    @initialize(memory=st.integers(20, 200), cores=st.integers(20, 120))
    def begin(self, memory: int, cores: int) -> None:
        self.runner = asyncio.Runner()
        self.hard = Cost(memory, cores)
        self.world = World(quota("one", {"gpumem": memory}), quota("two", {"gpucores": cores}))
        self.offers: dict[str, list[str]] = {}
        self.unseen: dict[str, float] = {}

    @rule(name=NAMES, spec=SPECS)
    def ask(self, name: str, spec: dict[str, Any]) -> None:
        if name not in self.world.binder.bound:
            answer = self.runner.run(self.world.filter(waiting(name, spec)))
            self.offers[name] = answer["NodeNames"]

    @rule(name=NAMES, which=st.integers(0, 2), is_seen=st.booleans())
    def bind(self, name: str, which: int, is_seen: bool) -> None:
        nodes = self.offers.pop(name, [])
        if nodes:
            self.world.binder.is_seen = is_seen
            error = self.runner.run(self.world.bind(name, nodes[which % len(nodes)]))
            if not error and not is_seen:
                self.unseen[name] = self.world.now

    def teardown(self) -> None:
        self.runner.close()

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        item = self.world.binder.bound.pop(name, None)
        if item is not None:
            self.see(name, item)
            self.world.state.see_pods(Change("DELETED", item))

    @rule(seconds=st.sampled_from([BIND_WITHIN / 2, BIND_WITHIN + 1]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        for name, since in list(self.unseen.items()):
            if self.world.now - since > UNSEEN_AT_MOST:
                self.see(name, self.world.binder.bound[name])

    @rule(name=NAMES)
    def watch_catches_up(self, name: str) -> None:
        if name in self.unseen:
            self.see(name, self.world.binder.bound[name])

    def see(self, name: str, item: dict[str, Any]) -> None:
        self.unseen.pop(name, None)
        self.world.state.see_pods(Change("MODIFIED", item))

    @invariant()
    def no_quota_is_passed(self) -> None:
        bound = self.world.binder.bound
        costs = [cost_of_pod(item, LARGE) for item in bound.values()]
        held = {PodRef.of(item).uid for item in bound.values()}
        promised = self.world.extender.reservations.promised("default")
        costs += [promise.cost for promise in promised if promise.request.pod.uid not in held]
        assert sum(cost.memory_mib for cost in costs) <= self.hard.memory_mib
        assert sum(cost.cores_percent for cost in costs) <= self.hard.cores_percent


TestQuotaKept = QuotaKept.TestCase
TestQuotaKept.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
