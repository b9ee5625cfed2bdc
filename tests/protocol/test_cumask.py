"""HSA_CU_MASK: what is written, and ROCr's own reading of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.cumask import MaskError, read_mask, write_mask
from protocol.cuset import format_ids

ONE_GPU = st.lists(st.integers(0, 303), min_size=1, max_size=304, unique=True)


@given(st.lists(ONE_GPU, min_size=1, max_size=8))
def test_a_written_mask_is_read_back_whole(cus: list[list[int]]) -> None:
    read = read_mask(write_mask(cus, cu_counts=[304] * len(cus)), gpus=len(cus), cus=304)
    assert read.dropped == ""
    assert read.masks == {index: frozenset(ids) for index, ids in enumerate(cus)}


def test_the_written_form() -> None:
    assert write_mask([range(76), [1, 0, 5]], cu_counts=[304, 38]) == "0:0-75;1:0-1,5"


@pytest.mark.parametrize(
    ("cus", "counts"),
    [
        ([], []),
        ([[]], [304]),
        ([[0, 0]], [304]),
        ([[304]], [304]),
        ([[-1]], [304]),
        ([[0], [38]], [304, 38]),
        ([[0]], [304, 304]),
    ],
)
def test_a_mask_that_would_fail_open_is_never_written(cus: list[list[int]], counts: list[int]) -> None:
    with pytest.raises(MaskError):
        write_mask(cus, cu_counts=counts)


@pytest.mark.parametrize(
    ("text", "gpus", "masks", "dropped"),
    [
        ("0:0-75", 1, {0: "0-75"}, ""),
        ("0:0-75;", 1, {0: "0-75"}, ""),
        ("0:0-75;1:76-151", 2, {0: "0-75", 1: "76-151"}, ""),
        ("0,1:0-75", 2, {0: "0-75", 1: "0-75"}, ""),
        ("0: 0 - 3 , 8", 1, {0: "0-3,8"}, ""),
        ("0:0xFF", 1, {0: "0-7"}, ""),
        ("0:0-75;0:76-80", 1, {0: "0-75"}, "0:76-80"),
        (";0:0-75", 1, {}, ";0:0-75"),
        ("GPU-ab12:0-75", 1, {}, "GPU-AB12:0-75"),
        ("0:0-3,2", 1, {}, "0:0-3,2"),
        ("0:300-310", 1, {0: "300-304"}, ""),
        ("0:305-400", 1, {}, "0:305-400"),
        ("0:0x1,2", 1, {}, "0:0X1,2"),
        ("0:0x0", 1, {}, "0:0X0"),
        ("0:0-3;bad;1:0-3", 2, {0: "0-3"}, "BAD;1:0-3"),
        ("1:0-3;0-1:4-7", 2, {1: "0-3"}, "0-1:4-7"),
        ("0:304-400", 1, {0: "304"}, ""),
        ("0:75-0", 1, {}, "0:75-0"),
        ("1:0-75", 1, {1: "0-75"}, ""),
        ("0:1,", 1, {0: "1"}, ""),
        ("0:-3", 1, {0: "0-3"}, ""),
        ("0:3-", 1, {0: "3"}, ""),
        ("0:1:2", 1, {}, "0:1:2"),
        ("0:", 1, {}, "0:"),
        ("0:0-4000000000", 1, {0: "0-304"}, ""),
        ("", 1, {}, ""),
    ],
)
def test_reading_follows_rocr(text: str, gpus: int, masks: dict[int, str], dropped: str) -> None:
    read = read_mask(text, gpus=gpus, cus=304)
    assert {gpu: format_ids(sorted(ids)) for gpu, ids in read.masks.items()} == masks
    assert read.dropped == dropped


@given(st.text(alphabet="0123456789-,:;xXaF g", max_size=40))
def test_any_text_is_read_without_a_crash_and_never_names_a_cu_twice(text: str) -> None:
    read = read_mask(text, gpus=4, cus=304)
    assert all(ids for ids in read.masks.values())
    assert all(gpu <= 4 for gpu in read.masks)
