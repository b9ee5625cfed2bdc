from pathlib import Path

from plugin.ailment import Cause
from plugin.discovery import Snapshot, discover
from plugin.health import carry_over, changes
from tests.trees import MACHINES, MadeGpu, make_tree, partitions
from tests.trees.changes import report_errors, take_device_node


def look(root: Path, *gpus: MadeGpu) -> Snapshot:
    make_tree(root, gpus)
    return look_again(root)


def look_again(root: Path) -> Snapshot:
    return discover(root / "sys", root / "dev")


def causes(snapshot: Snapshot) -> dict[str, Cause | None]:
    return {gpu.id: gpu.ailment.cause if gpu.ailment else None for gpu in snapshot.gpus}


def test_a_vanished_gpu_is_kept_as_unhealthy_and_comes_back(tmp_path: Path) -> None:
    both = look(tmp_path, MadeGpu(), MadeGpu())
    one = carry_over(both, look(tmp_path, MadeGpu()))
    assert causes(one) == {both.gpus[0].id: None, both.gpus[1].id: Cause.GONE}
    assert [(gpu.info.healthy, gpu.info.index) for gpu in one.gpus] == [(True, 0), (False, 1)]
    assert carry_over(one, look(tmp_path, MadeGpu(), MadeGpu())) == both


def test_old_partitions_stay_as_unhealthy_beside_the_new(tmp_path: Path) -> None:
    other = MadeGpu("MI300X", unique_id=8, render_minor=200, location_id=0x1500)
    whole = look(tmp_path, MadeGpu("MI300X", unique_id=7), other)
    new = [f"PCI-0000-05-00.{part}-CPX" for part in range(8)]
    cut = carry_over(whole, look(tmp_path, *partitions("MI300X CPX", 8, unique_id=7), other))
    assert causes(cut) == {
        "GPU-0000000000000007": Cause.REPARTITIONED,
        **dict.fromkeys(new, None),
        "GPU-0000000000000008": None,
    }
    back = carry_over(cut, look(tmp_path, MadeGpu("MI300X", unique_id=7), other))
    assert causes(back) == {
        "GPU-0000000000000007": None,
        **dict.fromkeys(new, Cause.REPARTITIONED),
        "GPU-0000000000000008": None,
    }


def test_a_partition_with_the_whole_gpus_id_is_not_taken_for_it(tmp_path: Path) -> None:
    """Its CU ids mean other units than those that running pods were given of the whole GPU."""
    first, second = (
        MadeGpu("MI300X CPX", unique_id=7 + part, render_minor=128 + part, location_id=0x0500 + part)
        for part in range(2)
    )
    whole = look(tmp_path, MadeGpu("MI300X", unique_id=7))
    cut = look(tmp_path, first, second)
    assert [gpu.id for gpu in whole.gpus] == [cut.gpus[0].id] == ["GPU-0000000000000007"]
    now = carry_over(whole, cut)
    assert causes(now) == {"GPU-0000000000000007": Cause.REPARTITIONED, "GPU-0000000000000008": None}
    assert now.by_id()["GPU-0000000000000007"].info.cu_count == 304
    assert carry_over(now, cut) == now, "and so it stays"
    assert carry_over(now, whole).by_id()["GPU-0000000000000007"] == whole.gpus[0]


def test_ids_stay_unique_over_any_sequence_of_machines(tmp_path: Path) -> None:
    snapshot = Snapshot()
    sizes: dict[str, int] = {}
    for machine in [*MACHINES.values(), *MACHINES.values()]:
        seen = look(tmp_path, *machine)
        snapshot = carry_over(snapshot, seen)
        ids = [gpu.id for gpu in snapshot.gpus]
        assert len(ids) == len(set(ids))
        assert [gpu.info.index for gpu in snapshot.gpus] == list(range(len(ids)))
        # The made machines use some ids again, for other products.
        known = {gpu.id for gpu in seen.gpus if sizes.setdefault(gpu.id, gpu.info.cu_count) == gpu.info.cu_count}
        assert {gpu.id for gpu in snapshot.gpus if gpu.info.healthy} == known


def test_changes_in_words(tmp_path: Path) -> None:
    first = look(tmp_path, MadeGpu("MI210", uncorrectable={"umc": 0}))
    (gpu,) = first.gpus
    assert [str(one) for one in changes(Snapshot(), first)] == [f"GPU {gpu.id} is there: AMD Instinct MI210"]
    assert list(changes(first, first)) == []
    report_errors(tmp_path, "0000:05:00.0", "umc", 1)
    ill = look_again(tmp_path)
    assert [str(one) for one in changes(first, ill)] == [
        f"GPU {gpu.id} is unhealthy, uncorrectable-errors: uncorrectable errors since the driver was loaded: umc 1"
    ]
    report_errors(tmp_path, "0000:05:00.0", "umc", 2)
    assert list(changes(ill, look_again(tmp_path))) == [], "more of the same"
    take_device_node(tmp_path, "kfd")
    worse = look_again(tmp_path)
    (change,) = changes(ill, worse)
    assert "device-node-missing" in str(change)
    assert [str(one) for one in changes(worse, first)] == [
        f"GPU {gpu.id} is healthy again, device-node-missing is over"
    ]
