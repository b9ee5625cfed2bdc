"""What a ResourceQuota says, whom it counts, and what a pod costs."""

from typing import Any

import pytest

from protocol.demand import read_demand
from protocol.placement import Placement, place
from protocol.policy import Policy
from protocol.usage import node_usage
from scheduler.quota import Cost, Quota, ScopeFacts, cost_asked, cost_of_pod, read_quota
from tests.protocol.makers import MI210, MI300X, container, pod, pod_spec, sidecar


def quota(hard: dict[str, str], **spec: Any) -> Quota | None:
    return read_quota({"metadata": {"namespace": "team", "name": "gpu"}, "spec": {"hard": hard, **spec}})


def counted(pod: dict[str, Any], **spec: Any) -> bool:
    found = quota({"limits.amd.com/gpumem": "1"}, **spec)
    assert found is not None
    return found.counts(ScopeFacts.of(pod))


@pytest.mark.parametrize("prefix", ["limits.", "requests.", ""])
def test_hami_1393_every_spelling_of_a_key_is_read(prefix: str) -> None:
    found = quota({f"{prefix}amd.com/gpumem": "32k", f"{prefix}amd.com/gpucores": "150", "pods": "3"})
    assert found is not None
    assert found.hard == {f"{prefix}amd.com/gpumem": 32000, f"{prefix}amd.com/gpucores": 150}


def test_a_quota_over_other_things_is_none_of_ours() -> None:
    assert quota({"limits.cpu": "3", "requests.amd.com/gpu": "4"}) is None


def test_a_number_that_is_none_counts_for_nothing_and_the_others_stay() -> None:
    found = quota({"limits.amd.com/gpumem": "much", "limits.amd.com/gpucores": "100"})
    assert found is not None
    assert found.hard == {"limits.amd.com/gpucores": 100}


def test_the_reason_has_the_numbers() -> None:
    found = quota({"limits.amd.com/gpumem": "32768", "requests.amd.com/gpucores": "200"})
    assert found is not None
    assert found.excess(Cost(24576, 0), Cost(8192, 100)) == ""
    assert found.excess(Cost(24576, 0), Cost(16384, 100)) == (
        "quota gpu: limits.amd.com/gpumem: 24576 of 32768 MiB used, 16384 asked"
    )
    assert found.excess(Cost(0, 150), Cost(1, 51)) == (
        "quota gpu: requests.amd.com/gpucores: 150 of 200 % used, 51 asked"
    )


def test_hami_2313_an_explicit_zero_admits_nothing() -> None:
    found = quota({"limits.amd.com/gpumem": "0"})
    assert found is not None
    assert found.excess(Cost(), Cost(1, 1)) == "quota gpu: limits.amd.com/gpumem: 0 of 0 MiB used, 1 asked"


@pytest.mark.parametrize(
    ("spec", "cost"),
    [
        (pod_spec(container(gpu=2, gpumem=1000, gpucores=30)), Cost(2000, 60)),
        (pod_spec(container(gpumem=1000, gpucores=30), container(gpu=3, gpumem=10, gpucores=5)), Cost(1030, 45)),
        (pod_spec(container(gpu=2)), Cost(2 * 65520, 200)),
        (pod_spec(container(gpucores=10)), Cost(65520, 10)),
        (pod_spec(container()), Cost(0, 0)),
    ],
)
def test_hami_893_2468_a_pod_costs_its_share_times_its_gpus_and_what_it_leaves_out_is_all(
    spec: dict[str, Any], cost: Cost
) -> None:
    assert cost_asked(read_demand(spec), MI210.memory_mib) == cost


def test_hami_1942_init_containers_cost_only_what_the_containers_do_not() -> None:
    spec = pod_spec(
        container(gpumem=100, gpucores=10),
        container(gpumem=100, gpucores=10),
        inits=(container(gpumem=300, gpucores=5), sidecar(container(gpumem=7, gpucores=3))),
    )
    assert cost_asked(read_demand(spec), 0) == Cost(300 + 7, 20 + 3)


def test_a_running_pod_costs_what_it_holds() -> None:
    spec = pod_spec(container(gpu=1, gpucores=12))
    usages, _ = node_usage([MI210], ())
    placement = place(read_demand(spec), usages.values(), Policy.BINPACK)
    assert isinstance(placement, Placement)
    running = pod("p", spec, placement.annotations())
    assert cost_of_pod(running, MI300X.memory_mib) == Cost(MI210.memory_mib, 12)


def test_b8_a_pod_that_does_not_say_what_it_holds_costs_all_that_it_may_hold() -> None:
    silent = pod("p", pod_spec(container(gpu=2, gpucores=12)), {"hami.io/amd-devices-allocated": "x"})
    assert cost_of_pod(silent, 1000) == Cost(2000, 24)


def test_annotations_of_a_pod_without_gpus_cost_nothing() -> None:
    forged = pod("p", pod_spec(container()), {"hami.io/amd-devices-allocated": f"{MI300X.id},x,1000,8:;"})
    assert cost_of_pod(forged, 1000) == Cost()


def with_cpu(kind: str, amount: str) -> dict[str, Any]:
    return {"name": "main", "resources": {kind: {"cpu": amount}}}


TERMINATING = {"spec": {"activeDeadlineSeconds": 0}}
PLAIN: dict[str, Any] = {"spec": {"containers": [container(gpu=1)]}}
HIGH = {"spec": {"priorityClassName": "high"}}


@pytest.mark.parametrize(
    ("scope", "member", "other"),
    [
        ("Terminating", TERMINATING, PLAIN),
        ("NotTerminating", PLAIN, TERMINATING),
        ("BestEffort", PLAIN, {"spec": {"containers": [with_cpu("requests", "1")]}}),
        (
            "BestEffort",
            {"spec": {"containers": [with_cpu("limits", "0")]}},
            {"spec": {"initContainers": [with_cpu("limits", "10m")]}},
        ),
        ("NotBestEffort", {"spec": {"containers": [with_cpu("limits", "1")]}}, PLAIN),
        ("PriorityClass", HIGH, PLAIN),
    ],
)
def test_a_scope_counts_its_pods(scope: str, member: dict[str, Any], other: dict[str, Any]) -> None:
    assert counted(member, scopes=[scope])
    assert not counted(other, scopes=[scope])


@pytest.mark.parametrize(
    ("operator", "values", "members"),
    [
        ("In", ["high", "higher"], [True, False, False]),
        ("NotIn", ["high"], [False, True, True]),
        ("Exists", None, [True, True, False]),
        ("DoesNotExist", None, [False, False, True]),
    ],
)
def test_a_scope_selector_counts_by_priority_class(
    operator: str, values: list[str] | None, members: list[bool]
) -> None:
    rule = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    pods = [HIGH, {"spec": {"priorityClassName": "low"}}, PLAIN]
    assert [counted(one, scopeSelector={"matchExpressions": [rule]}) for one in pods] == members


def test_all_scopes_must_hold_and_an_unknown_one_leaves_nobody_out() -> None:
    assert not counted(HIGH, scopes=["PriorityClass", "Terminating"])
    assert counted({"spec": {**HIGH["spec"], **TERMINATING["spec"]}}, scopes=["PriorityClass", "Terminating"])
    assert counted(PLAIN, scopes=["CrossNamespacePodAffinity"])
