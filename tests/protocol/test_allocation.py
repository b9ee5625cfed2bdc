"""The allocation annotations: written by position, read as either side writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.allocation import (
    AllocationError,
    DeviceShare,
    Segments,
    align_segments,
    decode_cus,
    decode_segments,
    encode_cus,
    encode_segments,
)
from protocol.cuset import format_ids

WORDS = st.text(st.characters(exclude_characters=",:;", exclude_categories=["C"]), min_size=1, max_size=24)
TRIMMED = WORDS.map(str.strip)
SHARES = st.builds(DeviceShare, TRIMMED.filter(bool), TRIMMED, st.integers(0, 10**8), st.integers(0, 1024))
SEGMENTS = st.lists(st.lists(SHARES, max_size=4).map(tuple), min_size=1, max_size=6).map(tuple)
T = "AMD Instinct MI300X VF"


@given(SEGMENTS)
def test_decode_of_encode_is_the_same(segments: Segments) -> None:
    assert decode_segments(encode_segments(segments)) == segments


@pytest.mark.parametrize(
    ("segments", "text"),
    [
        (((DeviceShare("U1", T, 49152, 76),),), f"U1,{T},49152,76:;"),
        (((DeviceShare("U1", T, 1, 2), DeviceShare("U2", T, 1, 2)),), f"U1,{T},1,2:U2,{T},1,2:;"),
        (((), (DeviceShare("U1", T, 1024, 30),)), f";U1,{T},1024,30:;"),
        (((DeviceShare("U1", T, 1, 2),), ()), f"U1,{T},1,2:;;"),
        (((),), ";"),
    ],
)
def test_the_written_form(segments: Segments, text: str) -> None:
    assert encode_segments(segments) == text
    assert decode_segments(text) == segments


def test_a_segment_without_its_terminator_and_old_placeholders_are_read() -> None:
    assert decode_segments("U1,T,1,2") == ((DeviceShare("U1", "T", 1, 2),),)
    assert decode_segments(",,0,0:;U1,T,1,2:;") == ((), (DeviceShare("U1", "T", 1, 2),))
    assert decode_segments("") == ()


@pytest.mark.parametrize("text", ["x", "U,T,1:;", "U,T,one,2:;", "U,T,-1,2:;", "U,T,1,2.5:;", f"U,T,{'9' * 10},1:;"])
def test_an_unreadable_segment_is_refused(text: str) -> None:
    with pytest.raises(AllocationError):
        decode_segments(text)


SHARE = (DeviceShare("U1", "T", 1, 2),)


@pytest.mark.parametrize(
    ("segments", "wanting", "aligned"),
    [
        (((), SHARE), [False, True], ((), SHARE)),
        ((SHARE,), [False, True], ((), SHARE)),  # HAMi 2.10 writes no empty segments
        ((SHARE, SHARE), [True, False, True], (SHARE, (), SHARE)),
        ((SHARE, ()), [False, True], ((), SHARE)),
        ((), [False], ((),)),
    ],
)
def test_hami_2899_segments_without_placeholders_find_their_containers(
    segments: Segments, wanting: list[bool], aligned: Segments
) -> None:
    assert align_segments(segments, wanting) == aligned


def test_segments_of_another_pod_are_refused() -> None:
    with pytest.raises(AllocationError, match="2 containers have devices, 1 ask"):
        align_segments((SHARE, SHARE), [True, False])


@given(st.dictionaries(WORDS, st.lists(st.integers(0, 303), min_size=1, unique=True).map(tuple), max_size=4))
def test_cu_lists_are_read_back_in_their_order(cus: dict[str, tuple[int, ...]]) -> None:
    assert decode_cus(encode_cus({key: format_ids(ids) for key, ids in cus.items()})) == cus


@pytest.mark.parametrize("text", ["", "[]", '{"a":1}', '{"a":"0-"}', '{"a":"0,0"}', '{"a":"9999"}', "[" * 100_000])
def test_an_unreadable_cu_annotation_is_refused(text: str) -> None:
    with pytest.raises(AllocationError):
        decode_cus(text)
