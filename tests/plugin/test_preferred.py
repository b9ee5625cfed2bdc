from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.discovery import Gpu, Offer, discover
from plugin.preferred import preferred
from plugin.replicas import gpus_by_replica
from tests.trees import MadeGpu, make_tree


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Gpu]:
    """Four GPUs a, b, c, d, two at each NUMA node, with three replicas."""
    root = tmp_path_factory.mktemp("made")
    make_tree(root, [MadeGpu(unique_id=number, numa_node=number % 2) for number in range(1, 5)])
    return gpus_by_replica(discover(root / "sys", root / "dev", Offer(count=3)).gpus)


def ids(text: str) -> list[str]:
    """`a0 b2` in full."""
    return [f"GPU-{'_abcd'.index(word[0]):016x}-{word[1]}" for word in text.split()]


ALL = "a0 a1 a2 b0 b1 b2 c0 c1 c2 d0 d1 d2"


@pytest.mark.parametrize(
    ("available", "included", "size", "chosen"),
    [
        (ALL, "", 1, "a0"),
        ("a1 a2 b0 b1 b2 c0 c1 c2 d0 d1 d2", "", 1, "b0"),  # a is in use
        ("a2 b1 b2 c2 d2", "", 1, "b1"),  # b least so
        (ALL, "", 2, "a0 c0"),  # at the same NUMA node
        ("a0 a1 a2 b0 b1 b2 c2 d0 d1 d2", "", 2, "a0 b0"),  # better far than in use
        (ALL, "", 4, "a0 c0 b0 d0"),
        (ALL, "", 5, "a0 c0 b0 d0 a1"),
        ("a0 a1 a2", "", 2, "a0 a1"),  # no other choice
        (ALL, "b1", 2, "b1 d0"),
        (ALL, "d0 d1", 1, "d0"),
        ("a0", "", 3, "a0"),
        ("", "", 1, ""),
    ],
)
def test_spread(gpus: dict[str, Gpu], available: str, included: str, size: int, chosen: str) -> None:
    assert preferred(ids(available), ids(included), size, gpus) == ids(chosen)


def test_ids_of_nobody_are_passed_over(gpus: dict[str, Gpu]) -> None:
    assert preferred(["x-0", "GPU-1-0", ""], [], 2, gpus) == []
    assert preferred([*ids("a0 b0"), "x-0"], ["x-0"], 2, gpus) == ["x-0", *ids("a0")]


@given(st.sets(st.sampled_from(ids(ALL))), st.integers(0, 12), st.data())
def test_it_is_what_the_kubelet_takes(
    gpus: dict[str, Gpu], available: set[str], size: int, data: st.DataObject
) -> None:
    """The kubelet refuses fewer ids than there are, ids that are not free, and the lack of those it must include."""
    included = sorted(data.draw(st.sets(st.sampled_from(sorted(available)), max_size=size))) if available else []
    chosen = preferred(sorted(available), included, size, gpus)
    assert len(set(chosen)) == len(chosen) == min(size, len(available))
    assert set(included) <= set(chosen) <= available
    if not included:
        names = {device_id.rpartition("-")[0] for device_id in available}
        assert len({device_id.rpartition("-")[0] for device_id in chosen}) == min(size, len(names))


def test_the_kubelet_asks_nobody_twice_for_one_gpu_while_others_are_idle(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu()] * 8)
    gpus = gpus_by_replica(discover(tmp_path / "sys", tmp_path / "dev").gpus)
    free, loads = set(gpus), dict.fromkeys({gpu.id for gpu in gpus.values()}, 0)
    for _ in range(80):
        (chosen,) = preferred(sorted(free), [], 1, gpus)
        free.remove(chosen)
        loads[gpus[chosen].id] += 1
        assert max(loads.values()) - min(loads.values()) <= 1
