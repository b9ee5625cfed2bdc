"""What is wrong on a node is told, and stops nobody else."""

import json
from dataclasses import replace
from typing import Any

import pytest

from protocol.demand import read_demand
from protocol.devices import DeviceInfo, encode_register
from protocol.names import CU_ALLOCATED, DEVICES_ALLOCATED, NODE_REGISTER, NODE_SURVIVORS
from protocol.placement import Placement, place
from protocol.pods import PodRef
from protocol.policy import Policy
from protocol.usage import node_usage
from scheduler.capacity import Part, sums
from scheduler.findings import Kind, geometry, inspect
from tests.protocol.makers import MI210, MI300X, container, pod, pod_spec

SECOND = replace(MI300X, id="GPU-0000000000000002", index=1)
SPEC = pod_spec(container(gpu=1, gpucores=25, gpumem=1024))


def node(*devices: DeviceInfo, **more: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "annotations": {NODE_REGISTER: encode_register(devices), **more}}}


def holder(name: str, *, device: DeviceInfo = MI300X, phase: str = "Running", **changed: str | None) -> dict[str, Any]:
    """A pod with 76 CUs and 1024 MiB, and its annotations as somebody may have changed them."""
    placement = place(read_demand(SPEC), node_usage([device], ())[0].values(), Policy.BINPACK)
    assert isinstance(placement, Placement)
    notes = {**placement.annotations(), **{_KEYS[key]: value for key, value in changed.items()}}
    return pod(name, SPEC, {key: value for key, value in notes.items() if value is not None}, phase=phase)


_KEYS = {"cus": CU_ALLOCATED, "devices": DEVICES_ALLOCATED}


def told(item: dict[str, Any], *pods: dict[str, Any]) -> list[tuple[Kind, str]]:
    return [(one.kind, one.pod.name if one.pod else "") for one in inspect("n", item, pods, {})]


def test_a_node_in_order_has_no_findings() -> None:
    other = holder("b", cus=json.dumps({MI300X.id: "76-151"}))
    assert told(node(MI300X), holder("a"), other) == []


@pytest.mark.parametrize("changed", [{"devices": None}, {"devices": "x"}, {"cus": "{"}, {"cus": '{"x": "0-"}'}])
def test_b8_annotations_that_cannot_be_read_are_told_of_their_pod(changed: dict[str, Any]) -> None:
    assert told(node(MI300X), holder("a"), holder("b", **changed)) == [(Kind.MALFORMED_ALLOCATION, "b")]


def test_b8_what_a_finished_pod_says_is_nobodys_trouble() -> None:
    assert told(node(MI300X), holder("a", devices="x", phase="Failed")) == []


def test_overlapping_cus_are_told_with_both_pods() -> None:
    (finding,) = inspect("n", node(MI300X), [holder("a"), holder("b", cus=json.dumps({MI300X.id: "70-145"}))], {})
    assert (finding.kind, finding.pod) == (Kind.OVERLAPPING_ALLOCATION, PodRef("default", "b", "uid-b"))
    assert finding.text == f"it holds CUs 70-75 of GPU {MI300X.id}, and so does pod default/a"


def test_over_committed_memory_is_told_of_the_node() -> None:
    small = replace(MI300X, memory_mib=1500)
    other = holder("b", cus=json.dumps({MI300X.id: "76-151"}))
    (finding,) = inspect("n", node(small), [holder("a"), other], {})
    assert (finding.kind, finding.pod) == (Kind.MEMORY_OVERCOMMITTED, None)
    assert finding.text == f"pods hold 2048 MiB of GPU {MI300X.id}, which has 1500"


def test_a_gpu_that_is_gone_under_a_pod() -> None:
    assert told(node(SECOND), holder("a")) == [(Kind.GPU_LOST, "a")]


def test_a_node_without_readable_registration_has_lost_no_gpu() -> None:
    assert told({"metadata": {}}, holder("a")) == []
    broken = {"metadata": {"annotations": {NODE_REGISTER: "[{]"}}}
    assert told(broken, holder("a")) == [(Kind.MALFORMED_NODE, "")]


def test_survivors_that_cannot_be_read_are_told_of_the_node() -> None:
    assert told(node(MI300X, **{NODE_SURVIVORS: "{"})) == [(Kind.MALFORMED_NODE, "")]


@pytest.mark.parametrize("now", [38, 320])
def test_a_gpu_whose_cus_changed_under_a_pod(now: int) -> None:
    """A partition mode was switched: fewer than the pod's ids show by themselves, more by what it found at first."""
    found = {"uid-a": geometry(holder("a"), node(MI300X))}
    assert found == {"uid-a": {MI300X.id: 304}}
    changed = node(replace(MI300X, cu_count=now))
    (finding,) = inspect("n", changed, [holder("a")], found)
    assert finding.kind is Kind.GPU_CHANGED
    assert str(now) in finding.text


# What each of them withholds from others


def blocked(*pods: dict[str, Any]) -> dict[str, str]:
    usages, _ = node_usage([MI300X, SECOND], pods)
    return {name: usage.blocked for name, usage in usages.items() if usage.blocked}


def test_b8_an_unreadable_cu_list_closes_only_the_gpu_that_its_pod_names() -> None:
    assert blocked(holder("a", cus="{")) == {MI300X.id: "pod default/a has an unreadable allocation"}


def test_b8_a_pod_that_does_not_say_its_gpus_closes_the_node() -> None:
    assert set(blocked(holder("a", devices="x"))) == {MI300X.id, SECOND.id}
    assert set(blocked(holder("a", devices=None))) == {MI300X.id, SECOND.id}


def test_overlapping_pods_close_nothing_and_what_neither_holds_stays_free() -> None:
    pods = [holder("a"), holder("b", cus=json.dumps({MI300X.id: "70-145"}))]
    assert blocked(*pods) == {}
    usages, _ = node_usage([MI300X], pods)
    assert usages[MI300X.id].free_cus == frozenset(range(146, 304))


def test_a_lost_gpu_closes_nothing() -> None:
    assert blocked(holder("a", device=MI210)) == {}


# The sums


def test_what_is_held_and_free_is_summed_up_by_product() -> None:
    usages, _ = node_usage([MI300X, SECOND, replace(MI210, healthy=False)], [holder("a")])
    usages[SECOND.id].blocked = "by somebody"
    result = sums(usages.values())
    product = MI300X.product
    assert result[product, Part.OPEN] == result[product, Part.BLOCKED] == 1
    assert (result[product, Part.CUS_HELD], result[product, Part.CUS_FREE]) == (76, 228)
    assert (result[product, Part.MIB_HELD], result[product, Part.MIB_FREE]) == (1024, 195584)
    assert result[MI210.product, Part.UNHEALTHY] == result[MI210.product, Part.NONE_FREE] == 1
    assert result[MI210.product, Part.CUS_FREE] == 0


@pytest.mark.parametrize(
    ("held", "share"),
    [(0, Part.ALL_FREE), (1, Part.FREE_99), (76, Part.FREE_75), (77, Part.FREE_75), (228, Part.FREE_25),
     (227, Part.FREE_50), (303, Part.FREE_25), (304, Part.NONE_FREE)],
)  # fmt: skip
def test_gpus_are_sorted_by_what_is_free(held: int, share: Part) -> None:
    usages, _ = node_usage([MI300X], ())
    usages[MI300X.id].cus.update(range(held))
    assert sums(usages.values())[MI300X.product, share] == 1
