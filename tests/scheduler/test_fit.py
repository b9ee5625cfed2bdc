"""Which nodes have room, and their scores."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kube.listwatch import Change, Snapshot
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
from protocol.placement import Refusal
from protocol.policy import Policy
from protocol.usage import GpuUsage
from scheduler.fit import JUDGE_SECONDS, NOT_LOOKED_AT, Fits, Scores, less_queue
from scheduler.nominations import Nominations
from scheduler.request import Policies, Request
from scheduler.reservations import Reservations
from scheduler.state import ClusterState
from tests.protocol.makers import MI300X, container, pod, pod_spec

NOBODY_NOMINATED = Nominations(ClusterState(), Policies())
EMPTY = {MI300X.id: GpuUsage(MI300X)}
HALF = {MI300X.id: GpuUsage(MI300X, memory_mib=1024, cus=set(range(152)))}
FULL = {MI300X.id: GpuUsage(MI300X, memory_mib=196608, cus=set(range(304)))}
SMALL = replace(MI300X, memory_mib=1024)
NODES: Mapping[str, Mapping[str, GpuUsage]] = {
    "empty": EMPTY,
    "half": HALF,
    "full": FULL,
    "none": {},
    "small": {SMALL.id: GpuUsage(SMALL)},
}


def asking(cores: int, memory: int) -> Request:
    return Request.of(pod("p", pod_spec(container(gpu=1, gpumem=memory, gpucores=cores)), {}), Policies())


def test_every_refused_node_has_its_reason() -> None:
    room = Reservations(NODES.__getitem__, lambda _: False)
    verdict = Fits(room, NOBODY_NOMINATED).judge(asking(60, 8192), NODES)
    assert (verdict.fitting, verdict.open) == (["empty"], [])
    assert verdict.reasons(permanent=False) == {
        "half": "GPU compute units: 152 free, 182 asked",
        "full": "GPU memory: 0 MiB free, 8192 asked",
    }
    assert verdict.reasons(permanent=True) == {
        "none": "node has no registered AMD GPU",
        "small": "GPU memory: 1024 MiB in all, 8192 asked",
    }


def test_a_pod_that_takes_long_to_place_is_judged_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred containers on thousands of nodes would keep everybody else, and the Lease, waiting for minutes."""
    took, obstacle = 0.0, Request.obstacle

    def slow(request: Request, usages: Mapping[str, GpuUsage]) -> Refusal | None:
        nonlocal took
        took += JUDGE_SECONDS / 4
        return obstacle(request, usages)

    monkeypatch.setattr(Request, "obstacle", slow)
    nodes = {f"n{number}": FULL for number in range(12)} | {"last": EMPTY}
    fits = Fits(Reservations(nodes.__getitem__, lambda _: False), NOBODY_NOMINATED, lambda: took)
    verdicts = [fits.judge(asking(60, 8192), nodes) for _ in range(3)]
    assert [verdict.unfinished for verdict in verdicts] == [True, True, False]
    assert list(verdicts[0].refused.values()).count(NOT_LOOKED_AT) == len(nodes) - 5
    assert verdicts[-1].fitting == ["last"]
    assert took < 4 * JUDGE_SECONDS, "what was found is not looked for again"


def test_b2_one_node_that_cannot_be_read_stops_no_other() -> None:
    state = ClusterState()
    good = {NODE_REGISTER: encode_register([MI300X])}
    nodes = [(f"node-{number}", {NODE_REGISTER: "[{"} if number == 3 else good) for number in range(10)]
    state.see_nodes(Snapshot(tuple({"metadata": {"name": name, "annotations": notes}} for name, notes in nodes)))
    room = Reservations(state.usages, state.shows)
    verdict = Fits(room, NOBODY_NOMINATED).judge(asking(10, 64), [name for name, _ in nodes])
    assert verdict.fitting == [name for name, _ in nodes if name != "node-3"]
    assert verdict.reasons(permanent=True) == {"node-3": "node has no registered AMD GPU"}


def test_hami_2550_a_gpu_that_left_its_node_is_not_offered_any_more() -> None:
    state = ClusterState()
    fits = Fits(Reservations(state.usages, state.shows), NOBODY_NOMINATED)
    second = replace(MI300X, id="GPU-2", index=1)
    for devices, names in (([MI300X, second], ["a"]), ([second], []), ([], []), ([second, MI300X], ["a"])):
        item = {"metadata": {"name": "a", "annotations": {NODE_REGISTER: encode_register(devices)}}}
        state.see_nodes(Change("MODIFIED", item))
        assert fits.judge(wishing(Policy.BINPACK, 2), ["a"]).fitting == names


@pytest.mark.parametrize(
    ("usage", "asked", "is_permanent"),
    [
        (FULL, {"gpumem": 64, "gpucores": 3}, False),
        (HALF, {"gpumem": 64, "gpucores": 60}, False),
        (EMPTY, {"gpumem": MI300X.memory_mib + 1}, True),
        (FULL, {"gpu": 2}, True),
    ],
)
def test_kubernetes_92866_only_what_no_eviction_can_give_is_unresolvable(
    usage: dict[str, GpuUsage], asked: dict[str, Any], is_permanent: bool
) -> None:
    request = Request.of(pod("p", pod_spec(container(**{"gpu": 1, **asked})), {}), Policies())
    verdict = Fits(Reservations({"a": usage}.__getitem__, lambda _: False), NOBODY_NOMINATED).judge(request, ["a"])
    assert bool(verdict.reasons(permanent=True)) is is_permanent
    assert bool(verdict.reasons(permanent=False)) is not is_permanent


def test_kubernetes_92866_a_gpu_type_that_a_node_does_not_have_is_unresolvable() -> None:
    choosy = pod("p", pod_spec(container(gpu=1)), {"amd.com/use-gputype": "MI210"})
    room = Reservations(NODES.__getitem__, lambda _: False)
    verdict = Fits(room, NOBODY_NOMINATED).judge(Request.of(choosy, Policies()), ["full"])
    assert list(verdict.reasons(permanent=True)) == ["full"]


def wishing(policy: Policy, gpus: int = 1) -> Request:
    return Request.of(pod("p", pod_spec(container(gpu=gpus, gpumem=1, gpucores=3)), {}), Policies(node=policy))


def test_hami_1589_scores_follow_the_policy() -> None:
    scores = Scores(NODES.__getitem__)
    names = ("empty", "half", "full", "none")
    assert [scores.score(name, wishing(Policy.BINPACK)) for name in names] == [0, 5, 10, 0]
    assert [scores.score(name, wishing(Policy.SPREAD)) for name in names] == [10, 5, 0, 0]


def two_gpus(*numas: int, held: int = 0) -> dict[str, GpuUsage]:
    devices = [replace(MI300X, id=f"GPU-{index}", index=index, numa=numa) for index, numa in enumerate(numas)]
    return {device.id: GpuUsage(device, cus=set(range(held))) for device in devices}


def test_a_pod_of_several_gpus_scores_one_numa_node_above_any_load() -> None:
    usages = {"near": two_gpus(0, 0), "far": two_gpus(0, 1, held=200), "unknown": two_gpus(-1, -1)}
    scores = Scores(usages.__getitem__)
    assert [scores.score(name, wishing(Policy.BINPACK, 2)) for name in usages] == [6, 3, 6]
    assert [scores.score(name, wishing(Policy.SPREAD, 2)) for name in usages] == [10, 1, 10]
    # One GPU is on one NUMA node wherever it is.
    assert [scores.score(name, wishing(Policy.BINPACK)) for name in usages] == [0, 7, 0]
    # What was remembered goes with the usage: now only one GPU of the node has room.
    usages["near"] = {**two_gpus(0, 0, held=304), "GPU-0": usages["near"]["GPU-0"]}
    assert scores.score("near", wishing(Policy.BINPACK, 2)) == 2


def test_a_load_beyond_the_gpu_is_still_a_score_and_follows_the_usage() -> None:
    usages = {"a": {MI300X.id: GpuUsage(MI300X, memory_mib=10**9)}}
    scores = Scores(usages.__getitem__)
    assert (scores.score("a", wishing(Policy.BINPACK)), scores.score("a", wishing(Policy.SPREAD))) == (10, 0)
    usages["a"] = {MI300X.id: GpuUsage(MI300X)}
    assert scores.score("a", wishing(Policy.BINPACK)) == 0


def test_an_answer_is_remembered_until_the_nodes_usage_changes() -> None:
    usages: dict[str, dict[str, GpuUsage]] = {"a": {MI300X.id: GpuUsage(MI300X)}}
    fits = Fits(Reservations(usages.__getitem__, lambda _: False), NOBODY_NOMINATED)
    assert fits.judge(asking(60, 64), ["a"]).fitting == ["a"]
    usages["a"] = {MI300X.id: GpuUsage(MI300X, cus=set(range(152)))}
    assert fits.judge(asking(60, 64), ["a"]).fitting == []
    assert fits.judge(asking(40, 64), ["a"]).fitting == ["a"]


def test_b9_binds_that_wait_for_a_node_make_it_less_wanted() -> None:
    assert [less_queue(10, binds) for binds in (0, 1, 2, 5, 19, 50)] == [10, 10, 9, 8, 1, 0]


async def test_b9_only_pods_that_can_go_nowhere_else_wait_for_a_node() -> None:
    room = Reservations(NODES.__getitem__, lambda _: False)
    for number in range(4):
        request = Request.of(pod(f"p{number}", pod_spec(container(gpu=1, gpumem=1, gpucores=3)), {}), Policies())
        room.promise(request, frozenset({"empty", "half"}))
    assert room.decided() == {}
    for number in range(3):
        room.decide(f"uid-p{number}", "half")
    assert (room.decided(), room.counts()) == ({"half": 3}, {"open": 1, "decided": 3})
    room.drop("uid-p0")
    assert room.decided() == {"half": 2}
