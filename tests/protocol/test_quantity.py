"""Quantities: what Kubernetes writes and what people write."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.quantity import QuantityError, parse_integer, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("50", 50),
        ("+5", 5),
        ("-1", -1),
        ("16k", 16_000),
        ("5M", 5_000_000),
        ("16Gi", 16 * 1024**3),
        ("0.5Mi", 512 * 1024),
        ("1e2", 100),
        ("1E2", 100),
        ("12e6", 12_000_000),
        ("1E", 10**18),
        ("1Ei", 1024**6),
        ("2000m", 2),
        ("1.0", 1),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("25500m", Fraction(51, 2)),
        ("25.5", Fraction(51, 2)),
        ("100n", Fraction(1, 10**7)),
        (16384, 16384),
        (25.5, Fraction(51, 2)),
        ("1e-2", Fraction(1, 100)),
    ],
)
def test_a19_quantities(text: object, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "abc", "1K", "NaN", "Infinity", "inf", "1_000", "٣", " 5", "5 ", "1e", "e2", "--1", "1.2.3", "5mi", "0x10",
     "1e9999", "9" * 65, True, None, [], {}, float("nan"), float("inf"), b"5"],
)  # fmt: skip
def test_a19_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["25.5", "25500m", "500m", "0.1", "1n"])
def test_a_fraction_is_no_integer(text: str) -> None:
    with pytest.raises(QuantityError, match="whole number"):
        parse_integer(text)


@given(st.integers(-(10**15), 10**15), st.sampled_from(["k", "M", "G", "Ki", "Mi", "Gi"]))
def test_a_suffix_multiplies(number: int, suffix: str) -> None:
    base = 1024 if suffix.endswith("i") else 1000
    assert parse_integer(f"{number}{suffix}") == number * base ** ("kMG".index(suffix[0].replace("K", "k")) + 1)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_quantity(text)
    except QuantityError:
        return
    assert text.isascii()
