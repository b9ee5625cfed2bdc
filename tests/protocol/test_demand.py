"""What pods ask for, and how what they may not ask for is told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.demand import ContainerDemand, DemandError, Role, read_demand, wants_gpu
from protocol.faults import describe
from tests.protocol.makers import container, pod_spec, sidecar

LIMITS = "spec.containers[0].resources.limits"


def only(spec: dict[str, Any]) -> ContainerDemand:
    (demand,) = read_demand(spec)
    return demand


@pytest.mark.parametrize(
    ("limits", "gpus", "memory", "cores"),
    [
        ({"gpu": 1, "gpumem": 16384, "gpucores": 25}, 1, 16384, 25),
        ({"gpu": "2", "gpumem": "16k"}, 2, 16000, None),
        ({"gpucores": "1e1"}, 1, None, 10),
        ({"gpumem": "2000m"}, 1, 2, None),
        ({"gpu": 1}, 1, None, None),
        ({"gpu": 1, "gpucores": 100}, 1, None, 100),
        ({}, 0, None, None),
    ],
)
def test_limits_are_read(limits: dict[str, Any], gpus: int, memory: int | None, cores: int | None) -> None:
    demand = only(pod_spec(container(**limits)))
    assert (demand.gpus, demand.memory_mib, demand.cores_percent) == (gpus, memory, cores)


def test_a15_init_containers_come_first_and_are_told_apart() -> None:
    spec = pod_spec(container("app", gpu=1), inits=(container("setup", gpu=1), sidecar(container("proxy"))))
    assert [(demand.position, demand.name, demand.role, demand.gpus) for demand in read_demand(spec)] == [
        (0, "setup", Role.INIT, 1),
        (1, "proxy", Role.SIDECAR, 0),
        (2, "app", Role.APP, 1),
    ]


@pytest.mark.parametrize("value", ["0", "101", "25.5", "25500m", "-1", "abc", "", "150", "1Ki"])
def test_gpucores_is_a_percentage(value: str) -> None:
    with pytest.raises(DemandError) as error:
        read_demand(pod_spec(container(gpu=1, gpucores=value)))
    (fault,) = error.value.faults
    assert str(fault) == (
        f'{LIMITS}[amd.com/gpucores]: Invalid value: "{value}": must be an integer percentage between 1 and 100'
    )


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("16Gi", "without a suffix: for 16Gi write 16384"),
        ("16G", "without a suffix: for 16G write 15258"),
        ("16M", "without a suffix: for 16M write 15"),
        ("512Mi", "without a suffix: for 512Mi write 512"),
        ("17179869184", "without a suffix: for 17179869184 write 16384"),
        ("0", "must be an integer number of MiB greater than 0"),
        ("-5", "must be an integer number of MiB greater than 0"),
        ("1.5", "must be an integer number of MiB greater than 0"),
        ("16GB", "must be an integer number of MiB greater than 0"),
        ("99999999999999999999", "at most 2097152"),
    ],
)
def test_a19_gpumem_counts_mib_and_says_so(value: str, hint: str) -> None:
    with pytest.raises(DemandError) as error:
        read_demand(pod_spec(container(gpumem=value)))
    (fault,) = error.value.faults
    assert fault.field == f"{LIMITS}[amd.com/gpumem]"
    assert hint in str(fault)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "65", "x"])
def test_gpu_is_a_small_positive_integer(value: str) -> None:
    with pytest.raises(DemandError, match=r"limits\[amd.com/gpu\]: Invalid value: .* must be an integer from 1 to 64"):
        read_demand(pod_spec(container(gpu=value)))


def test_all_faults_of_all_containers_come_at_once() -> None:
    spec = pod_spec(container(gpu=0, gpucores=101), container(gpumem=-1), inits=(container(gpucores="x"),))
    with pytest.raises(DemandError) as error:
        read_demand(spec)
    assert [fault.field for fault in error.value.faults] == [
        "spec.initContainers[0].resources.limits[amd.com/gpucores]",
        f"{LIMITS}[amd.com/gpu]",
        f"{LIMITS}[amd.com/gpucores]",
        "spec.containers[1].resources.limits[amd.com/gpumem]",
    ]
    assert describe(error.value.faults).startswith("[spec.initContainers[0]")


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        ({"gpu": 1}, {"amd.com/gpu": "1"}, None),
        ({"gpumem": "16000"}, {"amd.com/gpumem": "16k"}, None),
        ({"gpu": 1}, {"amd.com/gpu": "2"}, "must equal resources.limits[amd.com/gpu], which is 1"),
        ({}, {"amd.com/gpu": "1"}, "must not be set without resources.limits[amd.com/gpu]"),
        ({"gpu": 1}, {"amd.com/gpumem": "1"}, "must not be set without resources.limits[amd.com/gpumem]"),
        ({"gpu": 1}, {"cpu": "1"}, None),
    ],
)
def test_a20_requests_equal_limits(limits: dict[str, Any], requests: dict[str, Any], expected: str | None) -> None:
    spec = pod_spec(container(requests=requests, **limits))
    if expected is None:
        assert read_demand(spec)
        return
    with pytest.raises(DemandError) as error:
        read_demand(spec)
    assert [fault.expected for fault in error.value.faults] == [expected]


def test_other_paths_lead_to_other_fields() -> None:
    with pytest.raises(DemandError, match=r"^spec\.template\.spec\.containers\[0\]"):
        read_demand(pod_spec(container(gpu=0)), "spec.template.spec")


@pytest.mark.parametrize("resources", [None, {}, {"limits": None}, {"limits": {}}, {"requests": None}])
def test_empty_resources_ask_for_nothing(resources: object) -> None:
    body = {"name": "main", "resources": resources}
    assert only({"containers": [body]}).gpus == 0
    assert not wants_gpu(body)


def test_a_request_alone_is_seen() -> None:
    assert wants_gpu({"resources": {"requests": {"amd.com/gpucores": "1"}}})


def test_a_hostile_value_stays_one_short_line() -> None:
    with pytest.raises(DemandError) as error:
        read_demand(pod_spec(container(gpucores="x\n" * 500)))
    assert "\n" not in describe(error.value.faults)
    assert len(describe(error.value.faults)) < 500


@given(st.dictionaries(st.sampled_from(["gpu", "gpumem", "gpucores"]), st.text(max_size=12) | st.integers()))
def test_any_limits_are_read_or_refused_with_their_field(limits: dict[str, Any]) -> None:
    try:
        demand = only(pod_spec(container(**limits)))
    except DemandError as error:
        faults = error.faults
    else:
        faults = ()
        assert 0 <= demand.gpus <= 64
        assert demand.cores_percent is None or 1 <= demand.cores_percent <= 100
    assert all(fault.field.startswith(LIMITS) for fault in faults)
