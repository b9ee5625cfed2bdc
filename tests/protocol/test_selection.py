"""A pod's wishes, as HAMi reads them."""

from dataclasses import replace

import pytest

from protocol.demand import read_demand
from protocol.placement import Placement, Refusal, place
from protocol.pods import PodRef
from protocol.policy import Policy
from protocol.selection import GPU_POLICY, read_policy, read_selection
from protocol.usage import GpuUsage
from tests.protocol.makers import MI210, MI300X, container, pod_spec


def test_a_long_list_of_types_is_gone_through_once_for_a_product() -> None:
    """256 KiB of them, on each of a cluster's GPUs, would keep the extender busy for minutes."""

    class Counting(str):
        __slots__ = ()
        looked = 0

        def upper(self) -> str:
            Counting.looked += 1
            return super().upper()

    product = Counting(MI300X.product)
    selection = read_selection({"amd.com/use-gputype": "x1,x2"})
    gpus = [replace(MI300X, id=f"GPU-{number}", product=product) for number in range(100)]
    assert {selection.obstacle(gpu) for gpu in gpus} == {f"GPU type: {MI300X.product} is not in amd.com/use-gputype"}
    assert Counting.looked == 1
    assert selection == read_selection({"amd.com/use-gputype": "x1,x2"}), "what is remembered is no part of it"


@pytest.mark.parametrize(
    ("annotations", "mi300x", "mi210"),
    [
        ({}, True, True),
        ({"amd.com/use-gputype": "mi300x"}, True, False),
        ({"amd.com/use-gputype": " MI250 , MI210,"}, False, True),
        ({"amd.com/use-gputype": "  "}, True, True),
        ({"amd.com/use-gputype": ",,"}, False, False),
        ({"amd.com/nouse-gputype": "MI300X"}, False, True),
        ({"amd.com/nouse-gputype": ",,"}, True, True),
        ({"amd.com/use-gputype": "Instinct", "amd.com/nouse-gputype": "MI210"}, True, False),
        ({"amd.com/use-gpu-uuid": f"x,{MI300X.id}"}, True, False),
        ({"amd.com/use-gpu-uuid": MI300X.id[:-1]}, False, False),
        ({"amd.com/nouse-gpu-uuid": MI300X.id}, False, True),
        ({"amd.com/gpu-index": "0"}, True, True),
        ({"amd.com/gpu-index": "1,2"}, False, False),
    ],
)
def test_hami_2395_use_and_nouse(annotations: dict[str, str], mi300x: bool, mi210: bool) -> None:
    selection = read_selection(annotations)
    assert [not selection.obstacle(device) for device in (MI300X, MI210)] == [mi300x, mi210]


def test_a_gpu_that_is_not_wanted_is_not_placed_on() -> None:
    demands = read_demand(pod_spec(container(gpu=1, gpucores=10, gpumem=64)))
    usages = [GpuUsage(MI300X), GpuUsage(MI210)]
    wanted = place(demands, usages, Policy.BINPACK, read_selection({"amd.com/use-gputype": "MI210"}))
    assert isinstance(wanted, Placement)
    assert [share.device_id for share in wanted.segments[0]] == [MI210.id]
    none = place(demands, usages[:1], Policy.BINPACK, read_selection({"amd.com/use-gputype": "MI210"}))
    reason = "GPU type: AMD Instinct MI300X VF is not in amd.com/use-gputype"
    assert none == Refusal(reason, permanent=True)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("binpack", Policy.BINPACK),
        (" spread ", Policy.SPREAD),
        ("", Policy.SPREAD),
        ("mutex", Policy.SPREAD),
        ("binpack,numa", Policy.BINPACK),
        ("topology-aware, mutex ,binpack,spread", Policy.BINPACK),
        ("numa,topology-aware", Policy.SPREAD),
    ],
)
def test_hami_2621_a_pod_names_its_policy_alone_or_in_a_chain(text: str, policy: Policy) -> None:
    assert read_policy({GPU_POLICY: text}, GPU_POLICY, Policy.SPREAD) is policy
    assert read_policy({}, GPU_POLICY, Policy.SPREAD) is Policy.SPREAD


@pytest.mark.parametrize("text", ["mutex", "binpack, mutex"])
def test_mutex_accepts_only_gpus_that_no_other_pod_has_a_share_of(text: str) -> None:
    demands = read_demand(
        pod_spec(container("a", gpu=1, gpucores=10, gpumem=64), container("b", gpucores=10, gpumem=64))
    )
    selection = read_selection({GPU_POLICY: text})
    used = GpuUsage(MI300X, pods={PodRef("default", "other", "uid-other")})
    refusal = place(demands, [used], Policy.BINPACK, selection)
    assert refusal == Refusal("GPU shared: the pod's policy mutex accepts none that another pod has a share of")
    # Its own containers may share, and a GPU that is free is taken though the other is the fuller one.
    placed = place(demands, [used, GpuUsage(MI210)], Policy.BINPACK, selection)
    assert isinstance(placed, Placement)
    assert [share.device_id for segment in placed.segments for share in segment] == [MI210.id, MI210.id]
    assert isinstance(place(demands, [used], Policy.BINPACK, read_selection({GPU_POLICY: "binpack"})), Placement)
