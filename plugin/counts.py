"""How many pods may share a GPU, by its type."""

import re
from collections.abc import Mapping
from typing import Final

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 1000
"""The kubelet takes gRPC messages of at most 4 MiB; this many ids for each of 64 GPUs still fit."""

_NUMBER: Final = re.compile(r"-?[0-9]{1,9}", re.ASCII)


def read_count(text: str) -> tuple[str, int]:
    """Return the type and the count of `MI300X=20`; the type is empty where only the number is given.

    Raises:
        ValueError: no number, or no type before the `=`.
    """
    product, equals, number = text.rpartition("=")
    words = " ".join(product.split())
    if not _NUMBER.fullmatch(number) or (equals and not words):
        raise ValueError(f"count: {text[:80]!r}: must be a number such as 20, or a type and a number such as MI300X=20")
    return words, int(number)


def count_for(product: str, default: int, by_type: Mapping[str, int]) -> int:
    """Return how many pods may share a GPU of this product.

    Args:
        product: such as `AMD Instinct MI300X VF`.
        default: for products that no type fits.
        by_type: counts by type. A type fits if the product's name has its words in a row, in upper or lower case:
            `MI300X` fits the product above, `MI300` does not. The longest that fits counts.
    """
    name = f" {product.casefold()} "
    fitting = [known for known in by_type if f" {known.casefold()} " in name]
    return by_type[max(fitting, key=len)] if fitting else default
