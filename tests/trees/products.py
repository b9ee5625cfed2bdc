"""What KFD says about some products; from published topologies, where not noted otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Product:
    """The numbers of a KFD node and its PCI device.

    `num_xcc` is None on kernels that do not say it; `product_name` is what sysfs says, mostly nothing.
    """

    device_id: int
    gfx_target_version: int
    simd_count: int
    simd_per_cu: int
    array_count: int
    simd_arrays_per_engine: int
    cu_per_simd_array: int
    memory_mib: int
    num_xcc: int | None = 1
    revision: int = 0
    partition: str = ""
    product_name: str = ""
    heap_type: int = 1


PRODUCTS: Final[Mapping[str, Product]] = {
    # Nobody has published a virtual function's topology: the numbers of the whole GPU, with the VF's device id. The
    # memory is the nominal 192 GiB; a real one has some MiB less.
    "MI300X VF": Product(0x74B5, 90402, 1216, 4, 32, 1, 10, 196608, num_xcc=8, partition="SPX"),
    "MI300X": Product(
        0x74A1, 90402, 1216, 4, 32, 1, 10, 196592, 8, partition="SPX", product_name="AMD Instinct MI300X OAM"
    ),
    "MI300X CPX": Product(0x74A1, 90402, 152, 4, 4, 1, 10, 24574, partition="CPX"),
    # The memory is what amd-smi reports of an MI355X; the rest is that of its virtual function's sibling, MI350X VF.
    "MI355X": Product(0x75A3, 90500, 1024, 4, 32, 1, 9, 294896, 8, partition="SPX"),
    "MI350X VF": Product(0x75B0, 90500, 1024, 4, 32, 1, 9, 294592, num_xcc=8, partition="SPX"),
    "MI210": Product(0x740F, 90010, 416, 4, 8, 1, 14, 65520, revision=0x02),
    "RX 7900 XTX": Product(0x744C, 110000, 192, 2, 12, 2, 8, 24560, revision=0xC8),
    # The same chip as the RX 7900 XTX, with twice the memory.
    "Radeon PRO W7900": Product(0x7448, 110000, 192, 2, 12, 2, 8, 49136),
    "R9700": Product(0x7551, 120001, 128, 2, 8, 2, 8, 32624, revision=0xC0, heap_type=2),
    # Integrated graphics of a desktop processor: two CUs, and what the firmware set aside of the main memory.
    "Raphael": Product(0x164E, 100306, 4, 2, 1, 1, 2, 512, revision=0xC1),
    # An old kernel: neither `num_xcc` nor a compute partition.
    "Vega 20": Product(0x66A1, 90006, 240, 4, 4, 1, 16, 32752, num_xcc=None, revision=0x02),
    # Invented but for its family: nobody has measured how its mask bits are numbered.
    "gfx1250": Product(0x75F0, 120500, 512, 2, 32, 1, 16, 131072, num_xcc=8),
}
