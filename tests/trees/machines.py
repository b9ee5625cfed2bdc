"""Machines by name, and short descriptions of others: what the tests, the demo and the benchmarks run on."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tests.trees.products import PRODUCTS
from tests.trees.tree import MadeGpu, partitions

_SEVERAL: Final = re.compile(r"(?P<number>[1-9][0-9]?) *x +(?P<product>.+)", re.ASCII)
_HEALTHY: Final[Mapping[str, int]] = {"umc": 0, "gfx": 0, "sdma": 0}

MACHINES: Final[Mapping[str, tuple[MadeGpu, ...]]] = {
    "mi300x-spx": (MadeGpu("MI300X", unique_id=4376936076086227261, location_id=18176, uncorrectable=_HEALTHY),),
    "mi300x-vf": (MadeGpu("MI300X VF"),),
    "mi300x-cpx-nps4": partitions("MI300X CPX", 8, unique_id=16404946649897475633),
    "mi210-x8": tuple(MadeGpu("MI210", numa_node=number // 4, uncorrectable=_HEALTHY) for number in range(8)),
    "mi355x": (MadeGpu("MI355X", uncorrectable=_HEALTHY),),
    "rx-7900-xtx": (MadeGpu("RX 7900 XTX", unique_id=11673270660693242239, location_id=34304, numa_node=-1),),
    # The integrated GPU is the first or the last as the firmware likes; neither it nor some consumer GPUs have an id.
    "w7900-x2-apu": (
        MadeGpu("Radeon PRO W7900", unique_id=0, numa_node=-1),
        MadeGpu("Radeon PRO W7900", numa_node=-1),
        MadeGpu("Raphael", unique_id=0, numa_node=-1),
    ),
    "mixed": (MadeGpu("MI300X"), MadeGpu("MI210", numa_node=1), MadeGpu("RX 7900 XTX", numa_node=1)),
}
"""One GPU in its whole (SPX), a virtual function, eight partitions, eight GPUs, the newest, and two workstations, and
one machine with three types of GPU."""


def describe(words: Iterable[str]) -> tuple[MadeGpu, ...]:
    """Return the GPUs of a machine that is described in words.

    Args:
        words: each the name of a machine (`mi300x-spx`), of a product (`MI210`), or of several (`4 x MI210`).

    Raises:
        ValueError: a word that names neither; the message has all names.
    """
    return tuple(gpu for word in words for gpu in _described(word))


def _described(word: str) -> tuple[MadeGpu, ...]:
    if word in MACHINES:
        return MACHINES[word]
    several = _SEVERAL.fullmatch(word)
    number, product = (int(several["number"]), several["product"]) if several else (1, word)
    if product not in PRODUCTS:
        names = ", ".join([*MACHINES, *PRODUCTS])
        raise ValueError(f"{word!r}: must be one of {names}, or a number of one product, such as '4 x MI210'")
    return (MadeGpu(product),) * number
