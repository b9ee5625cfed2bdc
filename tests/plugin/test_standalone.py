from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kube.client import KubeClient
from plugin.allocate import Host, HostNode
from plugin.discovery import Gpu, Snapshot, discover
from plugin.replicas import gpus_by_replica
from plugin.settings import PluginSettings
from plugin.standalone import whole_gpus
from protocol.allocation import AllocationError
from protocol.names import NODE_LOCK
from tests.plugin.made_pods import NODE, bound_pod, container, lock_for, path_of, pod
from tests.plugin.standin_api import StandInApi
from tests.plugin.standin_kubelet import StandInKubelet
from tests.plugin.test_lifecycle import BOTH_GPUS, running
from tests.trees import MadeGpu, make_tree
from tests.trees.changes import report_errors, take_device_node

FIRST, SECOND = "GPU-8e1bb56457addd1b", "GPU-8e1bb56457addd1c"
NODE_PATH = f"/api/v1/nodes/{NODE}"


@pytest.fixture
def snapshot(machine: Path) -> Snapshot:
    return discover(machine / "sys", machine / "dev")


@pytest.fixture
def gpus(snapshot: Snapshot) -> Mapping[str, Gpu]:
    return gpus_by_replica(snapshot.gpus)


@pytest.fixture
def paths(machine: Path) -> Host:
    return Host(machine / "dev", machine / "vgpu", machine / "run")


def test_two_whole_gpus(gpus: Mapping[str, Gpu], paths: Host, machine: Path) -> None:
    answer = whole_gpus([f"{SECOND}-7", f"{FIRST}-3"], gpus, [], paths)
    assert answer.env == {"ROCR_VISIBLE_DEVICES": f"{FIRST},{SECOND}", "HIP_VISIBLE_DEVICES": "0,1"}
    assert answer.devices == (
        HostNode("/dev/kfd", f"{machine}/dev/kfd"),
        HostNode("/dev/dri/renderD128", f"{machine}/dev/dri/renderD128"),
        HostNode("/dev/dri/renderD136", f"{machine}/dev/dri/renderD136"),
    )
    assert answer.mounts == ()


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([f"{FIRST}-0", f"{FIRST}-1"], f"2 GPUs were asked for, and the kubelet chose {FIRST} only"),
        ([f"{FIRST}-10"], f"device '{FIRST}-10' is not on this node"),
        ([f"{FIRST}-0", "x"], "device 'x' is not on this node"),
    ],
)
def test_devices_that_cannot_be_given(gpus: Mapping[str, Gpu], paths: Host, devices: list[str], message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        whole_gpus(devices, gpus, [], paths)


def test_a_gpu_that_others_share_is_not_given(snapshot: Snapshot, gpus: Mapping[str, Gpu], paths: Host) -> None:
    sharing = bound_pod("sharing", [container("main", mem=1, cores=25)], snapshot)
    unplaced = pod("unplaced", {"nodeName": NODE, "containers": [container("main")]}, {})
    with pytest.raises(AllocationError, match=f"pod default/sharing holds a share of GPU '{FIRST}'"):
        whole_gpus([f"{FIRST}-5"], gpus, [unplaced, sharing], paths)
    whole_gpus([f"{SECOND}-5"], gpus, [unplaced, sharing], paths)
    ended = {**sharing, "status": {"phase": "Succeeded"}}
    whole_gpus([f"{FIRST}-5"], gpus, [ended], paths)


def test_an_unhealthy_gpu_is_not_given(machine: Path, paths: Host) -> None:
    report_errors(machine, "0000:05:00.0", "umc", 1)
    take_device_node(machine, "dri/renderD136")
    gpus = gpus_by_replica(discover(machine / "sys", machine / "dev").gpus)
    with pytest.raises(AllocationError, match="uncorrectable errors since the driver was loaded: umc 1"):
        whole_gpus([f"{FIRST}-0"], gpus, [], paths)
    with pytest.raises(AllocationError, match="renderD136 missing"):
        whole_gpus([f"{SECOND}-0"], gpus, [], paths)


async def test_through_the_socket(settings: PluginSettings, client: KubeClient) -> None:
    alone = replace(settings, standalone=True)
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(alone, client):
        await kubelet.until_healthy(BOTH_GPUS)
        (request,) = kubelet.registrations
        assert request.options.get_preferred_allocation_available
        assert kubelet.called_back == [request.options]
        answer = await kubelet.allocate(f"{SECOND}-4")
        assert answer.envs["ROCR_VISIBLE_DEVICES"] == SECOND
        assert "HSA_CU_MASK" not in answer.envs
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.allocate(f"{FIRST}-0", f"{FIRST}-1")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (caught.value.details() or "").startswith("amd-vgpu: standalone: 2 GPUs were asked for")


async def test_a_pod_that_was_placed_gets_its_share_all_the_same(
    settings: PluginSettings, client: KubeClient, api: StandInApi, snapshot: Snapshot
) -> None:
    placed = bound_pod("placed", [container("main", mem=16384, cores=25)], snapshot)
    api.put(path_of(placed), placed)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(placed)})
    async with (
        StandInKubelet.running(settings.kubelet_dir) as kubelet,
        running(replace(settings, standalone=True), client),
    ):
        await kubelet.until_healthy(BOTH_GPUS)
        answer = await kubelet.allocate(f"{SECOND}-4")
        assert answer.envs["HSA_CU_MASK"] == "0:0-75"
        with pytest.raises(grpc.aio.AioRpcError, match=f"pod default/placed holds a share of GPU '{FIRST}'"):
            await kubelet.allocate(f"{FIRST}-0")


async def test_a_lock_that_cannot_be_read_is_no_freedom(
    settings: PluginSettings, client: KubeClient, api: StandInApi
) -> None:
    api.annotate(NODE_PATH, {NODE_LOCK: "whose?"})
    async with (
        StandInKubelet.running(settings.kubelet_dir) as kubelet,
        running(replace(settings, standalone=True), client),
    ):
        await kubelet.until_healthy(BOTH_GPUS)
        with pytest.raises(grpc.aio.AioRpcError, match="its value is 'whose\\?'"):
            await kubelet.allocate(f"{FIRST}-0")


async def test_by_default_a_pod_that_nobody_placed_fails(settings: PluginSettings, client: KubeClient) -> None:
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        with pytest.raises(grpc.aio.AioRpcError, match="expected a pod in the lock"):
            await kubelet.allocate(f"{FIRST}-0")


def test_an_integrated_gpu_is_no_choice(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu("Raphael"), MadeGpu("Radeon PRO W7900")])
    gpus = gpus_by_replica(discover(tmp_path / "sys", tmp_path / "dev").gpus)
    assert {gpu.info.product for gpu in gpus.values()} == {"AMD Radeon PRO W7900"}
