"""CU lists: their text and its reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.cuset import CuSetError, format_ids, format_parts, parse_ids

CU_IDS = st.lists(st.integers(0, 303), min_size=1, max_size=304, unique=True)


@given(CU_IDS)
def test_decode_of_encode_is_the_same(ids: list[int]) -> None:
    assert list(parse_ids(format_ids(ids), limit=304)) == ids


@given(st.sets(st.integers(0, 303), min_size=2, max_size=60), st.data())
def test_parts_can_be_cut_apart_by_their_sizes(ids: set[int], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(sorted(ids)))
    cut = data.draw(st.integers(1, len(shuffled) - 1))
    parts = [shuffled[:cut], shuffled[cut:]]
    read = parse_ids(format_parts(parts), limit=304)
    assert (list(read[:cut]), list(read[cut:])) == (sorted(parts[0]), sorted(parts[1]))


def test_ranges_of_two_parts_stay_apart() -> None:
    assert format_parts([range(4), range(4, 8)]) == "0-3,4-7"
    assert format_parts([[2, 0, 1], [], [9]]) == "0-2,9"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be N or N-M"),
        ("0-3,", "must be N or N-M"),
        ("a", "must be N or N-M"),
        ("-3", "must be N or N-M"),
        ("3-", "must be N or N-M"),
        ("1-2-3", "must be N or N-M"),
        ("3-1", "must rise"),
        ("0-304", "stay below 304"),
        ("99999", "must be N or N-M"),
        ("0-3,2", "names a CU twice"),
        ("0-303,0-303,0-303", "names a CU twice"),
        ("٣", "must be N or N-M"),
    ],
)
def test_a_bad_list_is_refused_with_its_fault(text: str, why: str) -> None:
    with pytest.raises(CuSetError, match=why):
        parse_ids(text, limit=304)


def test_blanks_around_elements_are_read_over() -> None:
    assert parse_ids(" 0-2 , 8", limit=304) == (0, 1, 2, 8)
