"""Finding a node's GPUs in sysfs, without any of AMD's libraries.

The kernel's compute driver (KFD) lists what can be computed on: GPUs, their partitions, and CPUs. ROCr reads the same
list, so its identifiers and order are taken from here and nowhere else. What cannot be offered is left out with a
reason; it never hides the others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from plugin.ailment import Ailment, Cause
from plugin.counts import DEFAULT_COUNT, count_for
from plugin.devicefiles import DeviceFiles
from plugin.products import product_name
from plugin.topology import KfdNode, NodeError, read_topology
from protocol.devices import DeviceInfo, clean_product

_PARTITIONED: Final = re.compile(r"(?!SPX)[A-Z]{3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a partition of one, as this machine knows it.

    Attributes:
        info: what the cluster knows about it.
        kfd_node: number of its KFD node. It orders GPUs as ROCr does and may change with a reboot.
        render_device: path of its render node on this machine.
        rocr_id: `GPU-<16 hex digits>` where ROCr takes it for this GPU and no other on this machine, else None.
        ailment: why it is unhealthy, None for a healthy one.
    """

    info: DeviceInfo
    kfd_node: int
    render_device: Path
    rocr_id: str | None
    ailment: Ailment | None = None

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
class Offer:
    """Which GPUs are offered, and how often.

    Attributes:
        count: how many pods may share one GPU.
        count_by_type: the same for some types, as `counts.count_for` takes them.
        integrated: offer GPUs that are part of a processor too.
        errors_tolerated: uncorrectable errors that a block of a GPU may have counted before the GPU is unhealthy.
    """

    count: int = DEFAULT_COUNT
    count_by_type: Mapping[str, int] = field(default_factory=dict)
    integrated: bool = False
    errors_tolerated: int = 0


_USUAL: Final = Offer()


def discover(sysfs_root: Path, dev_root: Path, offer: Offer = _USUAL) -> Snapshot:
    """Return the machine's GPUs as they are now.

    Args:
        sysfs_root: normally `/sys`.
        dev_root: normally `/dev`.
        offer: which of them, and how often.
    """
    nodes, left_out = read_topology(sysfs_root)
    uses = Counter(node.unique_id for node in nodes)
    gpus: list[Gpu] = []
    for node in nodes:
        try:
            gpus.append(_describe(node, sysfs_root, dev_root, offer, unique=uses[node.unique_id] == 1))
        except (NodeError, OSError) as error:
            left_out.append(f"KFD node {node.number}: {error}")
    distinct, doubles = _without_doubles(gpus)
    return Snapshot(numbered(distinct), (*left_out, *doubles))


def numbered(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs in KFD's order, each with its place in it as its index."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.kfd_node, gpu.id))
    return tuple(replace(gpu, info=replace(gpu.info, index=index)) for index, gpu in enumerate(ordered))


def _without_doubles(gpus: Sequence[Gpu]) -> tuple[list[Gpu], list[str]]:
    """Leave out GPUs that cannot be told apart: nobody could say which of them a pod was given."""
    uses = Counter(gpu.id for gpu in gpus)
    doubles = [f"KFD node {gpu.kfd_node}: has the id {gpu.id} of another" for gpu in gpus if uses[gpu.id] > 1]
    return [gpu for gpu in gpus if uses[gpu.id] == 1], doubles


def _describe(node: KfdNode, sysfs_root: Path, dev_root: Path, offer: Offer, *, unique: bool) -> Gpu:
    _check_wanted(node, offer)
    cu_count = node.cu_count
    _check_usable(node)
    xcc_count, wgp = node.mask_layout()
    files = DeviceFiles(sysfs_root, node.pci_address, node.render_minor)
    partition = files.text("current_compute_partition")
    rocr_id = f"GPU-{node.unique_id:016x}" if node.unique_id and unique else None
    product = clean_product(files.text("product_name") or product_name(node.device_id, files.hex_number("revision")))
    render_device = dev_root / "dri" / f"renderD{node.render_minor}"
    ailment = _ailment(files, (render_device, dev_root / "kfd"), offer.errors_tolerated)
    info = DeviceInfo(
        id=rocr_id or _pci_id(node.pci_address, partition),
        index=0,
        count=count_for(product, offer.count, offer.count_by_type),
        memory_mib=node.memory_mib,
        cu_count=cu_count,
        product=product,
        numa=files.numa_node(),
        healthy=ailment is None,
        xcc_count=xcc_count,
        wgp=wgp,
        pci_address=node.pci_address,
        rocr_id=rocr_id or "",
        partition=partition,
    )
    return Gpu(info, node.number, render_device, rocr_id, ailment)


def _check_wanted(node: KfdNode, offer: Offer) -> None:
    if node.integrated and not offer.integrated:
        raise NodeError("is an integrated GPU, which only the option --integrated offers")


def _check_usable(node: KfdNode) -> None:
    if node.memory_mib <= 0:
        raise NodeError("has no video memory")
    if node.render_minor <= 0:
        raise NodeError("has no render node")


def _pci_id(pci_address: str, partition: str) -> str:
    """Return the id of a GPU that has no name of its own.

    It says how the chip is partitioned: the first partition has the whole GPU's address and is another device.
    """
    suffix = f"-{partition}" if _PARTITIONED.fullmatch(partition) else ""
    return f"PCI-{pci_address.replace(':', '-')}{suffix}"


def _ailment(files: DeviceFiles, needed: Iterable[Path], tolerated: int) -> Ailment | None:
    missing = [str(path) for path in needed if not path.exists()]
    if missing:
        return Ailment(Cause.NODE_MISSING, f"{' and '.join(missing)} missing")
    counts = {block: count for block, count in files.uncorrectable_errors().items() if count > tolerated}
    if counts:
        said = ", ".join(f"{block} {count}" for block, count in counts.items())
        return Ailment(Cause.ERRORS, f"uncorrectable errors since the driver was loaded: {said}")
    return None
