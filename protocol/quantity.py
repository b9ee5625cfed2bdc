"""Kubernetes quantities as exact numbers.

The API server stores the canonical spelling, not the user's: `16000` comes back as `16k` and `25.5` as `25500m`, so an
integer resource cannot be read with `int`. Grammar: `k8s.io/apimachinery/pkg/api/resource/quantity.go`.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
# A user's text ends up here before the API server has looked at it, so the exponent is bounded before it is raised.
_EXPONENT_DIGITS: Final = 3
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    rf"(?:[eE](?P<exponent>[+-]?[0-9]{{1,{_EXPONENT_DIGITS}}})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_MAX_LENGTH: Final = 64


class QuantityError(ValueError):
    """The text is no Kubernetes quantity."""


def parse_quantity(value: object) -> Fraction:
    """Return the exact value of a quantity as Kubernetes reads it.

    Args:
        value: what stands in the manifest: a string, or a JSON number as a raw manifest may hold it.

    Raises:
        QuantityError: the value is neither a number nor a string of the grammar.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"{value!r} is not a quantity")
    return _parse(value if isinstance(value, str) else repr(value))


@lru_cache(maxsize=1024)  # a cluster's pods name the same few amounts again and again
def _parse(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity")
    if match["exponent"]:
        return Fraction(match["number"]) * Fraction(10) ** int(match["exponent"])
    return Fraction(match["number"]) * _SUFFIXES[match["suffix"] or ""]


def parse_integer(value: object) -> int:
    """Return a quantity that must be a whole number, as extended resources must.

    Raises:
        QuantityError: the value is no quantity, or has a fraction.
    """
    number = parse_quantity(value)
    if number.denominator != 1:
        raise QuantityError(f"{value!r} is not a whole number")
    return number.numerator
