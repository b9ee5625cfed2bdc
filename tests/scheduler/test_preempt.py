"""Whom a pod of higher priority displaces, through HTTP as kube-scheduler asks."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.client import KubeClient
from kube.listwatch import Change, Snapshot
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
from protocol.placement import Placement, Refusal
from protocol.pods import PodRef
from protocol.usage import GpuUsage
from scheduler.app import Extender, make_app
from scheduler.binder import Binder
from scheduler.fit import JUDGE_SECONDS
from scheduler.nodelock import NodeLocks
from scheduler.nominations import Nominations
from scheduler.preempt import Preemption
from scheduler.request import Policies, Request
from scheduler.reservations import Reservations
from scheduler.state import ClusterState
from scheduler.wire import FilterArgs, PreemptArgs, Victims
from tests.protocol.makers import MI210, MI300X, container, pod, pod_spec

Json = dict[str, Any]
Client = TestClient[Any, Any]
FIRST, SECOND = MI300X.id, "GPU-0000000000000002"
DEVICES = (MI300X, replace(MI300X, id=SECOND, index=1))
NODE = "node-a"


def tenant(name: str, gpu: str, cores: int, priority: int, *, used: Iterable[Json] = (), **more: Any) -> Json:
    """A pod that runs on one GPU of the node beside others; its CUs are counted in `used` before."""
    taken = sum(304 * one["cores"] // 100 for one in used if one["gpu"] == gpu)
    count = 304 * cores // 100
    notes = {
        "hami.io/amd-devices-allocated": f"{gpu},AMD Instinct MI300X VF,64,{count}:;",
        "hami.io/amd-cu-allocated": f'{{"{gpu}":"{taken}-{taken + count - 1}"}}',
    }
    spec = {**pod_spec(container(gpu=1, gpumem=64, gpucores=cores)), "priority": priority, **more.pop("spec", {})}
    item = pod(name, spec, notes, node=NODE)
    return {**item, "gpu": gpu, "cores": cores, "status": {"phase": "Running", **more}}


def tenants(*rows: tuple[str, str, int, int]) -> list[Json]:
    found: list[Json] = []
    for name, gpu, cores, priority in rows:
        found.append(tenant(name, gpu, cores, priority, used=found))
    return found


def wanting(priority: int, cpu: str = "", **limits: Any) -> Json:
    body = container(**limits)
    if cpu:
        body["resources"]["requests"] = {"cpu": cpu}
    return {
        "metadata": {"name": "high", "namespace": "default", "uid": "uid-high"},
        "spec": {**pod_spec(body), "priority": priority},
    }


def cluster(pods: Iterable[Json]) -> ClusterState:
    state = ClusterState()
    register = {NODE_REGISTER: encode_register(DEVICES)}
    small = {NODE_REGISTER: encode_register([MI210])}
    nodes = [(NODE, register), ("node-b", register), ("small", small), ("none", {})]
    state.see_nodes(Snapshot(tuple({"metadata": {"name": name, "annotations": notes}} for name, notes in nodes)))
    state.see_pods(Snapshot(tuple(pods)))
    state.see_quotas(Snapshot(()))
    return state


class World:
    """An extender and the pods that it knows of."""

    def __init__(self) -> None:
        self.state = cluster(())
        unused = KubeClient(None, timeout=1)
        binder = Binder(unused, self.state, NodeLocks(unused, self.state), policies=Policies(), wait_seconds=1)
        self.extender = Extender.of(self.state, binder, Policies(), time.monotonic)

    def run(self, pods: Iterable[Json]) -> None:
        self.state.see_pods(Snapshot(tuple(pods)))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(world.extender))) as client:
        yield client


async def post(client: Client, body: object) -> dict[str, Any]:
    response = await client.post("/preempt", json=body)
    assert response.status == 200
    answer: dict[str, Any] = (await response.json())["NodeNameToMetaVictims"]
    return answer


async def ask(client: Client, pod: Json, *named: str, violations: int = 0) -> list[str] | None:
    """Return the victims on the node, or None when it is none; kube-scheduler named some of them."""
    victims = {"Pods": [{"UID": f"uid-{name}"} for name in named], "NumPDBViolations": violations}
    answer = await post(client, {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": {NODE: victims}})
    if NODE not in answer:
        return None
    return [one["UID"].removeprefix("uid-") for one in answer[NODE]["Pods"]]


async def test_hami_1494_a_pod_on_the_needed_gpu_goes_and_none_on_another(world: World, client: Client) -> None:
    world.run(tenants(("other", FIRST, 60, 0), ("holder", SECOND, 100, 0)))
    choosy = wanting(10, gpu=1, gpumem=1, gpucores=60)
    choosy["metadata"]["annotations"] = {"amd.com/use-gpu-uuid": SECOND}
    assert await ask(client, choosy) == ["holder"]
    assert await ask(client, choosy, "other") == ["holder"], "its slot is free with the other's end as well"


async def test_the_lowest_priority_goes_and_no_more_than_needed(world: World, client: Client) -> None:
    world.run(tenants(("mid", FIRST, 40, 5), ("low", FIRST, 40, 1), ("much", SECOND, 80, 6)))
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=50)) == ["low"]
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=70)) == ["mid", "low"]
    assert await ask(client, wanting(10, gpu=2, gpumem=1, gpucores=50)) == ["much", "low"]


async def test_nodes_that_would_take_too_long_are_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is answered meanwhile, and the Lease is not renewed."""
    world.run([*tenants(("low", FIRST, 100, 1), ("next", SECOND, 100, 1))])
    took, obstacle = 0.0, Request.obstacle

    def slow(request: Request, usages: Mapping[str, GpuUsage]) -> Refusal | None:
        nonlocal took
        took += JUDGE_SECONDS
        return obstacle(request, usages)

    monkeypatch.setattr(Request, "obstacle", slow)
    preemption = Preemption(
        world.state, world.extender.reservations, Nominations(world.state, Policies()), lambda: took
    )
    victims = dict.fromkeys([NODE, *(f"other-{number}" for number in range(100))], Victims(()))
    request = Request.of(wanting(10, gpu=1, gpumem=1, gpucores=50), Policies())
    assert set(preemption.victims(request, PreemptArgs({}, victims))) == {NODE}
    assert took < 10 * JUDGE_SECONDS


async def test_pods_of_the_same_or_higher_priority_stay(world: World, client: Client) -> None:
    world.run(tenants(("same", FIRST, 100, 10), ("above", SECOND, 100, 11)))
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=5)) is None


async def test_of_equals_the_one_that_has_run_for_longer_stays(world: World, client: Client) -> None:
    old, new = tenants(("old", FIRST, 50, 0), ("new", FIRST, 50, 0))
    old["status"]["startTime"], new["status"]["startTime"] = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    for order in ([old, new], [new, old]):
        world.run([*order, tenant("rest", SECOND, 100, 20)])
        assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=50)) == ["new"]


async def test_a_pod_that_is_ending_anyway_goes_first(world: World, client: Client) -> None:
    ending, running = tenants(("ending", FIRST, 50, 5), ("running", FIRST, 50, 0))
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.run([ending, running, tenant("rest", SECOND, 100, 20)])
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=50)) == ["ending"]


async def test_a_node_where_no_eviction_helps_is_dropped(world: World, client: Client) -> None:
    world.run(tenants(("low", FIRST, 100, 0), ("high", SECOND, 100, 50)))
    nodes: Json = {name: {"Pods": []} for name in (NODE, "small", "none", "unknown")}
    body = {"Pod": wanting(10, gpu=2, gpumem=1, gpucores=10), "NodeNameToMetaVictims": nodes}
    assert await post(client, body) == {}


async def test_when_a_node_has_room_by_now_nobody_is_evicted_anywhere(world: World, client: Client) -> None:
    world.run(tenants(("low", FIRST, 100, 0), ("low2", SECOND, 100, 0)))
    nodes: Json = {NODE: {"Pods": []}, "node-b": {"Pods": []}}
    body = {"Pod": wanting(10, gpu=1, gpumem=1, gpucores=10), "NodeNameToMetaVictims": nodes}
    assert await post(client, body) == {}


async def test_victims_for_other_resources_stay_named(world: World, client: Client) -> None:
    world.run([tenant("gpu", FIRST, 100, 0), tenant("rest", SECOND, 100, 20)])
    high = wanting(10, cpu="2", gpu=1, gpumem=1, gpucores=10)
    assert await ask(client, high, "cpu-hog") == ["gpu", "cpu-hog"]
    # With room on the GPU the victim is the one for the cpu alone.
    world.run([tenant("rest", SECOND, 100, 20)])
    assert await ask(client, high, "cpu-hog") == ["cpu-hog"]


async def test_a_named_gpu_pod_is_spared_only_if_the_others_free_as_much_cpu(world: World, client: Client) -> None:
    def with_cpu(name: str, gpu: str, cpu: str) -> Json:
        item = tenant(name, gpu, 100, 0)
        item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, "amd.com/gpu": "1"}
        return item

    high = wanting(10, cpu="2", gpu=1, gpumem=1, gpucores=10)
    high["metadata"]["annotations"] = {"amd.com/use-gpu-uuid": SECOND}
    for cpu, expected in (("1", ["named", "holder"]), ("2", ["holder"]), ("2500m", ["holder"])):
        world.run([with_cpu("named", FIRST, "2"), with_cpu("holder", SECOND, cpu)])
        assert await ask(client, high, "named") == expected, cpu


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"topologySpreadConstraints": [{}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"initContainers": [{"name": "web", "ports": [{"hostPort": 80}]}]},
    ],
)
async def test_a_named_gpu_pod_stays_named_where_more_than_resources_may_be_the_reason(
    world: World, client: Client, spec: Json
) -> None:
    world.run(tenants(("named", FIRST, 100, 0), ("holder", SECOND, 100, 0)))
    high = wanting(10, gpu=1, gpumem=1, gpucores=60)
    high["metadata"]["annotations"] = {"amd.com/use-gpu-uuid": SECOND}
    assert await ask(client, high, "named") == ["holder"]
    high["spec"].update(spec)
    assert await ask(client, high, "named") == ["named", "holder"]


async def test_a_pod_without_gpus_gets_its_victims_back_unchanged(world: World, client: Client) -> None:
    world.run(tenants(("low", FIRST, 100, 0)))
    assert await ask(client, wanting(10), "low", "cpu-hog") == ["low", "cpu-hog"]
    plain: Json = {"metadata": {}, "spec": pod_spec({"name": "main"})}
    nodes = {"node-b": {"Pods": [{"UID": "x"}], "NumPDBViolations": 1}}
    assert await post(client, {"Pod": plain, "NodeNameToMetaVictims": nodes}) == nodes


async def test_violated_budgets_stay_counted_as_far_as_their_pods_go(world: World, client: Client) -> None:
    world.run(tenants(("low", FIRST, 100, 0), ("rest", SECOND, 100, 20)))
    high = wanting(10, cpu="1", gpu=1, gpumem=1, gpucores=10)
    for named, counted in ((["low", "cpu-hog"], 2), (["cpu-hog"], 1)):
        victims = {"Pods": [{"UID": f"uid-{name}"} for name in named], "NumPDBViolations": 2}
        answer = await post(client, {"Pod": high, "NodeNameToMetaVictims": {NODE: victims}})
        assert answer[NODE]["NumPDBViolations"] == counted


async def test_whole_pods_are_read_too_and_answered_by_uid(world: World, client: Client) -> None:
    low, rest = tenants(("low", FIRST, 100, 0), ("rest", SECOND, 100, 20))
    world.run([low, rest])
    high = wanting(10, gpu=1, gpumem=1, gpucores=10)
    body = {"Pod": high, "NodeNameToVictims": {NODE: {"Pods": [low], "NumPDBViolations": 0}}}
    assert await post(client, body) == {NODE: {"Pods": [{"UID": "uid-low"}], "NumPDBViolations": 0}}


async def test_b8_a_pod_that_does_not_say_what_it_holds_can_be_a_victim(world: World, client: Client) -> None:
    low = tenant("low", FIRST, 10, 0)
    low["metadata"]["annotations"] = {}
    world.run([low, *tenants(("a", FIRST, 50, 20), ("b", SECOND, 50, 20))])
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=50)) == ["low"]


async def test_room_that_is_promised_to_a_pod_being_bound_is_taken(world: World, client: Client) -> None:
    world.run(tenants(("low", FIRST, 50, 0), ("rest", SECOND, 100, 20)))
    bound = Request.of(pod("bound", pod_spec(container(gpu=1, gpumem=1, gpucores=50)), {}), Policies())
    world.extender.reservations.promise(bound, frozenset({NODE}))
    world.extender.reservations.decide("uid-bound", NODE)
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=50)) == ["low"]
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=60)) is None


async def filtered(world: World, pod: Json) -> list[str]:
    answer = await world.extender.filter(FilterArgs(pod, (NODE,), None))
    return cast("list[str]", answer["NodeNames"])


def nominated(priority: int, cores: int) -> Json:
    return {**wanting(priority, gpu=2, gpumem=1, gpucores=cores), "status": {"nominatedNodeName": NODE}}


def named(name: str, pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "name": name, "uid": f"uid-{name}"}}


@pytest.mark.parametrize(("priority", "fits"), [(0, False), (10, False), (11, True)])
async def test_room_that_others_are_evicted_for_goes_to_no_pod_of_the_same_or_lower_priority(
    world: World, priority: int, fits: bool
) -> None:
    waiting = nominated(10, 60)
    world.state.see_pods(Change("MODIFIED", waiting))
    other = named("other", wanting(priority, gpu=1, gpumem=1, gpucores=60))
    assert bool(await filtered(world, other)) is fits
    world.extender.reservations.drop("uid-other")
    assert await filtered(world, named("small", wanting(0, gpu=1, gpumem=1, gpucores=40))), "what is left is anybody's"
    world.extender.reservations.drop("uid-small")
    assert await filtered(world, waiting), "its own room is not in its way"


async def test_of_two_nominated_pods_for_one_place_the_older_goes_first(world: World) -> None:
    pods = [named(name, nominated(10, 100)) for name in ("b", "a", "c")]
    for one, day in zip(pods, (1, 2, 2), strict=True):
        one["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    world.state.see_pods(Snapshot(tuple(pods)))
    for first in pods:
        for other in pods[pods.index(first) + 1 :]:
            assert not await filtered(world, other)
        assert await filtered(world, first)
        world.extender.reservations.drop(PodRef.of(first).uid)
        world.state.see_pods(Change("DELETED", first))


async def test_two_nominated_pods_have_room_of_their_own_each(world: World) -> None:
    world.state.see_pods(Snapshot((named("a", nominated(10, 50)), named("b", nominated(10, 45)))))
    assert not await filtered(world, named("other", wanting(0, gpu=1, gpumem=1, gpucores=10)))
    assert await filtered(world, named("small", wanting(0, gpu=1, gpumem=1, gpucores=5)))


@pytest.mark.parametrize("memory", [64, MI300X.memory_mib])
async def test_what_was_free_beside_the_victims_is_kept_for_the_pod_too(world: World, memory: int) -> None:
    ending, *others = tenants(("ending", FIRST, 60, 0), ("rest", SECOND, 100, 20))
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    waiting = {**wanting(10, gpu=1, gpumem=memory, gpucores=100), "status": {"nominatedNodeName": NODE}}
    world.state.see_pods(Snapshot((ending, *others, waiting)))
    other = named("other", wanting(0, gpu=1, gpumem=1, gpucores=40))
    assert not await filtered(world, other)
    assert await filtered(world, named("above", wanting(11, gpu=1, gpumem=1, gpucores=40)))
    world.extender.reservations.drop("uid-above")
    world.state.see_pods(Change("DELETED", ending))
    assert not await filtered(world, other)
    assert await filtered(world, waiting)


async def test_a_nominated_pod_that_no_ending_pod_makes_room_for_holds_nothing(world: World) -> None:
    """Kubernetes that asks no extender nominates without evicting."""
    waiting = {**wanting(10, gpu=1, gpumem=1, gpucores=100), "status": {"nominatedNodeName": NODE}}
    world.state.see_pods(Snapshot((*tenants(("a", FIRST, 60, 0), ("b", SECOND, 60, 0)), waiting)))
    assert await filtered(world, named("other", wanting(0, gpu=1, gpumem=1, gpucores=40)))


@pytest.mark.parametrize("end", ["bound", "deleted", "finished", "no longer nominated"])
async def test_a_nomination_ends_with_its_pod_or_when_it_is_bound(world: World, end: str) -> None:
    waiting = nominated(10, 100)
    world.state.see_pods(Snapshot((waiting,)))
    other = named("other", wanting(0, gpu=1, gpumem=1, gpucores=3))
    assert not await filtered(world, other)
    states: dict[str, Change] = {
        "bound": Change("MODIFIED", named("high", tenant("high", FIRST, 50, 10))),
        "deleted": Change("DELETED", waiting),
        "finished": Change("MODIFIED", {**waiting, "status": {**waiting["status"], "phase": "Failed"}}),
        "no longer nominated": Change("MODIFIED", {**waiting, "status": {}}),
    }
    world.state.see_pods(states[end])
    assert await filtered(world, other)


async def test_a_nominated_pod_that_was_promised_its_room_counts_once(world: World) -> None:
    waiting = nominated(10, 50)
    world.state.see_pods(Snapshot((waiting,)))
    assert await filtered(world, waiting)
    assert await filtered(world, named("other", wanting(0, gpu=2, gpumem=1, gpucores=50)))


async def test_a_nominated_pod_that_cannot_be_read_stops_nobody(world: World) -> None:
    odd = {**wanting(10, gpu=1, gpucores=150), "status": {"nominatedNodeName": NODE}}
    world.state.see_pods(Snapshot((odd,)))
    assert await filtered(world, named("other", wanting(0, gpu=2, gpumem=1, gpucores=100)))


async def test_nobody_is_evicted_for_room_that_a_nominated_pod_waits_for(world: World, client: Client) -> None:
    waiting = named("first", nominated(20, 60))
    world.run([waiting, *tenants(("a", FIRST, 40, 0), ("b", SECOND, 40, 0))])
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=60)) is None
    assert await ask(client, wanting(10, gpu=1, gpumem=1, gpucores=40)) == ["b"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"Pod":1}', b'{"Pod":{},"NodeNameToMetaVictims":[]}', b'{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{}]}}}', b'{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":{"x":1}}}}'])  # fmt: skip  # noqa: E501
async def test_hami_2689_a_body_that_is_none_evicts_nobody(client: Client, body: bytes) -> None:
    response = await client.post("/preempt", data=body)
    assert (response.status, await response.json()) == (200, {"NodeNameToMetaVictims": {}})


async def test_a_pod_that_asks_for_the_impossible_evicts_nobody(world: World, client: Client) -> None:
    world.run(tenants(("low", FIRST, 100, 0)))
    assert await ask(client, wanting(10, gpu=1, gpucores=150), "low") is None


ROWS = st.lists(
    st.tuples(st.sampled_from([FIRST, SECOND]), st.sampled_from([5, 10, 25, 40]), st.integers(0, 12)), max_size=8
)


@settings(deadline=None, max_examples=150)
@given(
    rows=ROWS,
    named=st.sets(st.integers(0, 7)),
    gpus=st.integers(1, 2),
    cores=st.sampled_from([5, 30, 60, 100]),
)
def test_victims_make_room_and_none_of_them_in_vain(
    rows: list[tuple[str, int, int]], named: set[int], gpus: int, cores: int
) -> None:
    pods: list[Json] = []
    for number, (gpu, share, priority) in enumerate(rows):
        if sum(one["cores"] for one in pods if one["gpu"] == gpu) + share <= 100:
            pods.append(tenant(f"pod-{number}", gpu, share, priority, used=pods))
    state = cluster(pods)
    high = wanting(10, gpu=gpus, gpumem=1, gpucores=cores)
    request = Request.of(high, Policies())
    by_uid = {one["metadata"]["uid"]: one for one in pods}
    chosen_before = tuple(
        uid for number in named if by_uid.get(uid := f"uid-pod-{number}", high)["spec"]["priority"] < 10
    )
    preemption = Preemption(state, Reservations(state.usages, state.shows), Nominations(state, Policies()))
    answer = preemption.victims(request, PreemptArgs(high, {NODE: Victims(chosen_before)}))

    def fits_without(uids: Iterable[str]) -> bool:
        return isinstance(request.place(state.usages_without(NODE, list(uids))), Placement)

    lower = [uid for uid, one in by_uid.items() if one["spec"]["priority"] < 10]
    if NODE not in answer:
        assert fits_without(()) or not fits_without(lower)
        return
    victims = answer[NODE].uids
    assert victims
    assert set(victims) <= set(lower)
    assert fits_without(victims)
    for spared in victims:
        rest = [uid for uid in victims if uid != spared]
        for_a_slot = spared in chosen_before and len(rest) < min(gpus, len(chosen_before))
        assert for_a_slot or not fits_without(rest)
