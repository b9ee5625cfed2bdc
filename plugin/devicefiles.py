"""The attributes of a GPU's PCI device in sysfs; every one of them may be missing, empty or unreadable."""

import re
from pathlib import Path
from typing import Final

from protocol.cuset import MAX_CU

_NUMBER: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_HEX: Final = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)
_UNCORRECTABLE: Final = re.compile(r"^ue: ([0-9]{1,20})$", re.ASCII | re.MULTILINE)
_ERROR_COUNTS: Final = "_err_count"


class DeviceFiles:
    """One GPU's or partition's attributes.

    Args:
        sysfs_root: normally `/sys`.
        pci_address: such as `0000:83:00.0`.
        render_minor: number of its render node.
    """

    def __init__(self, sysfs_root: Path, pci_address: str, render_minor: int) -> None:
        # A partition has a DRM device of its own, without these attributes; then those of the whole GPU hold.
        drm = sysfs_root / f"class/drm/renderD{render_minor}/device"
        whole = whole_gpu(sysfs_root, pci_address)
        self._folders = (whole.parent / pci_address, drm, whole)
        self._ras = whole / "ras"

    def text(self, name: str) -> str:
        """Return the first non-empty value of an attribute, or the empty string."""
        for folder in self._folders:
            value = _read(folder / name).strip()
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

    def uncorrectable_errors(self) -> dict[str, int]:
        """Return how many errors each block of the whole GPU could not correct since the driver was loaded.

        Blocks that do not say, as during a reset, are left out: unknown is not unhealthy.
        """
        try:
            paths = sorted(self._ras.glob(f"*{_ERROR_COUNTS}"))
        except OSError:
            return {}
        counts = {path.name.removesuffix(_ERROR_COUNTS): _uncorrectable(_read(path)) for path in paths}
        return {block: count for block, count in counts.items() if count}


def whole_gpu(sysfs_root: Path, pci_address: str) -> Path:
    """Return the folder of the chip that an address, perhaps a partition's, is part of."""
    return sysfs_root / "bus/pci/devices" / f"{pci_address[:-1]}0"


def _uncorrectable(text: str) -> int:
    match = _UNCORRECTABLE.search(text)
    return int(match[1]) if match else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
