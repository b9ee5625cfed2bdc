"""Finding a node's GPUs in sysfs, without any of AMD's libraries.

The kernel's compute driver (KFD) lists what can be computed on: GPUs, their partitions, and CPUs. ROCr reads the same
list, so its identifiers and order are taken from here and nowhere else. A node that is odd or unreadable is left out
with a reason; it never hides the others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from plugin.products import product_name
from protocol.cuset import MAX_CU
from protocol.devices import DeviceInfo, clean_product

_TOPOLOGY: Final = "class/kfd/kfd/topology/nodes"
_MIB: Final = 1024**2
_VIDEO_MEMORY_HEAPS: Final = (1, 2)
"""Heap types of a memory bank: visible and private video memory; system memory is 0."""

_CDNA_MAJOR: Final = 9
_WGP_MAJORS: Final = (10, 11, 12)
_UNMEASURED: Final = (12, 5)
"""gfx12.5 numbers its mask bits in a way that nobody has measured."""
_FIRST_MULTI_XCC: Final = (9, 4)
"""Older GPUs have one XCC, and older kernels do not say so."""

_NUMBER: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_HEX: Final = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)


class NodeError(ValueError):
    """A KFD node cannot be offered as a GPU; the message says why."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a partition of one, as this machine knows it.

    Attributes:
        info: what the cluster knows about it.
        kfd_node: number of its KFD node. It orders GPUs as ROCr does and may change with a reboot.
        render_device: path of its render node on this machine.
        rocr_id: `GPU-<16 hex digits>` where ROCr takes it for this GPU and no other on this machine, else None.
    """

    info: DeviceInfo
    kfd_node: int
    render_device: Path
    rocr_id: str | None

    @property
    def id(self) -> str:
        """The id in annotations."""
        return self.info.id


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All GPUs of the machine at one moment, in KFD order, and which KFD nodes were left out and why."""

    gpus: tuple[Gpu, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """What the cluster knows about the GPUs."""
        return tuple(gpu.info for gpu in self.gpus)

    def by_id(self) -> dict[str, Gpu]:
        """Return the GPUs by their id in annotations."""
        return {gpu.id: gpu for gpu in self.gpus}


@dataclass(frozen=True, slots=True)
class _Found:
    """A KFD node that is a GPU, before ids are given out."""

    node: int
    properties: Mapping[str, int]
    memory_mib: int

    @property
    def unique_id(self) -> int:
        return self.properties.get("unique_id", 0)

    @property
    def pci_address(self) -> str:
        location = self.properties.get("location_id", 0)
        domain = self.properties.get("domain", 0)
        return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"


def discover(sysfs_root: Path, dev_root: Path, *, count: int) -> Snapshot:
    """Return the machine's GPUs as they are now.

    Args:
        sysfs_root: normally `/sys`.
        dev_root: normally `/dev`.
        count: how many pods may share one GPU.
    """
    found, left_out = _find(sysfs_root / _TOPOLOGY)
    uses = Counter(gpu.unique_id for gpu in found)
    gpus: list[Gpu] = []
    for gpu in found:
        try:
            shared = uses[gpu.unique_id] > 1
            gpus.append(_describe(gpu, sysfs_root, dev_root, shared_unique_id=shared, count=count))
        except (NodeError, OSError) as error:
            left_out.append(f"KFD node {gpu.node}: {error}")
    distinct, doubles = _without_doubles(gpus)
    return Snapshot(_numbered(distinct), (*left_out, *doubles))


def carry_over(previous: Snapshot, current: Snapshot) -> Snapshot:
    """Return the current snapshot with the GPUs that vanished since the previous one kept as unhealthy.

    Their pods still hold them, and the kubelet must not take their ids for new ones when they come back. A GPU that is
    there under another id, as after a change of its partitions, has not vanished.
    """
    present = {gpu.id for gpu in current.gpus} | {gpu.info.pci_address for gpu in current.gpus}
    vanished = [
        replace(gpu, info=replace(gpu.info, healthy=False))
        for gpu in previous.gpus
        if not present & {gpu.id, gpu.info.pci_address}
    ]
    return replace(current, gpus=_numbered([*current.gpus, *vanished]))


def _numbered(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    ordered = sorted(gpus, key=lambda gpu: (gpu.kfd_node, gpu.id))
    return tuple(replace(gpu, info=replace(gpu.info, index=index)) for index, gpu in enumerate(ordered))


def _without_doubles(gpus: Sequence[Gpu]) -> tuple[list[Gpu], list[str]]:
    """Leave out GPUs that cannot be told apart: nobody could say which of them a pod was given."""
    uses = Counter(gpu.id for gpu in gpus)
    doubles = [f"KFD node {gpu.kfd_node}: has the id {gpu.id} of another" for gpu in gpus if uses[gpu.id] > 1]
    return [gpu for gpu in gpus if uses[gpu.id] == 1], doubles


def _find(nodes: Path) -> tuple[list[_Found], list[str]]:
    try:
        numbers = sorted(int(path.name) for path in nodes.iterdir() if _NUMBER.fullmatch(path.name))
    except OSError as error:
        return [], [f"{nodes}: {error.strerror}: is the amdgpu driver loaded?"]
    found: list[_Found] = []
    left_out: list[str] = []
    for number in numbers:
        try:
            gpu = _read_node(nodes / str(number), number)
        except (NodeError, OSError, UnicodeDecodeError) as error:
            left_out.append(f"KFD node {number}: {error}")
        else:
            found.extend([gpu] if gpu else [])
    return found, left_out


def _read_node(path: Path, number: int) -> _Found | None:
    """Return a KFD node, or None for a CPU."""
    gpu_id = (path / "gpu_id").read_text().strip()
    if not _NUMBER.fullmatch(gpu_id):
        raise NodeError(f"gpu_id {gpu_id[:40]!r} is no number")
    if int(gpu_id) == 0:
        return None
    banks = [_read_properties(bank) for bank in sorted(path.glob("mem_banks/*/properties"))]
    size = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _VIDEO_MEMORY_HEAPS)
    return _Found(number, _read_properties(path / "properties"), size // _MIB)


def _read_properties(path: Path) -> dict[str, int]:
    """Return a file of `name value` lines. Values are unsigned 64 bit: `unique_id` is often above 2^63."""
    properties: dict[str, int] = {}
    for line in path.read_text().splitlines():
        name, _, value = line.strip().partition(" ")
        if _NUMBER.fullmatch(value):
            properties[name] = int(value)
    return properties


def _describe(gpu: _Found, sysfs_root: Path, dev_root: Path, *, shared_unique_id: bool, count: int) -> Gpu:
    cu_count = _cu_count(gpu.properties)
    if gpu.memory_mib <= 0:
        raise NodeError("has no video memory")
    minor = gpu.properties.get("drm_render_minor", 0)
    if minor <= 0:
        raise NodeError("has no render node")
    xcc_count, wgp = _mask_layout(gpu.properties, cu_count)
    rocr_id = f"GPU-{gpu.unique_id:016x}" if gpu.unique_id and not shared_unique_id else None
    render_device = dev_root / "dri" / f"renderD{minor}"
    sysfs = _DeviceFiles(sysfs_root, gpu.pci_address, minor)
    info = DeviceInfo(
        id=rocr_id or f"PCI-{gpu.pci_address.replace(':', '-')}",
        index=0,
        count=count,
        memory_mib=gpu.memory_mib,
        cu_count=cu_count,
        product=_product(gpu.properties, sysfs),
        numa=sysfs.numa_node(),
        healthy=render_device.exists() and (dev_root / "kfd").exists(),
        xcc_count=xcc_count,
        wgp=wgp,
        pci_address=gpu.pci_address,
        rocr_id=rocr_id or "",
        partition=sysfs.text("current_compute_partition"),
    )
    return Gpu(info, gpu.node, render_device, rocr_id)


def _cu_count(properties: Mapping[str, int]) -> int:
    # Not array_count * cu_per_simd_array: that counts units that are switched off in the factory.
    per_cu = properties.get("simd_per_cu", 0)
    cu_count = properties.get("simd_count", 0) // per_cu if per_cu else 0
    if not 0 < cu_count <= MAX_CU:
        raise NodeError(f"has {cu_count} compute units")
    return cu_count


def _mask_layout(properties: Mapping[str, int], cu_count: int) -> tuple[int, bool]:
    """Return how many XCCs the CU ids go round, 0 where that is not known, and whether CUs come in pairs."""
    version = properties.get("gfx_target_version", 0)
    generation = (version // 10000, version // 100 % 100)
    wgp = generation[0] in _WGP_MAJORS
    known = generation[0] == _CDNA_MAJOR or (wgp and generation < _UNMEASURED)
    assumed = 1 if wgp or generation < _FIRST_MULTI_XCC else 0
    xcc_count = properties.get("num_xcc", assumed)
    if not known or xcc_count <= 0 or cu_count % xcc_count:
        return 0, wgp
    return xcc_count, wgp


def _product(properties: Mapping[str, int], sysfs: "_DeviceFiles") -> str:
    named = sysfs.text("product_name")
    return clean_product(named or product_name(properties.get("device_id", 0), sysfs.hex_number("revision")))


class _DeviceFiles:
    """The attributes of a GPU's PCI device; every one of them may be missing, empty or unreadable."""

    def __init__(self, sysfs_root: Path, pci_address: str, minor: int) -> None:
        # A partition has a DRM device of its own, without these attributes; then those of the whole GPU hold.
        pci = sysfs_root / "bus/pci/devices"
        drm = sysfs_root / f"class/drm/renderD{minor}/device"
        self._folders = (pci / pci_address, drm, pci / f"{pci_address[:-1]}0")

    def text(self, name: str) -> str:
        """Return the first non-empty value of an attribute, or the empty string."""
        for folder in self._folders:
            try:
                value = (folder / name).read_text().strip()
            except (OSError, UnicodeDecodeError):
                continue
            if value:
                return value
        return ""

    def hex_number(self, name: str) -> int | None:
        """Return an attribute such as `0xc8`."""
        value = self.text(name)
        return int(value, 16) if _HEX.fullmatch(value) else None

    def numa_node(self) -> int:
        """Return the NUMA node, -1 where the machine does not say."""
        value = self.text("numa_node")
        return int(value) if _NUMBER.fullmatch(value) and int(value) < MAX_CU else -1
