import pytest

from plugin.counts import count_for, read_count

VF = "AMD Instinct MI300X VF"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("20", ("", 20)),
        ("MI300X=20", ("MI300X", 20)),
        (" RX  7900 XTX =1", ("RX 7900 XTX", 1)),
        ("a=b=1000", ("a=b", 1000)),
        ("-1", ("", -1)),
    ],
)
def test_what_is_read(text: str, read: tuple[str, int]) -> None:
    assert read_count(text) == read


@pytest.mark.parametrize("text", ["", "1.5", "--1", "=5", " =5", "MI300X=", "MI300X", "MI300X=a", "\u0663", "9" * 5000])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ValueError, match=r"^count: '.*must be"):
        read_count(text)


@pytest.mark.parametrize(
    ("by_type", "count"),
    [
        ({}, 10),
        ({"MI300X": 20}, 20),
        ({"mi300x": 20}, 20),
        ({"MI300": 20}, 10),
        ({"MI300X VF": 5, "MI300X": 20}, 5),
        ({"MI300X": 20, "AMD Instinct MI300X VF": 7}, 7),
        ({"MI210": 20}, 10),
        ({"Instinct VF": 20}, 10),
    ],
)
def test_the_longest_type_that_fits_counts(by_type: dict[str, int], count: int) -> None:
    assert count_for(VF, 10, by_type) == count
