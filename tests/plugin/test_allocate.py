from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from plugin.allocate import Answer, Host, HostNode, Mount, translate
from plugin.discovery import Gpu, Snapshot, discover
from protocol.allocation import AllocationError, DeviceShare
from protocol.cumask import read_mask
from protocol.pods import Holding, read_holding
from tests.plugin.made_pods import bound_pod, container, pod
from tests.trees import MadeGpu, make_tree, partitions

Json = dict[str, Any]

LIBRARY_DIR = Path("/host/vgpu")
RUN_DIR = Path("/host/run")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "made"


def machine(root: Path, *gpus: MadeGpu) -> Snapshot:
    make_tree(root, gpus)
    return discover(root / "sys", root / "dev")


def answer_for(item: Json, snapshot: Snapshot, root: Path, position: int = 0) -> Answer:
    holding = read_holding(item)
    assert holding is not None
    return answer_by(item, holding, snapshot.by_id(), root, position)


def answer_by(item: Json, holding: Holding, gpus: Mapping[str, Gpu], root: Path, position: int = 0) -> Answer:
    return translate(item, holding, position, gpus, Host(root / "dev", LIBRARY_DIR, RUN_DIR))


def holding_of(item: Json, shares: Sequence[DeviceShare], cus: Mapping[str, Sequence[int]]) -> Holding:
    """Return a holding that no scheduler of ours would write."""
    real = read_holding(item)
    assert real is not None
    return Holding(real.demands, (tuple(shares),), {device: tuple(ids) for device, ids in cus.items()})


def test_everything_that_a_container_gets(root: Path) -> None:
    snapshot = machine(root, MadeGpu(), MadeGpu())
    item = bound_pod("one", [container("main", 2, mem=16384, cores=25)], snapshot)
    assert answer_for(item, snapshot, root) == Answer(
        env={
            "ROCR_VISIBLE_DEVICES": "GPU-8e1bb56457addd1b,GPU-8e1bb56457addd1c",
            "HIP_VISIBLE_DEVICES": "0,1",
            "HSA_CU_MASK": "0:0-75;1:0-75",
            "HIP_DEVICE_MEMORY_LIMIT": "16384m",
            "LD_AUDIT": "/usr/local/vgpu/libamvgpu.so",
            "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096",
            "AMVGPU_REGION": "/run/amd-vgpu",
        },
        devices=(
            HostNode("/dev/kfd", f"{root}/dev/kfd"),
            HostNode("/dev/dri/renderD128", f"{root}/dev/dri/renderD128"),
            HostNode("/dev/dri/renderD136", f"{root}/dev/dri/renderD136"),
        ),
        mounts=(
            Mount("/usr/local/vgpu", "/host/vgpu"),
            Mount("/run/amd-vgpu/region", "/host/run/pods/uid-one/main.region", read_only=False),
        ),
    )


def test_only_the_nodes_of_the_allocated_gpu(root: Path) -> None:
    snapshot = machine(root, MadeGpu(), MadeGpu(), MadeGpu())
    others = [bound_pod("first", [container("main")], snapshot)]
    item = bound_pod("second", [container("main")], snapshot, others=others)
    answer = answer_for(item, snapshot, root)
    assert [node.container_path for node in answer.devices] == ["/dev/kfd", "/dev/dri/renderD136"]
    assert answer.env["ROCR_VISIBLE_DEVICES"] == "GPU-8e1bb56457addd1c"


@pytest.mark.parametrize(
    ("key", "mask"),
    [("MI300X VF", "0:0-303"), ("MI210", "0:0-103"), ("RX 7900 XTX", "0:0-95"), ("gfx1250", "0:0-255")],
)
def test_a_whole_gpu_has_the_full_mask(root: Path, key: str, mask: str) -> None:
    snapshot = machine(root, MadeGpu(key))
    answer = answer_for(bound_pod("whole", [container("main")], snapshot), snapshot, root)
    assert answer.env["HSA_CU_MASK"] == mask
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == f"{snapshot.devices[0].memory_mib}m"


def test_whole_gpus_of_two_sizes_get_the_smaller_limit(root: Path) -> None:
    snapshot = machine(root, MadeGpu(memory_mib=1000), MadeGpu(memory_mib=900))
    answer = answer_for(bound_pod("whole", [container("main", 2)], snapshot), snapshot, root)
    assert answer.env["HIP_DEVICE_MEMORY_LIMIT"] == "900m"


def test_partitions_are_named_by_rank(root: Path) -> None:
    snapshot = machine(root, *partitions("MI300X CPX", 4, unique_id=7))
    others = [bound_pod("first", [container("main", 2)], snapshot)]
    item = bound_pod("second", [container("main", 2)], snapshot, others=others)
    answer = answer_for(item, snapshot, root)
    assert answer.env["ROCR_VISIBLE_DEVICES"] == "0,1"
    assert [node.container_path for node in answer.devices[1:]] == ["/dev/dri/renderD130", "/dev/dri/renderD131"]


def test_containers_of_a_pod_do_not_share_cus(root: Path) -> None:
    snapshot = machine(root, MadeGpu())
    apps = [container("a", mem=1, cores=25), container("b", mem=1, cores=50)]
    item = bound_pod("two", apps, snapshot)
    masks = [answer_for(item, snapshot, root, position).env["HSA_CU_MASK"] for position in (0, 1)]
    first, second = (read_mask(mask, gpus=1, cus=304).masks[0] for mask in masks)
    assert (len(first), len(second)) == (76, 152)
    assert not first & second


@pytest.mark.parametrize("path", ["/usr/local/vgpu", "/usr/local/vgpu/"])
def test_a_mount_that_the_pod_has_is_not_added(root: Path, path: str) -> None:
    snapshot = machine(root, MadeGpu())
    mounts = [{"name": "amd-vgpu", "mountPath": path}]
    apps = [container("has", cores=25, mem=1, volumeMounts=mounts), container("lacks", cores=25, mem=1)]
    item = bound_pod("two", apps, snapshot, init=[container("none", 0)])
    answers = [answer_for(item, snapshot, root, position) for position in (1, 2)]
    mounted = [[mount.container_path for mount in answer.mounts] for answer in answers]
    assert mounted == [["/run/amd-vgpu/region"], ["/usr/local/vgpu", "/run/amd-vgpu/region"]]


def test_every_container_has_a_memory_account_of_its_own(root: Path) -> None:
    snapshot = machine(root, MadeGpu())
    containers = [container("a", cores=10, mem=1), container("b", cores=10, mem=1)]
    pods = [bound_pod("one", containers, snapshot, init=[container("prepare", cores=10, mem=1)])]
    pods.append(bound_pod("two", containers, snapshot, others=pods))
    answers = [answer_for(pod, snapshot, root, at) for pod, last in ((pods[0], 3), (pods[1], 2)) for at in range(last)]
    accounts = [mount.host_path for answer in answers for mount in answer.mounts if not mount.read_only]
    assert accounts == [
        "/host/run/pods/uid-one/prepare.region",
        "/host/run/pods/uid-one/a.region",
        "/host/run/pods/uid-one/b.region",
        "/host/run/pods/uid-two/a.region",
        "/host/run/pods/uid-two/b.region",
    ]


@pytest.mark.parametrize("uid", ["../../etc", "", "a/b", ".", "x" * 300, "a\0b"])
def test_a_uid_that_is_no_name_is_refused(root: Path, uid: str) -> None:
    snapshot = machine(root, MadeGpu())
    item = bound_pod("one", [container("main")], snapshot)
    item["metadata"]["uid"] = uid
    with pytest.raises(AllocationError, match="its uid"):
        answer_for(item, snapshot, root)


MI300X = "GPU-8e1bb56457addd1b"


@pytest.mark.parametrize(
    ("key", "cus", "message"),
    [
        ("MI300X VF", range(7), "no CU in some of its 8 XCCs"),
        ("MI300X VF", range(0, 304, 8), "no CU in some of its 8 XCCs"),
        ("MI300X VF", [*range(303), 304], "distinct, at least one, below 304"),
        ("RX 7900 XTX", range(1, 9), "half a pair of CUs"),
        ("RX 7900 XTX", range(15), "half a pair of CUs"),
        ("gfx1250", range(128), "can only be given as a whole"),
    ],
)
def test_a_mask_that_the_hardware_would_not_keep_to_is_refused(
    root: Path, key: str, cus: Sequence[int], message: str
) -> None:
    snapshot = machine(root, MadeGpu(key))
    item = bound_pod("one", [container("main")], snapshot)
    holding = holding_of(item, [DeviceShare(MI300X, "any", 1, len(cus))], {MI300X: cus})
    with pytest.raises(AllocationError, match=message):
        answer_by(item, holding, snapshot.by_id(), root)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([DeviceShare("GPU-0", "any", 1, 304)], "GPU 'GPU-0' is not on this node"),
        ([DeviceShare(MI300X, "any", 0, 304)], "no memory"),
        ([DeviceShare(MI300X, "any", 1, 8), DeviceShare(MI300X, "any", 1, 8)], "two shares of one GPU"),
        ([DeviceShare(MI300X, "any", 1, 305)], "are too few"),
    ],
)
def test_shares_that_cannot_be_given_are_refused(root: Path, shares: Sequence[DeviceShare], message: str) -> None:
    snapshot = machine(root, MadeGpu())
    item = bound_pod("one", [container("main")], snapshot)
    holding = holding_of(item, shares, {MI300X: range(304)})
    with pytest.raises(AllocationError, match=message):
        answer_by(item, holding, snapshot.by_id(), root)


def test_an_unhealthy_gpu_is_refused(root: Path) -> None:
    snapshot = machine(root, MadeGpu())
    item = bound_pod("one", [container("main")], snapshot)
    (root / "dev/dri/renderD128").unlink()
    now = discover(root / "sys", root / "dev")
    with pytest.raises(AllocationError, match="is unhealthy"):
        answer_for(item, now, root)


def test_a_pod_without_an_allocation_has_no_holding() -> None:
    assert read_holding(pod("none", {"containers": [{"name": "main"}]}, {})) is None
    with pytest.raises(AllocationError, match="it has no annotation"):
        read_holding(pod("none", {"containers": [container("main")]}, {}))
