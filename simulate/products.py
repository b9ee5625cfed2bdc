"""GPUs that can be named in a description of nodes: what a device plugin registers of them.

Compute units and XCCs are the products'; memory is the usable amount where it is known, else the nominal one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Product:
    """A whole GPU. Partition modes other than SPX divide CUs, XCCs and memory evenly."""

    name: str
    cu_count: int
    memory_mib: int
    xcc_count: int = 1
    wgp: bool = False


MODES: Final[Mapping[str, int]] = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": 0}
"""Compute partition modes and into how many parts each divides a GPU; CPX into as many as it has XCCs."""

PRODUCTS: Final[Mapping[str, Product]] = {
    "MI100": Product("AMD Instinct MI100", 120, 32752),
    "MI210": Product("AMD Instinct MI210", 104, 65520),
    "MI250X": Product("AMD Instinct MI250X", 110, 65520),
    "MI300A": Product("AMD Instinct MI300A", 228, 131072, 6),
    "MI300X": Product("AMD Instinct MI300X", 304, 196592, 8),
    "MI308X": Product("AMD Instinct MI308X", 80, 196592, 4),
    "MI325X": Product("AMD Instinct MI325X", 304, 262128, 8),
    "MI350X": Product("AMD Instinct MI350X", 256, 294592, 8),
    "MI355X": Product("AMD Instinct MI355X", 256, 294592, 8),
    "RX 7900 XTX": Product("AMD Radeon RX 7900 XTX", 96, 24560, wgp=True),
    "PRO W7900": Product("AMD Radeon PRO W7900", 96, 49136, wgp=True),
    "R9700": Product("AMD Radeon AI PRO R9700", 64, 32624, wgp=True),
}
