"""The choice of CUs: the obligations that its module states, as properties."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.cuchoice import can_choose, can_extend, choose_cus, extend_cus
from protocol.devices import DeviceInfo
from tests.protocol.makers import MI210, MI300A, MI300X, RX7900, UNKNOWN

DIVISIBLE = st.sampled_from([MI300X, MI300A, MI210, RX7900])


@st.composite
def free_sets(draw: st.DrawFn, device: DeviceInfo) -> set[int]:
    """Free ids as they come about: runs, holes, and single ids."""
    ids = set(range(device.cu_count))
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, device.cu_count - 1))
        ids -= set(range(start, start + draw(st.integers(1, 80))))
    return ids - draw(st.sets(st.integers(0, device.cu_count - 1), max_size=40))


def xcc_counts(ids: tuple[int, ...], device: DeviceInfo) -> list[int]:
    counts = Counter(cu % device.xcc_count for cu in ids)
    return [counts[xcc] for xcc in range(device.xcc_count)]


def whole_pairs(free: set[int]) -> set[int]:
    return {cu for cu in free if cu ^ 1 in free}


def is_possible(free: set[int], count: int, device: DeviceInfo) -> bool:
    """Whether any valid choice exists, told without making one."""
    usable = whole_pairs(free) if device.wgp else free
    return len(usable) >= count and all(xcc_counts(tuple(usable), device))


@given(st.data(), DIVISIBLE)
def test_a_choice_is_valid_and_exists_whenever_one_does(data: st.DataObject, device: DeviceInfo) -> None:
    free = data.draw(free_sets(device))
    count = device.cus_for(data.draw(st.integers(1, 100)))
    chosen = choose_cus(free, count, device)
    assert (chosen is not None) == is_possible(free, count, device) == can_choose(free, count, device)
    if chosen is not None:
        assert len(set(chosen)) == len(chosen) == count
        assert set(chosen) <= free
        assert list(chosen) == sorted(chosen)
        assert all(xcc_counts(chosen, device))
        assert not device.wgp or whole_pairs(set(chosen)) == set(chosen)


@given(st.data())
def test_a_choice_is_as_even_over_xccs_as_the_free_ids_allow(data: st.DataObject) -> None:
    free = data.draw(free_sets(MI300X))
    chosen = choose_cus(free, MI300X.cus_for(data.draw(st.integers(1, 99))), MI300X)
    assume(chosen is not None)
    assert chosen is not None
    taken, available = xcc_counts(chosen, MI300X), xcc_counts(tuple(free), MI300X)
    for xcc, count in enumerate(taken):
        # An XCC may have fewer than another by more than one only when it has no more to give.
        assert max(taken) - count <= 1 or count == available[xcc]


def test_the_first_shares_are_contiguous() -> None:
    assert choose_cus(range(304), 76, MI300X) == tuple(range(76))
    assert choose_cus(range(76, 304), 36, MI300X) == tuple(range(76, 112))


def test_the_smallest_run_that_holds_it_is_taken() -> None:
    free = set(range(10, 60)) | set(range(100, 140)) | set(range(200, 304))
    assert choose_cus(free, 36, MI300X) == tuple(range(100, 136))


def test_a_split_choice_comes_before_a_refusal() -> None:
    free = set(range(0, 304, 2)) | {1, 3, 5, 7}
    chosen = choose_cus(free, 20, MI300X)
    assert chosen is not None
    assert all(xcc_counts(chosen, MI300X))


@pytest.mark.parametrize(
    ("device", "free", "count"),
    [
        (MI300X, range(0, 304, 8), 38),  # one XCC only: the other seven would run unmasked
        (MI300X, range(304), 7),  # fewer than there are XCCs
        (MI300X, range(76), 77),
        (MI300X, range(1, 304), 304),
        (RX7900, range(0, 96, 2), 2),  # no pair is whole
        (RX7900, range(96), 3),
        (UNKNOWN, range(40), 20),  # not divisible
        (MI210, range(104), 0),
    ],
)
def test_no_choice_that_would_leak_is_made(device: DeviceInfo, free: range, count: int) -> None:
    assert choose_cus(free, count, device) is None
    assert not can_choose(free, count, device)


def test_a_whole_gpu_needs_no_knowledge_of_its_parts() -> None:
    assert choose_cus(range(40), 40, UNKNOWN) == tuple(range(40))


@given(st.data(), DIVISIBLE)
def test_an_extension_keeps_what_is_held_and_stays_valid(data: st.DataObject, device: DeviceInfo) -> None:
    everything = set(range(device.cu_count))
    held = choose_cus(everything, device.cus_for(data.draw(st.integers(1, 50))), device)
    assert held is not None
    free = data.draw(free_sets(device)) - set(held)
    count = device.cus_for(data.draw(st.integers(1, 100)))
    extra = extend_cus(held, free, count, device)
    needed = max(0, count - len(held))
    usable = whole_pairs(free) if device.wgp else free
    assert (extra is not None) == (len(usable) >= needed) == can_extend(held, free, count, device)
    if extra is not None:
        assert len(extra) == needed
        assert set(extra) <= free
        assert choose_cus([*held, *extra], count, device) is not None
