"""Which nodes have room, and their scores."""

from collections.abc import Mapping
from dataclasses import replace

from protocol.policy import Policy
from protocol.usage import GpuUsage
from scheduler.fit import Fits, Scores
from scheduler.request import Policies, Request
from scheduler.reservations import Reservations
from tests.protocol.makers import MI300X, container, pod, pod_spec

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
    verdict = Fits(room).judge(asking(60, 8192), NODES)
    assert (verdict.fitting, verdict.open) == (["empty"], [])
    assert verdict.reasons(permanent=False) == {
        "half": "GPU compute units: 152 free, 182 asked",
        "full": "GPU memory: 0 MiB free, 8192 asked",
    }
    assert verdict.reasons(permanent=True) == {
        "none": "node has no registered AMD GPU",
        "small": "GPU memory: 1024 MiB in all, 8192 asked",
    }


def test_scores_follow_the_policy() -> None:
    scores = Scores(NODES.__getitem__)
    names = ("empty", "half", "full", "none")
    assert [scores.score(name, Policy.BINPACK) for name in names] == [0, 5, 10, 0]
    assert [scores.score(name, Policy.SPREAD) for name in names] == [10, 5, 0, 0]


def test_a_load_beyond_the_gpu_is_still_a_score_and_follows_the_usage() -> None:
    usages = {"a": {MI300X.id: GpuUsage(MI300X, memory_mib=10**9)}}
    scores = Scores(usages.__getitem__)
    assert (scores.score("a", Policy.BINPACK), scores.score("a", Policy.SPREAD)) == (10, 0)
    usages["a"] = {MI300X.id: GpuUsage(MI300X)}
    assert scores.score("a", Policy.BINPACK) == 0


def test_an_answer_is_remembered_until_the_nodes_usage_changes() -> None:
    usages: dict[str, dict[str, GpuUsage]] = {"a": {MI300X.id: GpuUsage(MI300X)}}
    fits = Fits(Reservations(usages.__getitem__, lambda _: False))
    assert fits.judge(asking(60, 64), ["a"]).fitting == ["a"]
    usages["a"] = {MI300X.id: GpuUsage(MI300X, cus=set(range(152)))}
    assert fits.judge(asking(60, 64), ["a"]).fitting == []
    assert fits.judge(asking(40, 64), ["a"]).fitting == ["a"]
