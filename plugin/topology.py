"""KFD's topology: what of the machine can be computed on, as ROCr reads it too.

A node that is odd or unreadable is left out with a reason; it never hides the others.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.cuset import MAX_CU

TOPOLOGY: Final = "class/kfd/kfd/topology"
"""Below the root of sysfs."""

_MIB: Final = 1024**2
_VIDEO_MEMORY_HEAPS: Final = (1, 2)
"""Heap types of a memory bank: visible and private video memory; system memory is 0."""

_CDNA_MAJOR: Final = 9
_WGP_MAJORS: Final = (10, 11, 12)
_UNMEASURED: Final = (12, 5)
"""gfx12.5 numbers its mask bits in a way that nobody has measured."""
_FIRST_MULTI_XCC: Final = (9, 4)
"""Older GPUs have one XCC, and older kernels do not say so."""
_INTEGRATED: Final = frozenset(
    {
        (9, 0, 2),
        (9, 0, 9),
        (9, 0, 12),
        (10, 1, 3),
        (10, 3, 3),
        (10, 3, 5),
        (10, 3, 6),
        (10, 3, 7),
        (11, 0, 3),
        (11, 5, 0),
        (11, 5, 1),
        (11, 5, 2),
        (11, 5, 3),
    }
)
"""gfx versions that only exist as part of a processor: those that LLVM's AMDGPUUsage lists as APU, and gfx1037.
MI300A is none of them: it is bought to be computed on."""

_NUMBER: Final = re.compile(r"[0-9]{1,20}", re.ASCII)


class NodeError(ValueError):
    """A KFD node cannot be offered as a GPU; the message says why."""


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A KFD node that is a GPU.

    Attributes:
        number: orders GPUs as ROCr does; may change with a reboot.
        properties: unsigned 64 bit numbers by name.
        memory_mib: video memory, MiB.
    """

    number: int
    properties: Mapping[str, int]
    memory_mib: int

    @property
    def unique_id(self) -> int:
        """KFD's id of the chip or partition, 0 for none."""
        return self.properties.get("unique_id", 0)

    @property
    def device_id(self) -> int:
        """PCI device id."""
        return self.properties.get("device_id", 0)

    @property
    def render_minor(self) -> int:
        """Number of the render node, 0 for none."""
        return self.properties.get("drm_render_minor", 0)

    @property
    def pci_address(self) -> str:
        """Such as `0000:83:00.0`; the last digit is a partition's number."""
        location = self.properties.get("location_id", 0)
        domain = self.properties.get("domain", 0)
        return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"

    @property
    def gfx(self) -> tuple[int, int, int]:
        """Version of the instruction set: gfx90a is 9, 0, 10."""
        version = self.properties.get("gfx_target_version", 0)
        return version // 10000, version // 100 % 100, version % 100

    @property
    def integrated(self) -> bool:
        """Whether the GPU is part of a processor and computes in the main memory."""
        # Older kernels show such a processor as one node, with its cores and its GPU.
        return self.gfx in _INTEGRATED or self.properties.get("cpu_cores_count", 0) > 0

    @property
    def cu_count(self) -> int:
        """Compute units that are in use.

        Raises:
            NodeError: none, or more than any GPU has.
        """
        # Not array_count * cu_per_simd_array: that counts units that are switched off in the factory.
        per_cu = self.properties.get("simd_per_cu", 0)
        count = self.properties.get("simd_count", 0) // per_cu if per_cu else 0
        if not 0 < count <= MAX_CU:
            raise NodeError(f"has {count} compute units")
        return count

    def mask_layout(self) -> tuple[int, bool]:
        """Return how many XCCs the CU ids go round, 0 where that is not known, and whether CUs come in pairs."""
        generation = self.gfx[:2]
        wgp = generation[0] in _WGP_MAJORS
        known = generation[0] == _CDNA_MAJOR or (wgp and generation < _UNMEASURED)
        assumed = 1 if wgp or generation < _FIRST_MULTI_XCC else 0
        xcc_count = self.properties.get("num_xcc", assumed)
        if not known or xcc_count <= 0 or self.cu_count % xcc_count:
            return 0, wgp
        return xcc_count, wgp


def read_topology(sysfs_root: Path) -> tuple[list[KfdNode], list[str]]:
    """Return all KFD nodes that are GPUs, in KFD's order, and which could not be read and why."""
    nodes = sysfs_root / TOPOLOGY / "nodes"
    try:
        numbers = sorted(int(path.name) for path in nodes.iterdir() if _NUMBER.fullmatch(path.name))
    except OSError as error:
        return [], [f"{nodes}: {error.strerror}: is the amdgpu driver loaded?"]
    found: list[KfdNode] = []
    left_out: list[str] = []
    for number in numbers:
        try:
            node = _read_node(nodes / str(number), number)
        except (NodeError, OSError, UnicodeDecodeError) as error:
            left_out.append(f"KFD node {number}: {error}")
        else:
            found.extend([node] if node else [])
    return found, left_out


def _read_node(path: Path, number: int) -> KfdNode | None:
    """Return a KFD node, or None for a CPU."""
    gpu_id = (path / "gpu_id").read_text().strip()
    if not _NUMBER.fullmatch(gpu_id):
        raise NodeError(f"gpu_id {gpu_id[:40]!r} is no number")
    if int(gpu_id) == 0:
        return None
    banks = [_read_properties(bank) for bank in sorted(path.glob("mem_banks/*/properties"))]
    size = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _VIDEO_MEMORY_HEAPS)
    return KfdNode(number, _read_properties(path / "properties"), size // _MIB)


def _read_properties(path: Path) -> dict[str, int]:
    """Return a file of `name value` lines. Values are unsigned 64 bit: `unique_id` is often above 2^63."""
    properties: dict[str, int] = {}
    for line in path.read_text().splitlines():
        name, _, value = line.strip().partition(" ")
        if _NUMBER.fullmatch(value):
            properties[name] = int(value)
    return properties
