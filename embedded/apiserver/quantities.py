"""Quantities in the spelling in which the API server gives them back: `1000` becomes `1k`."""

from typing import Any, Final

_SUFFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def canonical(value: object) -> Any:
    """Return a whole number as text with the largest suffix that leaves it whole; anything else as it is."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.isascii() or not text.isdigit():
        return value
    number, power = int(text), 0
    while number and number % 1000 == 0 and power < len(_SUFFIXES) - 1:
        number, power = number // 1000, power + 1
    return f"{number}{_SUFFIXES[power]}"


def canonical_all(quantities: Any) -> Any:
    """Return a mapping of quantities, each in its spelling; anything else as it is."""
    if not isinstance(quantities, dict):
        return quantities
    return {name: canonical(value) for name, value in quantities.items()}
