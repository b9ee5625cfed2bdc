"""Writing a made tree: `<root>/sys` and `<root>/dev`."""

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.trees.products import PRODUCTS, Product

GENERATION: Final = "class/kfd/kfd/topology/generation_id"
"""KFD's count of changes of its topology."""

_MARKER: Final = "MADE-TREE"
_MIB: Final = 1024**2
_AMD: Final = 0x1002
_NULL_DEVICE: Final = os.makedev(1, 3)
"""A device node that everybody may open and that does nothing, as the kernel has no GPU here."""


@dataclass(frozen=True, slots=True)
class MadeGpu:
    """One KFD node of a made tree. What is None is chosen by the GPU's place in the list, the same every time.

    Attributes:
        product_key: of PRODUCTS.
        memory_mib: None for the product's own.
        unique_id: KFD's id of the chip, 0 for a GPU that has none.
        render_minor: number of its render node, 0 for a GPU without any.
        location_id: PCI bus << 8 | device << 3 | function; the function is a partition's number.
        domain: PCI domain.
        numa_node: as sysfs says it.
        uncorrectable: errors that each block with RAS has counted (`umc`, `gfx`), None for a GPU without RAS.
    """

    product_key: str = "MI300X VF"
    memory_mib: int | None = None
    unique_id: int | None = None
    render_minor: int | None = None
    location_id: int | None = None
    domain: int = 0
    numa_node: int = 0
    uncorrectable: Mapping[str, int] | None = None

    @property
    def product(self) -> Product:
        return PRODUCTS[self.product_key]


def partitions(
    product_key: str, number: int, *, unique_id: int, first_minor: int = 128, location_id: int = 0x0500
) -> tuple[MadeGpu, ...]:
    """Return the partitions of one GPU, which all have its unique id, as Linux before 6.17 shows them."""
    return tuple(
        MadeGpu(product_key, unique_id=unique_id, render_minor=first_minor + part, location_id=location_id + part)
        for part in range(number)
    )


def make_tree(root: Path, gpus: Sequence[MadeGpu]) -> None:
    """Write the tree of a machine with one CPU and these GPUs, in place of a tree that was made there before.

    Device nodes are made when root calls, and plain files otherwise.

    Raises:
        FileExistsError: the folder has something in it that is no made tree.
    """
    root.mkdir(parents=True, exist_ok=True)
    marker = root / _MARKER
    if any(root.iterdir()) and not marker.exists():
        raise FileExistsError(f"{root} is not empty and no made tree")
    marker.write_text("Made for tests and demonstrations: this machine has no such GPU.\n")
    for part in ("sys", "dev"):
        shutil.rmtree(root / part, ignore_errors=True)
    _write_node(root / "sys", 0, {"cpu_cores_count": 64, "simd_count": 0}, gpu_id=0, bank=(0, 512 * 1024 * _MIB))
    _make_device(root / "dev/kfd")
    (root / "dev/dri").mkdir()
    for index, gpu in enumerate(gpus):
        _make_gpu(root, index, gpu)
    (root / "sys" / GENERATION).write_text(f"{len(gpus) + 1}\n")


def _make_gpu(root: Path, index: int, gpu: MadeGpu) -> None:
    minor = 128 + 8 * index if gpu.render_minor is None else gpu.render_minor
    location = (0x05 + 0x10 * index) << 8 if gpu.location_id is None else gpu.location_id
    product = gpu.product
    memory = product.memory_mib if gpu.memory_mib is None else gpu.memory_mib
    unique_id = 0x8E1BB56457ADDD1B + index if gpu.unique_id is None else gpu.unique_id
    properties = {
        "cpu_cores_count": 0,
        "simd_count": product.simd_count,
        "mem_banks_count": 1,
        "simd_id_base": 2147487744 + index,
        "max_waves_per_simd": 8,
        "wave_front_size": 32 if product.simd_per_cu == 2 else 64,
        "array_count": product.array_count,
        "simd_arrays_per_engine": product.simd_arrays_per_engine,
        "cu_per_simd_array": product.cu_per_simd_array,
        "simd_per_cu": product.simd_per_cu,
        "gfx_target_version": product.gfx_target_version,
        "vendor_id": _AMD,
        "device_id": product.device_id,
        "location_id": location,
        "domain": gpu.domain,
        "drm_render_minor": minor,
        "local_mem_size": 0,
        "unique_id": unique_id,
        **({} if product.num_xcc is None else {"num_xcc": product.num_xcc}),
    }
    bank = (product.heap_type, memory * _MIB)
    _write_node(root / "sys", index + 1, properties, gpu_id=29000 + index, bank=bank)
    address = f"{gpu.domain:04x}:{location >> 8:02x}:{location >> 3 & 0x1F:02x}"
    device = _write_pci(root / "sys", address, location & 7, gpu)
    if minor:
        drm = root / f"sys/class/drm/renderD{minor}"
        drm.mkdir(parents=True)
        (drm / "device").symlink_to(os.path.relpath(device, drm))
        _make_device(root / f"dev/dri/renderD{minor}")


def _write_node(sys: Path, number: int, properties: Mapping[str, int], *, gpu_id: int, bank: tuple[int, int]) -> None:
    node = sys / f"class/kfd/kfd/topology/nodes/{number}"
    (node / "mem_banks/0").mkdir(parents=True)
    (node / "gpu_id").write_text(f"{gpu_id}\n")
    (node / "properties").write_text(_lines(properties))
    heap_type, size = bank
    (node / "mem_banks/0/properties").write_text(_lines({"heap_type": heap_type, "size_in_bytes": size}))


def _write_pci(sys: Path, address: str, function: int, gpu: MadeGpu) -> Path:
    """Write a GPU's device; a partition other than the first has only a platform device without attributes."""
    if function:
        device = sys / f"devices/platform/amdgpu_xcp_{function - 1}"
        device.mkdir(parents=True, exist_ok=True)
        return device
    device = sys / f"bus/pci/devices/{address}.0"
    device.mkdir(parents=True, exist_ok=True)
    product = gpu.product
    attributes = {
        "vendor": f"0x{_AMD:04x}",
        "device": f"0x{product.device_id:04x}",
        "revision": f"0x{product.revision:02x}",
        "numa_node": str(gpu.numa_node),
        **({"current_compute_partition": product.partition} if product.partition else {}),
        **({"product_name": product.product_name} if product.product_name else {}),
    }
    for name, value in attributes.items():
        (device / name).write_text(f"{value}\n")
    for block, errors in (gpu.uncorrectable or {}).items():
        write_errors(device, block, errors)
    return device


def write_errors(device: Path, block: str, uncorrectable: int) -> None:
    """Write the error counts of one block as the driver shows them; memory has deferred errors besides."""
    (device / "ras").mkdir(exist_ok=True)
    deferred = "de: 0\n" if block == "umc" else ""
    (device / f"ras/{block}_err_count").write_text(f"ue: {uncorrectable}\nce: 3\n{deferred}")


def _lines(properties: Mapping[str, int]) -> str:
    return "".join(f"{name} {value}\n" for name, value in properties.items())


def _make_device(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        path.touch()
        return
    os.mknod(path, 0o666 | stat.S_IFCHR, _NULL_DEVICE)
    path.chmod(0o666)
