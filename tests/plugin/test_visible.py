from pathlib import Path

import pytest

from plugin.discovery import Gpu, discover
from plugin.visible import visible_devices
from tests.trees import MadeGpu, make_tree


def host(root: Path, *unique_ids: int) -> tuple[Gpu, ...]:
    make_tree(root, [MadeGpu(unique_id=unique_id) for unique_id in unique_ids])
    return discover(root / "sys", root / "dev").gpus


def test_uuids_in_allocation_order(tmp_path: Path) -> None:
    first, second = host(tmp_path, 1, 2)
    assert visible_devices([second, first]) == "GPU-0000000000000002,GPU-0000000000000001"


@pytest.mark.parametrize(
    ("allocated", "value"),
    [([0], "0"), ([3], "0"), ([0, 3], "0,1"), ([3, 0], "1,0"), ([2, 3, 0], "1,2,0")],
)
def test_c18_ranks_among_the_mounted_in_kfd_order(tmp_path: Path, allocated: list[int], value: str) -> None:
    gpus = host(tmp_path, 0, 0, 7, 7)
    assert visible_devices([gpus[index] for index in allocated]) == value


def test_one_gpu_without_uuid_makes_all_ranks(tmp_path: Path) -> None:
    gpus = host(tmp_path, 5, 0)
    assert visible_devices(gpus) == "0,1"
    assert visible_devices([gpus[0]]) == "GPU-0000000000000005"


def test_unique_among_all_gpus_of_the_host_not_just_the_mounted(tmp_path: Path) -> None:
    gpus = host(tmp_path, 7, 7)
    assert visible_devices([gpus[1]]) == "0"


def test_the_tenth_node_comes_after_the_second(tmp_path: Path) -> None:
    gpus = host(tmp_path, *[0] * 10)
    assert visible_devices([gpus[9], gpus[1]]) == "1,0"
