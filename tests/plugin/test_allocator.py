import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kube.client import KubeClient
from plugin.allocate import Answer
from plugin.allocator import Allocator, UnavailableError
from plugin.holder import RefusedError
from plugin.inventory import Inventory
from plugin.settings import PluginSettings
from protocol.names import BIND_PHASE, DEVICES_ALLOCATED, DEVICES_TO_ALLOCATE, NODE_LOCK
from tests.plugin.made_pods import NODE, bound_pod, container, lock_for, path_of, segments_of, with_notes
from tests.plugin.standin_api import StandInApi

Json = dict[str, Any]

NODE_PATH = f"/api/v1/nodes/{NODE}"
SEVEN_CUS = '{"GPU-8e1bb56457addd1b":"0-6"}'


@pytest.fixture
def allocator(settings: PluginSettings, client: KubeClient, inventory: Inventory) -> Allocator:
    return Allocator(settings, client, inventory)


@pytest.fixture
def store(api: StandInApi) -> Callable[..., str]:
    """Put pods on the API server, the first of which holds the node's lock; return its path."""

    def put(pod: Json, *others: Json, lock: str | None = None) -> str:
        for item in (pod, *others):
            api.put(path_of(item), item)
        api.annotate(NODE_PATH, {NODE_LOCK: lock or lock_for(pod)})
        return path_of(pod)

    return put


def mask(answer: Answer) -> str:
    return answer.env["HSA_CU_MASK"]


async def refusal(allocator: Allocator, device_ids: Iterable[str] = ("d-0",)) -> str:
    with pytest.raises(RefusedError) as caught:
        await allocator.allocate(list(device_ids))
    return str(caught.value)


async def test_one_container(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main", mem=16384, cores=25)], inventory.snapshot))
    answer = await allocator.allocate(["GPU-8e1bb56457addd1b-3"])
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == "16384m"
    assert mask(answer) == "0:0-75"
    assert api.notes(path)[BIND_PHASE] == "success"
    assert api.notes(path)[DEVICES_TO_ALLOCATE] == ";"
    assert api.notes(path)[DEVICES_ALLOCATED] != ";"
    assert NODE_LOCK not in api.notes(NODE_PATH)


@pytest.mark.parametrize(("below_hip", "expected"), [(True, "1"), (False, None)])
async def test_memory_below_hip_counts_when_the_operator_says_so(
    settings: PluginSettings,
    client: KubeClient,
    inventory: Inventory,
    store: Callable[..., str],
    below_hip: bool,
    expected: str | None,
) -> None:
    store(bound_pod("one", [container("main", mem=16384, cores=25)], inventory.snapshot))
    answer = await Allocator(replace(settings, below_hip=below_hip), client, inventory).allocate(["x-0"])
    assert answer.env.get("AMVGPU_HSA") == expected
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == "16384m"


async def test_init_and_two_containers_in_order_and_the_lock_until_the_last(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    init = [container("prepare", mem=40000, cores=50), container("fetch", 0)]
    apps = [container("a", mem=1000, cores=25), container("side", 0), container("b", 2, mem=2000, cores=10)]
    path = store(bound_pod("many", apps, inventory.snapshot, init=init))
    locks, phases, left = [], [], []
    answers = []
    # The kubelet hands the init container's ids on to the containers after it.
    for ids in (["x-0"], ["x-0"], ["x-1", "x-2"]):
        answers.append(await allocator.allocate(ids))
        locks.append(NODE_LOCK in api.notes(NODE_PATH))
        phases.append(api.notes(path)[BIND_PHASE])
        left.append([bool(segment) for segment in api.notes(path)[DEVICES_TO_ALLOCATE].split(";")[:-1]])
    assert [answer.env["HIP_DEVICE_MEMORY_LIMIT"] for answer in answers] == ["40000m", "1000m", "2000m"]
    assert [len(answer.devices) for answer in answers] == [2, 2, 3]
    assert locks == [True, True, False]
    assert phases == ["allocating", "allocating", "success"]
    assert left == [
        [False, False, True, False, True],
        [False, False, False, False, True],
        [False] * 5,
    ]


async def test_segments_without_placeholders_are_understood(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    """HAMi 2.10 leaves out the segments of containers without GPUs."""
    apps = [container("none", 0), container("a", mem=1000, cores=25), container("b", mem=2000, cores=25)]
    pod = bound_pod("hami", apps, inventory.snapshot)
    short = pod["metadata"]["annotations"][DEVICES_TO_ALLOCATE].removeprefix(";")
    path = store(with_notes(pod, amd_devices_to_allocate=short, amd_devices_allocated=short))
    first = await allocator.allocate(["x-0"])
    assert api.notes(path)[BIND_PHASE] == "allocating"
    second = await allocator.allocate(["x-1"])
    limits = [answer.env["HIP_DEVICE_MEMORY_LIMIT"] for answer in (first, second)]
    assert limits == ["1000m", "2000m"]
    assert api.notes(path)[BIND_PHASE] == "success"


async def test_c8_a_call_with_another_number_of_devices_is_refused_and_does_not_harm_the_holder(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    """It is for a pod that came past the scheduler; the holder's own call is still to come."""
    path = store(bound_pod("two", [container("main", 2)], inventory.snapshot))
    assert await refusal(allocator) == ("pod default/two: container 'main' was given 2 GPUs, the kubelet asks for 1")
    assert api.notes(path)[BIND_PHASE] == "allocating"
    assert NODE_LOCK in api.notes(NODE_PATH)
    assert len((await allocator.allocate(["x-1", "x-2"])).devices) == 3
    assert api.notes(path)[BIND_PHASE] == "success"


async def test_cus_that_the_ledger_knows_are_not_given_whatever_annotations_say(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    first = bound_pod("first", [container("main", mem=1, cores=25)], inventory.snapshot)
    store(first)
    await allocator.allocate(["x-0"])
    api.annotate(path_of(first), {DEVICES_ALLOCATED: "garbage"})
    path = store(bound_pod("second", [container("main", mem=1, cores=25)], inventory.snapshot))
    device = segments_of(first)[0][0].device_id
    assert await refusal(allocator, ["x-1"]) == (
        f"pod default/second: CU 0 of GPU '{device}' was given to pod default/first, by the node's ledger"
    )
    assert api.notes(path)[BIND_PHASE] == "failed"


async def test_c8_only_the_lock_says_whose_turn_it_is(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    waiting = bound_pod("waiting", [container("main", 2, mem=1, cores=50)], inventory.snapshot)
    holder = bound_pod("holder", [container("main", mem=2, cores=25)], inventory.snapshot, others=[waiting])
    store(holder, waiting)
    answer = await allocator.allocate(["x-0"])
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == "2m"
    # The other one waits in every way, but does not hold the lock.
    message = await refusal(allocator, ["x-1", "x-2"])
    assert message == f"expected a pod in the lock hami.io/mutex.lock of node {NODE}: nobody holds it"
    assert api.notes(path_of(waiting))[BIND_PHASE] == "allocating"


@pytest.mark.parametrize("value", ["2026-12-01T10:00:05Z", "nonsense", ",,", "2026-12-01T10:00:05Z,default,a,b"])
async def test_c8_a_lock_that_names_nobody(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str], value: str
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot), lock=value)
    assert repr(value) in await refusal(allocator)
    assert api.notes(path)[BIND_PHASE] == "allocating"
    assert api.notes(NODE_PATH)[NODE_LOCK] == value


async def test_a_holder_that_does_not_exist_loses_the_lock(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot))
    del api.objects[path]
    assert "pod default/one, which holds the node's lock, does not exist" in await refusal(allocator)
    assert NODE_LOCK not in api.notes(NODE_PATH)


@pytest.mark.parametrize(
    ("change", "message", "phase", "locked"),
    [
        ({"spec": {"nodeName": "node-b"}}, "it is bound to node 'node-b'", "allocating", True),
        ({"spec": {"nodeName": None}}, "it is not bound yet", "allocating", True),
        ({"status": {"phase": "Failed"}}, "has ended", "allocating", False),
        ({"metadata": {"creationTimestamp": "2026-12-01T11:00:00Z"}}, "another pod of the name", "allocating", False),
        ({"metadata": {"annotations": {BIND_PHASE: "success"}}}, "is 'success', expected", "success", False),
        ({"metadata": {"annotations": {BIND_PHASE: None}}}, "is None, expected 'allocating'", "failed", False),
        ({"metadata": {"annotations": {DEVICES_ALLOCATED: None}}}, "it has no annotation", "failed", False),
        ({"metadata": {"annotations": {DEVICES_TO_ALLOCATE: None}}}, "has no allocation", "failed", False),
        ({"metadata": {"annotations": {DEVICES_ALLOCATED: "a,b,c"}}}, "must be <id>,<type>", "failed", False),
        ({"metadata": {"annotations": {DEVICES_TO_ALLOCATE: "x,y,1,1:;"}}}, "are not among those", "failed", False),
        ({"metadata": {"annotations": {DEVICES_TO_ALLOCATE: ";"}}}, "has its devices already", "allocating", False),
        ({"metadata": {"annotations": {"hami.io/amd-cu-allocated": "[" * 9999}}}, "not JSON", "failed", False),
        ({"metadata": {"annotations": {"hami.io/amd-cu-allocated": SEVEN_CUS}}}, "too few", "failed", False),
    ],
)
async def test_c8_a_holder_that_cannot_be_the_one(
    allocator: Allocator,
    api: StandInApi,
    inventory: Inventory,
    store: Callable[..., str],
    change: Json,
    message: str,
    phase: str,
    locked: bool,
) -> None:
    path = store(bound_pod("one", [container("main", cores=25)], inventory.snapshot))
    item = api.objects[path]
    for section, values in change.items():
        notes = values.pop("annotations", {})
        item[section].update(values)
        api.annotate(path, notes)
        item = api.objects[path]
    assert message in await refusal(allocator)
    assert api.notes(path)[BIND_PHASE] == phase
    assert (NODE_LOCK in api.notes(NODE_PATH)) is locked


async def test_clocks_may_differ_a_little(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot))
    api.objects[path]["metadata"]["creationTimestamp"] = "2026-12-01T10:00:30Z"
    assert mask(await allocator.allocate(["x-0"])) == "0:0-303"


async def test_cus_of_another_live_pod_are_refused(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    first = bound_pod("first", [container("main", mem=1, cores=25)], inventory.snapshot)
    second = bound_pod("second", [container("main", mem=1, cores=25)], inventory.snapshot)
    path = store(second, first)
    device = segments_of(first)[0][0].device_id
    assert await refusal(allocator) == (
        f"pod default/second: CU 0 of GPU '{device}' is held by pod default/first as well"
    )
    assert api.notes(path)[BIND_PHASE] == "failed"


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
async def test_cus_of_an_ended_pod_are_free(
    allocator: Allocator, inventory: Inventory, store: Callable[..., str], end: str
) -> None:
    first = bound_pod("first", [container("main", cores=25)], inventory.snapshot)
    first["status"]["phase"] = end
    store(bound_pod("second", [container("main", cores=25)], inventory.snapshot), first)
    assert mask(await allocator.allocate(["x-0"])) == "0:0-75"


async def test_one_bad_pod_does_not_stop_another(
    allocator: Allocator, inventory: Inventory, store: Callable[..., str]
) -> None:
    bad = bound_pod("bad", [container("main", cores=25)], inventory.snapshot)
    bad["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "cri://1"}]}
    store(
        bound_pod("good", [container("main", cores=25)], inventory.snapshot),
        with_notes(bad, amd_devices_allocated="\x00" * 50, amd_cu_allocated="garbage"),
    )
    assert mask(await allocator.allocate(["x-0"])) == "0:0-75"


async def test_a_pod_that_changes_meanwhile_is_read_again(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main", mem=5)], inventory.snapshot))
    api.before_patch.append(lambda changed: api.annotate(changed, {"example.com/note": "new"}))
    answer = await allocator.allocate(["x-0"])
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == "5m"
    assert api.notes(path)["example.com/note"] == "new"
    assert api.notes(path)[BIND_PHASE] == "success"
    assert api.patches().count(path) == 2


async def test_a_lost_race_is_lost(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    """Somebody else fails the pod between our reading and our writing."""
    path = store(bound_pod("one", [container("main")], inventory.snapshot))
    api.before_patch.append(lambda changed: api.annotate(changed, {BIND_PHASE: "failed"}))
    assert "is 'failed', expected 'allocating'" in await refusal(allocator)
    assert api.notes(path)[DEVICES_TO_ALLOCATE] != ";"


async def test_a_pod_deleted_meanwhile(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot))
    api.before_patch.append(api.objects.__delitem__)
    assert await refusal(allocator) == "pod default/one was deleted while it was served"
    assert path not in api.objects
    assert NODE_LOCK not in api.notes(NODE_PATH)


async def test_a_pod_replaced_meanwhile_by_another_of_its_name(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    pod = bound_pod("one", [container("main")], inventory.snapshot)
    path = store(pod)

    def replace_pod(changed: str) -> None:
        api.put(changed, {**pod, "metadata": {**pod["metadata"], "uid": "another"}})

    api.before_patch.append(replace_pod)
    assert "was replaced by another of its name" in await refusal(allocator)
    assert api.notes(path)[BIND_PHASE] == "allocating"


async def test_an_answer_lost_on_the_way_counts_once(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("two", [container("a", mem=1), container("b", mem=2)], inventory.snapshot))
    api.losing = 1
    answer = await allocator.allocate(["x-0"])
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == "1m"
    assert api.patches() == [path]
    api.losing = 1
    assert (await allocator.allocate(["x-1"])).env["HIP_DEVICE_MEMORY_LIMIT"] == "2m"
    assert api.notes(path)[BIND_PHASE] == "success"
    assert NODE_LOCK not in api.notes(NODE_PATH)


@pytest.mark.parametrize("trouble", [{"away": True}, {"refusing": 503}, {"refusing": 429}, {"refusing": 403}])
async def test_c5_an_api_server_that_comes_back_in_time(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str], trouble: Json
) -> None:
    store(bound_pod("one", [container("main", mem=5)], inventory.snapshot))
    for name, value in trouble.items():
        setattr(api, name, value)
    tried_twice = asyncio.Event()
    api.on_call = lambda *_: tried_twice.set() if len(api.calls) > 1 else None
    call = asyncio.create_task(allocator.allocate(["x-0"]))
    await asyncio.wait_for(tried_twice.wait(), 5)
    api.away, api.refusing = False, 0
    assert (await asyncio.wait_for(call, 5)).env["HIP_DEVICE_MEMORY_LIMIT"] == "5m"


async def test_c5_an_api_server_that_stays_away_does_not_block_the_kubelet(
    settings: PluginSettings, client: KubeClient, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    store(bound_pod("one", [container("main")], inventory.snapshot))
    api.refusing = 503
    allocator = Allocator(replace(settings, allocate_seconds=0.3), client, inventory)
    with pytest.raises(UnavailableError, match=r"not served within 0\.3 s: .*stand-in: Refused"):
        await asyncio.wait_for(allocator.allocate(["x-0"]), 3)


async def test_c5_a_served_pod_is_answered_even_when_its_lock_cannot_be_released(
    allocator: Allocator,
    api: StandInApi,
    inventory: Inventory,
    store: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plugin.nodelock._SETTLE_SECONDS", 0.2)
    path = store(bound_pod("one", [container("main", mem=5)], inventory.snapshot))

    def go_away(_: str, called: str) -> None:
        api.refusing = 503 if called == NODE_PATH and path in api.patches() else 0

    api.on_call = go_away
    assert (await allocator.allocate(["x-0"])).env["HIP_DEVICE_MEMORY_LIMIT"] == "5m"
    assert api.notes(path)[BIND_PHASE] == "success"
    assert NODE_LOCK in api.notes(NODE_PATH)


async def test_a_lock_that_is_another_pods_by_now_stays(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot))
    other = "2026-12-01T10:00:09Z,default,other"
    api.before_patch.append(lambda _: api.annotate(NODE_PATH, {NODE_LOCK: other}))
    await allocator.allocate(["x-0"])
    assert api.notes(path)[BIND_PHASE] == "success"
    assert api.notes(NODE_PATH)[NODE_LOCK] == other


async def test_the_release_survives_a_conflict_and_a_lost_answer(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot))

    def lose_next_answer(_: str) -> None:
        api.losing = 1

    api.before_patch += [
        lambda _: None,  # of the pod
        lambda _: api.annotate(NODE_PATH, {"example.com/heartbeat": "1"}),  # of the node: conflicts
        lose_next_answer,
    ]
    await allocator.allocate(["x-0"])
    assert api.patches() == [path, NODE_PATH, NODE_PATH]
    assert NODE_LOCK not in api.notes(NODE_PATH)


async def test_a_repeated_call_gets_the_same_answer(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(
        bound_pod("two", [container("a", 2, mem=1, cores=9), container("b", mem=2, cores=9)], inventory.snapshot)
    )
    first = await allocator.allocate(["x-0", "x-1"])
    assert await allocator.allocate(["x-1", "x-0"]) == first
    second = await allocator.allocate(["x-2"])
    assert second.env["HIP_DEVICE_MEMORY_LIMIT"] == "2m"
    # Everything is served and the lock is released by now.
    assert await allocator.allocate(["x-2"]) == second
    assert api.patches().count(path) == 2


async def test_a_repeated_call_gets_the_same_answer_from_the_next_process(
    allocator: Allocator,
    settings: PluginSettings,
    client: KubeClient,
    api: StandInApi,
    inventory: Inventory,
    store: Callable[..., str],
) -> None:
    """The plugin and the kubelet were both restarted: a node that was rebooted into a new version, say."""
    init = [container("prepare", mem=7, cores=50)]
    apps = [container("a", 2, mem=1, cores=9), container("b", mem=2, cores=9)]
    path = store(bound_pod("one", apps, inventory.snapshot, init=init))
    calls = (["x-0"], ["x-0", "x-1"], ["x-2"])
    first = [await allocator.allocate(ids) for ids in calls]
    restarted = Allocator(settings, client, inventory)
    assert [await restarted.allocate(ids) for ids in calls] == first
    assert api.patches().count(path) == 3


async def test_a_repeated_call_is_told_from_the_next_containers_by_the_next_process(
    allocator: Allocator, settings: PluginSettings, client: KubeClient, inventory: Inventory, store: Callable[..., str]
) -> None:
    """The kubelet hands an init container's ids on: with a container left the call is that one's."""
    init = [container("prepare", mem=7, cores=50)]
    store(bound_pod("one", [container("a", mem=1, cores=9)], inventory.snapshot, init=init))
    await allocator.allocate(["x-0"])
    restarted = Allocator(settings, client, inventory)
    assert (await restarted.allocate(["x-0"])).env["HIP_DEVICE_MEMORY_LIMIT"] == "1m"
    # Of two with the same devices it was the later one: the kubelet asks for the last that it does not know.
    assert (await restarted.allocate(["x-0"])).env["HIP_DEVICE_MEMORY_LIMIT"] == "1m"


async def test_a_repeated_call_whose_pod_says_something_else_by_now_is_refused(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    pod = bound_pod("one", [container("main", mem=1, cores=9)], inventory.snapshot)
    path = store(pod)
    await allocator.allocate(["x-0"])
    more = api.notes(path)[DEVICES_ALLOCATED].replace(",1,", ",9999,")
    api.annotate(path, {DEVICES_ALLOCATED: more})
    assert await refusal(allocator) == "expected a pod in the lock hami.io/mutex.lock of node node-a: nobody holds it"
    assert await refusal(allocator, ["x-0"]) == (
        "pod default/one: its annotations say something else than the node's ledger"
    )


async def test_a_call_that_may_repeat_either_of_two_is_refused(
    allocator: Allocator, inventory: Inventory, store: Callable[..., str]
) -> None:
    first = bound_pod("first", [container("main", mem=1, cores=25)], inventory.snapshot)
    store(first)
    await allocator.allocate(["x-0"])
    store(bound_pod("second", [container("main", mem=2, cores=25)], inventory.snapshot, others=[first]))
    await allocator.allocate(["x-0"])
    assert "nobody holds it" in await refusal(allocator, ["x-0"])


async def test_what_one_container_costs_the_api_server(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    path = store(bound_pod("one", [container("main", mem=1, cores=25)], inventory.snapshot))
    await allocator.allocate(["x-0"])
    assert sorted(api.calls[:2]) == [("GET", NODE_PATH), ("GET", "/api/v1/pods")]
    assert api.calls[2:] == [("PATCH", path), ("PATCH", NODE_PATH)]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"deletionTimestamp": "2026-12-01T10:01:00Z"}},
        {"status": {"phase": "Succeeded"}},
        {"metadata": {"uid": "another"}},
        {"status": {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "cri://1"}]}},
    ],
)
async def test_ids_of_a_container_that_has_run_are_no_repetition(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str], change: Json
) -> None:
    path = store(bound_pod("one", [container("main")], inventory.snapshot))
    await allocator.allocate(["x-0"])
    for section, values in change.items():
        api.objects[path][section].update(values)
    assert "nobody holds it" in await refusal(allocator, ["x-0"])


async def test_ids_that_another_pod_gets_later_are_no_repetition(
    allocator: Allocator, inventory: Inventory, store: Callable[..., str]
) -> None:
    first = bound_pod("first", [container("main", mem=1, cores=25)], inventory.snapshot)
    store(first)
    await allocator.allocate(["x-0"])
    store(bound_pod("second", [container("main", mem=2, cores=25)], inventory.snapshot, others=[first]))
    assert (await allocator.allocate(["x-0"])).env["HIP_DEVICE_MEMORY_LIMIT"] == "2m"


async def test_calls_are_answered_one_at_a_time(
    allocator: Allocator, api: StandInApi, inventory: Inventory, store: Callable[..., str]
) -> None:
    apps = [container(f"c{number}", mem=number + 1, cores=10) for number in range(4)]
    path = store(bound_pod("many", apps, inventory.snapshot))
    answers = await asyncio.gather(*(allocator.allocate([f"x-{number}"]) for number in range(4)))
    limits = {answer.env["HIP_DEVICE_MEMORY_LIMIT"] for answer in answers}
    assert limits == {"1m", "2m", "3m", "4m"}
    assert api.patches().count(path) == 4


async def test_a_gpu_that_vanished_meanwhile(
    allocator: Allocator, inventory: Inventory, store: Callable[..., str]
) -> None:
    store(bound_pod("one", [container("main")], inventory.snapshot))
    inventory.publish(replace(inventory.snapshot, gpus=inventory.snapshot.gpus[1:]))
    assert "is not on this node" in await refusal(allocator)
