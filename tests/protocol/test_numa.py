"""A pod's several GPUs: on one NUMA node where that can be, and never refused for it."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.demand import read_demand
from protocol.placement import Placement, numa_nodes, place
from protocol.policy import Policy
from protocol.usage import GpuUsage
from tests.protocol.makers import MI300X, container, pod_spec


def node(*gpus: tuple[int, int]) -> list[GpuUsage]:
    """GPUs by their NUMA node and how many of their CUs are held."""
    return [
        GpuUsage(replace(MI300X, id=f"GPU-{index}", index=index, numa=numa), cus=set(range(held)))
        for index, (numa, held) in enumerate(gpus)
    ]


def indexes(spec: dict[str, Any], usages: list[GpuUsage], policy: Policy = Policy.BINPACK) -> list[list[int]]:
    outcome = place(read_demand(spec), usages, policy)
    assert isinstance(outcome, Placement), outcome
    index = {usage.device.id: usage.device.index for usage in usages}
    return [[index[share.device_id] for share in segment] for segment in outcome.segments]


def gpus(count: int, cores: int = 30) -> dict[str, Any]:
    return container(gpu=count, gpucores=cores, gpumem=64)


def test_two_gpus_of_one_numa_node_are_taken_before_the_fullest_two() -> None:
    usages = node((0, 200), (0, 0), (1, 180), (1, 0))
    assert indexes(pod_spec(gpus(2)), usages) == [[0, 1]]


@pytest.mark.parametrize(
    ("policy", "expected"), [(Policy.BINPACK, [0, 1]), (Policy.SPREAD, [2, 3])], ids=["binpack", "spread"]
)
def test_among_numa_nodes_the_policy_decides(policy: Policy, expected: list[int]) -> None:
    assert indexes(pod_spec(gpus(2)), node((0, 80), (0, 40), (1, 0), (1, 0)), policy) == [expected]


def test_hami_1589_one_gpu_is_chosen_by_the_policy_alone() -> None:
    usages = node((0, 0), (0, 0), (1, 80))
    assert indexes(pod_spec(gpus(1)), usages) == [[2]]
    assert indexes(pod_spec(gpus(1)), usages, Policy.SPREAD) == [[0]]


def test_a_pod_that_fits_only_across_numa_nodes_goes_across_as_few_as_can_be() -> None:
    usages = node((0, 0), (1, 0), (1, 0), (2, 0), (2, 290))
    assert indexes(pod_spec(gpus(3)), usages) == [[0, 1, 2]]
    assert numa_nodes(read_demand(pod_spec(gpus(3))), usages, Policy.BINPACK) == 2


def test_the_next_containers_gpus_are_near_the_first_ones() -> None:
    spec = pod_spec(gpus(2, 60), gpus(1, 50))
    # The fullest GPU is on the other NUMA node.
    usages = node((0, 0), (0, 0), (0, 0), (1, 150))
    assert indexes(spec, usages) == [[0, 1], [2]]


def test_no_pod_is_refused_as_what_is_near_for_one_container_is_all_that_another_could_have() -> None:
    first = container("first", gpu=2, gpucores=50, gpumem=10)
    second = container("second", gpu=1, gpucores=40, gpumem=995)
    usages = node((0, 30), (1, 30), (1, 0))
    sizes = (100, 100, 1000)
    for usage, mib in zip(usages, sizes, strict=True):
        usage.device = replace(usage.device, memory_mib=mib)
    assert indexes(pod_spec(first), usages) == [[1, 2]]
    assert indexes(pod_spec(first, second), usages) == [[0, 1], [2]]


def test_gpus_that_do_not_say_where_they_are_count_as_together() -> None:
    usages = node((-1, 0), (-1, 80), (-1, 90))
    assert indexes(pod_spec(gpus(2)), usages) == [[1, 2]]
    assert numa_nodes(read_demand(pod_spec(gpus(2))), usages, Policy.BINPACK) == 1


def test_a_pod_that_does_not_fit_is_on_no_numa_node() -> None:
    assert numa_nodes(read_demand(pod_spec(gpus(2))), node((0, 0), (0, 304)), Policy.BINPACK) == 0
    assert numa_nodes(read_demand(pod_spec(gpus(1), gpus(2))), node((0, 0), (0, 304)), Policy.BINPACK) == 0


USAGES = st.lists(st.tuples(st.integers(-1, 2), st.sampled_from([0, 100, 200, 290])), min_size=1, max_size=8)


@given(rows=USAGES, count=st.integers(1, 4), policy=st.sampled_from(Policy))
def test_no_choice_spans_fewer_numa_nodes_and_none_is_refused_that_fits(
    rows: list[tuple[int, int]], count: int, policy: Policy
) -> None:
    usages = node(*rows)
    demands = read_demand(pod_spec(gpus(count)))
    fitting = [numa for numa, held in rows if 304 - held >= 91]
    fewest = min((len(set(numas)) for numas in combinations(fitting, count)), default=0)
    assert numa_nodes(demands, usages, policy) == fewest
    outcome = place(demands, usages, policy)
    assert isinstance(outcome, Placement) is (fewest > 0)
    if isinstance(outcome, Placement):
        assert len({usage.device.numa for usage in usages if usage.device.id in outcome.parts}) == fewest
