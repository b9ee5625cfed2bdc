"""Which nodes have room, and their scores."""

from collections.abc import Mapping
from dataclasses import replace

from protocol.policy import Policy
from protocol.usage import GpuUsage
from scheduler.fit import judge, score
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
    verdict = judge(asking(60, 8192), NODES, room)
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
    nodes = [NODES[name] for name in ("empty", "half", "full", "none")]
    assert [score(usages, Policy.BINPACK) for usages in nodes] == [0, 5, 10, 0]
    assert [score(usages, Policy.SPREAD) for usages in nodes] == [10, 5, 0, 0]


def test_a_load_beyond_the_gpu_is_still_a_score() -> None:
    over = {MI300X.id: GpuUsage(MI300X, memory_mib=10**9)}
    assert (score(over, Policy.BINPACK), score(over, Policy.SPREAD)) == (10, 0)
