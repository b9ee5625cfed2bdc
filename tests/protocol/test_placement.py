"""Placement and usage together: what is placed is recorded, read back, and never given twice."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from protocol.allocation import AllocationError
from protocol.claim import container_cus, pod_claims
from protocol.demand import Role, read_demand
from protocol.devices import DeviceInfo
from protocol.placement import Placement, Refusal, obstacle, place
from protocol.pods import Holding, PodRef, read_holding
from protocol.policy import Policy
from protocol.usage import GpuUsage, node_usage
from tests.protocol.makers import MI210, MI300X, RX7900, UNKNOWN, container, pod, pod_spec, sidecar

SECOND = replace(MI300X, id="GPU-0000000000000002", index=1)


def placed(spec: dict[str, Any], *devices: DeviceInfo, pods: tuple[dict[str, Any], ...] = (), policy: Policy = Policy.BINPACK) -> Placement | Refusal:  # fmt: skip  # noqa: E501
    usages, unreadable = node_usage(devices, pods)
    assert not unreadable
    demands = read_demand(spec)
    outcome = place(demands, usages.values(), policy)
    # The cheaper question has the same answer, for every pod and node of these tests.
    refusal = obstacle(demands, usages.values(), policy)
    assert refusal == (outcome if isinstance(outcome, Refusal) else None)
    return outcome


def accepted(outcome: Placement | Refusal) -> Placement:
    assert isinstance(outcome, Placement), outcome
    return outcome


def run(name: str, spec: dict[str, Any], *devices: DeviceInfo, pods: tuple[dict[str, Any], ...] = (), policy: Policy = Policy.BINPACK) -> dict[str, Any]:  # fmt: skip  # noqa: E501
    """Place a pod and return it as it would run."""
    return pod(name, spec, accepted(placed(spec, *devices, pods=pods, policy=policy)).annotations())


def holding(item: dict[str, Any]) -> Holding:
    found = read_holding(item)
    assert found is not None
    return found


def parts(item: dict[str, Any], position: int, *devices: DeviceInfo) -> list[tuple[int, ...]]:
    held = holding(item)
    roles = [demand.role for demand in held.demands]
    return container_cus(roles, held.segments, held.cus, position, {device.id: device for device in devices})


def test_three_pods_share_a_gpu_side_by_side() -> None:
    pods: tuple[dict[str, Any], ...] = ()
    for name, cores, memory in (("large", 25, 49152), ("medium", 12, 24576), ("small", 12, 16384)):
        spec = pod_spec(container(gpu=1, gpucores=cores, gpumem=memory))
        pods = (*pods, run(name, spec, MI300X, pods=pods))
    assert [item["metadata"]["annotations"]["hami.io/amd-cu-allocated"] for item in pods] == [
        f'{{"{MI300X.id}":"0-75"}}',
        f'{{"{MI300X.id}":"76-111"}}',
        f'{{"{MI300X.id}":"112-147"}}',
    ]
    assert pods[0]["metadata"]["annotations"]["hami.io/amd-devices-allocated"] == (
        f"{MI300X.id},AMD Instinct MI300X VF,49152,76:;"
    )
    big = pod_spec(container(gpu=1, gpucores=76, gpumem=16384))
    assert placed(big, MI300X, pods=pods) == Refusal("GPU compute units: 156 free, 231 asked")
    assert isinstance(placed(big, MI300X, pods=pods[1:]), Placement)


def test_hami_2812_a_pod_that_ended_holds_nothing_and_one_that_ends_holds_all() -> None:
    whole = pod_spec(container(gpu=1))
    running = run("old", whole, MI300X)
    running["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert isinstance(placed(whole, MI300X, pods=(running,)), Refusal)
    for phase in ("Succeeded", "Failed"):
        running["status"]["phase"] = phase
        assert isinstance(placed(whole, MI300X, pods=(running,)), Placement)


def test_two_containers_get_parts_of_their_own() -> None:
    spec = pod_spec(container("a", gpu=1, gpucores=10, gpumem=1024), container("b", gpu=1, gpucores=20, gpumem=2048))
    item = run("two", spec, MI300X)
    assert [parts(item, 0, MI300X), parts(item, 1, MI300X)] == [[tuple(range(60, 90))], [tuple(range(60))]]
    assert pod_claims([Role.APP, Role.APP], holding(item).segments)[MI300X.id].memory_mib == 3072


def test_c9_an_init_container_uses_the_share_of_the_containers_after_it() -> None:
    spec = pod_spec(
        container("app", gpu=1, gpucores=40, gpumem=10240), inits=(container("init", gpu=1, gpucores=60, gpumem=20480),)
    )
    small = replace(MI300X, memory_mib=24576)
    item = run("pod", spec, small)
    claim = pod_claims([Role.INIT, Role.APP], holding(item).segments)[small.id]
    assert (claim.memory_mib, claim.cu_count) == (20480, 182)
    (init,), (app,) = parts(item, 0, small), parts(item, 1, small)
    assert len(init) == 182
    assert set(app) < set(init)


def test_hami_2563_a_sidecar_shares_with_nobody() -> None:
    spec = pod_spec(
        container("app", gpu=1, gpucores=30, gpumem=4096),
        inits=(
            sidecar(container("proxy", gpu=1, gpucores=20, gpumem=4096)),
            container("init", gpu=1, gpucores=30, gpumem=1),
        ),
    )
    assert isinstance(placed(spec, replace(MI300X, memory_mib=6144)), Refusal)
    item = run("pod", spec, MI300X)
    (proxy,), (init,), (app,) = (parts(item, position, MI300X) for position in range(3))
    assert not set(proxy) & (set(init) | set(app))
    assert set(init) == set(app)


def test_two_gpus_come_in_their_order_and_are_two() -> None:
    item = run("pair", pod_spec(container(gpu=2, gpucores=50, gpumem=1024)), MI300X, SECOND)
    assert [share.device_id for share in holding(item).segments[0]] == [MI300X.id, SECOND.id]


def test_hami_1942_a_whole_gpu_is_enough_for_an_init_container_and_its_pod() -> None:
    whole = container("app", gpu=1)
    item = run("pod", pod_spec(whole, inits=({**whole, "name": "one"}, {**whole, "name": "two"})), MI300X)
    assert [parts(item, position, MI300X) for position in range(3)] == [[tuple(range(304))]] * 3


def test_hami_2965_the_gpu_of_an_init_container_that_has_ended_is_still_its_pods() -> None:
    small = container("app", gpu=1, gpucores=10, gpumem=1024)
    item = run("pod", pod_spec(small, inits=(container("init", gpu=1),)), MI300X)
    item["status"]["initContainerStatuses"] = [{"state": {"terminated": {"exitCode": 0}}}]
    assert isinstance(placed(pod_spec(small), MI300X, pods=(item,)), Refusal)


def test_hami_2514_a_gpu_whose_name_does_not_say_amd_is_one_all_the_same() -> None:
    radeon = replace(RX7900, product="Navi 31 [Radeon RX 7900 XT]")
    assert isinstance(placed(pod_spec(container(gpu=1, gpucores=50, gpumem=64)), radeon), Placement)


@pytest.mark.parametrize("missing", [{"cu_count": 0}, {"memory_mib": 0}, {"cu_count": 0, "xcc_count": 0}])
@pytest.mark.parametrize("limits", [{}, {"gpucores": 10, "gpumem": 1}])
def test_a_gpu_registered_without_an_amount_is_given_to_nobody(missing: dict[str, int], limits: dict[str, Any]) -> None:
    odd = replace(MI300X, **missing)  # type: ignore[arg-type]
    refusal = Refusal("GPU registered without compute units or memory", permanent=True)
    assert placed(pod_spec(container(gpu=1, **limits)), odd) == refusal


HELD = st.lists(st.tuples(st.integers(0, 304), st.integers(0, MI300X.memory_mib)), min_size=1, max_size=6)


@given(held=HELD, policy=st.sampled_from(Policy), cores=st.integers(3, 100), memory=st.integers(1, MI300X.memory_mib))
def test_hami_1069_1589_1806_no_gpu_that_fits_is_fuller_to_pack_or_emptier_to_spread(
    held: list[tuple[int, int]], policy: Policy, cores: int, memory: int
) -> None:
    usages = [
        GpuUsage(replace(MI300X, id=f"GPU-{index}", index=index), memory_mib=mib, cus=set(range(cus)))
        for index, (cus, mib) in enumerate(held)
    ]
    demands = read_demand(pod_spec(container(gpu=1, gpucores=cores, gpumem=memory)))
    outcome = place(demands, usages, policy)
    load = {
        usage.device.id: max(len(usage.cus) / 304, usage.memory_mib / MI300X.memory_mib)
        for usage in usages
        if isinstance(place(demands, [usage], policy), Placement)
    }
    if isinstance(outcome, Refusal):
        assert not load
        return
    best = max if policy is Policy.BINPACK else min
    ((share,),) = outcome.segments
    assert load[share.device_id] == best(load.values())


def test_policies_pack_and_spread() -> None:
    spec = pod_spec(container(gpu=1, gpucores=10, gpumem=1024))
    first = run("first", spec, MI300X, SECOND)
    packed = run("packed", spec, MI300X, SECOND, pods=(first,), policy=Policy.BINPACK)
    spread = run("spread", spec, MI300X, SECOND, pods=(first,), policy=Policy.SPREAD)
    assert [holding(item).segments[0][0].device_id for item in (packed, spread)] == [MI300X.id, SECOND.id]


@pytest.mark.parametrize(
    ("spec", "devices", "reason", "permanent"),
    [
        (pod_spec(container(gpu=2)), (MI300X,), "GPUs: 1 on the node, 2 asked", True),
        (pod_spec(container(gpumem=200000)), (MI300X,), "GPU memory: 196608 MiB in all, 200000 asked", True),
        (pod_spec(container(gpu=1)), (replace(MI300X, healthy=False),), "GPU unhealthy", False),
        (pod_spec(container(gpu=1)), (replace(MI300X, count=0),), "GPU sharers: 0 pods at most", False),
        (
            pod_spec(container("a", gpucores=60, gpumem=1), container("b", gpucores=60, gpumem=1)),
            (MI300X,),
            "GPU compute units: 304 free, 364 asked",
            False,
        ),
        (
            pod_spec(container("a", gpucores=5, gpumem=100000), container("b", gpucores=5, gpumem=100000)),
            (MI300X,),
            "GPU memory: 196608 MiB in all, 200000 asked",
            True,
        ),
        (
            pod_spec(container(gpu=2, gpumem=1)),
            (MI300X, replace(SECOND, healthy=False)),
            "GPU unhealthy (1 of 2 GPUs fit)",
            False,
        ),
    ],
)
def test_a_refusal_says_what_is_missing(
    spec: dict[str, Any], devices: tuple[DeviceInfo, ...], reason: str, permanent: bool
) -> None:
    assert placed(spec, *devices) == Refusal(reason, permanent)


def test_hami_596_the_number_of_sharers_is_kept() -> None:
    spec = pod_spec(container(gpu=1, gpucores=3, gpumem=1))
    two = replace(MI300X, count=2)
    pods: tuple[dict[str, Any], ...] = (run("a", spec, two),)
    pods = (*pods, run("b", spec, two, pods=pods))
    assert placed(spec, two, pods=pods) == Refusal("GPU sharers: 2 pods at most")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hami.io/amd-devices-allocated", "x"),
        ("hami.io/amd-devices-allocated", ""),
        ("hami.io/amd-cu-allocated", "{"),
        ("hami.io/amd-cu-allocated", '{"GPU-8e1bb56457addd1b":"0-"}'),
    ],
)
def test_b8_a_pod_that_does_not_say_what_it_holds_counts_as_holding_all(key: str, value: str) -> None:
    spec = pod_spec(container(gpu=1, gpucores=10, gpumem=1024))
    bad = run("bad", spec, MI300X)
    bad["metadata"]["annotations"][key] = value
    usages, unreadable = node_usage([MI300X], [bad])
    assert [pod.pod for pod in unreadable] == [PodRef("default", "bad", "uid-bad")]
    refusal = place(read_demand(spec), usages.values(), Policy.BINPACK)
    assert refusal == Refusal("GPU blocked: pod default/bad has an unreadable allocation")


def test_b8_a_bound_gpu_pod_without_an_allocation_counts_as_holding_all() -> None:
    spec = pod_spec(container(gpu=1, gpucores=10, gpumem=1024))
    strange = pod("strange", spec, {})
    assert [one.reason for one in node_usage([MI300X], [strange])[1]] == [
        "it has no annotation hami.io/amd-devices-allocated"
    ]
    usages, _ = node_usage([MI300X], [strange])
    assert isinstance(place(read_demand(spec), usages.values(), Policy.BINPACK), Refusal)
    strange["status"]["phase"] = "Failed"
    assert not node_usage([MI300X], [strange])[1]


def test_hami_3041_annotations_of_a_pod_without_gpus_mean_nothing() -> None:
    forged = run("real", pod_spec(container(gpu=1)), MI300X)
    forged["spec"] = {**pod_spec(container()), "nodeName": "node-a"}
    usages, unreadable = node_usage([MI300X], [forged])
    assert not unreadable
    assert usages[MI300X.id] == GpuUsage(MI300X)


def test_b8_cus_that_are_held_but_not_named_block_their_gpu_only() -> None:
    spec = pod_spec(container(gpu=1, gpucores=10, gpumem=1024))
    hamis = run("hamis", spec, MI300X)
    del hamis["metadata"]["annotations"]["hami.io/amd-cu-allocated"]
    assert placed(spec, MI300X, pods=(hamis,)) == Refusal("GPU blocked: pod default/hamis holds 30 CUs and names 0")
    assert isinstance(placed(spec, MI300X, SECOND, pods=(hamis,)), Placement)


def test_hami_2618_a_pod_of_a_gpu_that_left_the_node_stops_nobody() -> None:
    spec = pod_spec(container(gpu=1, gpucores=10, gpumem=1024))
    gone = run("gone", spec, SECOND)
    assert isinstance(placed(spec, MI300X, pods=(gone,)), Placement)
    with pytest.raises(AllocationError, match="is not on this node"):
        parts(gone, 0, MI300X)


CONTAINERS = st.builds(
    container,
    gpu=st.integers(1, 2),
    gpucores=st.integers(1, 60),
    gpumem=st.integers(1, 12000),
)
SPECS = st.builds(
    lambda apps, inits: pod_spec(*apps, inits=tuple(inits)),
    st.lists(CONTAINERS | st.just(container()), min_size=1, max_size=3),
    st.lists(CONTAINERS | CONTAINERS.map(sidecar), max_size=2),
)
NODES = st.sampled_from([(MI300X, SECOND), (MI210,), (RX7900, replace(RX7900, id="GPU-2", index=1)), (UNKNOWN,)])


class SharedNode(RuleBasedStateMachine):
    """Pods come and go on a node. Only their annotations carry state from one step to the next."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.devices = (MI300X, SECOND)
        self.pods: dict[str, dict[str, Any]] = {}
        self.made = 0

    @rule(target=running, spec=SPECS, policy=st.sampled_from(Policy))
    def start(self, spec: dict[str, Any], policy: Policy) -> str | None:
        outcome = placed(spec, *self.devices, pods=tuple(self.pods.values()), policy=policy)
        if isinstance(outcome, Refusal):
            assert outcome.reason
            return None
        if not any(outcome.segments):
            return None  # it asks for no GPU
        self.made += 1
        name = f"pod-{self.made}"
        self.pods[name] = pod(name, spec, outcome.annotations())
        return name

    @rule(name=consumes(running))
    def stop(self, name: str | None) -> None:
        self.pods.pop(name or "", None)

    @invariant()
    def nothing_is_held_twice(self) -> None:
        for device in self.devices:
            held = [cu for item in self.pods.values() for cu in holding(item).cus.get(device.id, ())]
            assert len(held) == len(set(held))
            assert all(cu < device.cu_count for cu in held)
        usages, unreadable = node_usage(self.devices, self.pods.values())
        assert not unreadable
        assert all(usage.memory_mib <= usage.device.memory_mib and not usage.blocked for usage in usages.values())

    @invariant()
    def every_container_has_its_valid_part(self) -> None:
        for item in self.pods.values():
            assert_parts_are_valid(item, self.devices)


def assert_parts_are_valid(item: dict[str, Any], devices: tuple[DeviceInfo, ...]) -> None:
    held = holding(item)
    by_id = {device.id: device for device in devices}
    together: dict[str, list[int]] = {device.id: [] for device in devices}
    for demand, segment in zip(held.demands, held.segments, strict=True):
        assert len(segment) == demand.gpus == len({share.device_id for share in segment})
        for share, part in zip(segment, parts(item, demand.position, *devices), strict=True):
            device = by_id[share.device_id]
            assert len(part) == share.cu_count == device.cus_for(demand.cores_percent)
            assert {cu % device.xcc_count for cu in part} == set(range(device.xcc_count))
            assert set(part) <= set(held.cus[device.id])
            if demand.role is not Role.INIT:
                together[device.id].extend(part)
    assert all(len(ids) == len(set(ids)) for ids in together.values())


TestSharedNode = SharedNode.TestCase
TestSharedNode.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(SPECS, NODES)
def test_a_claim_is_what_the_annotations_say(spec: dict[str, Any], devices: tuple[DeviceInfo, ...]) -> None:
    outcome = placed(spec, *devices)
    if isinstance(outcome, Refusal) or not any(outcome.segments):
        return
    item = pod("pod", spec, outcome.annotations())
    held = holding(item)
    claims = pod_claims([demand.role for demand in held.demands], held.segments)
    assert {device_id: len(ids) for device_id, ids in held.cus.items()} == {
        device_id: claim.cu_count for device_id, claim in claims.items()
    }


def test_usage_is_never_negative() -> None:
    usage = GpuUsage(MI300X, memory_mib=MI300X.memory_mib + 1)
    assert usage.free_memory_mib == 0
