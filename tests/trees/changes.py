"""What happens to a machine while it runs, done to a made tree."""

import shutil
from pathlib import Path

from tests.trees.tree import GENERATION, write_errors

_TOPOLOGY = "sys/class/kfd/kfd/topology"
_AWAY = "away"


def unload_driver(root: Path) -> None:
    """Take away KFD's topology and all device nodes, as `rmmod amdgpu` does."""
    (root / _AWAY).mkdir()
    (root / _TOPOLOGY).rename(root / _AWAY / "topology")
    (root / "dev").rename(root / _AWAY / "dev")


def load_driver(root: Path) -> None:
    """Bring back what `unload_driver` took away."""
    (root / _AWAY / "dev").rename(root / "dev")
    (root / _AWAY / "topology").rename(root / _TOPOLOGY)
    shutil.rmtree(root / _AWAY)


def take_device_node(root: Path, name: str) -> None:
    """Take away a device node such as `kfd` or `dri/renderD128`."""
    (root / "dev" / name).rename(root / _AWAY)


def bring_device_node(root: Path, name: str) -> None:
    """Bring back what `take_device_node` took away."""
    (root / _AWAY).rename(root / "dev" / name)


def report_errors(root: Path, pci_address: str, block: str, uncorrectable: int) -> None:
    """Let a block of a GPU have counted so many uncorrectable errors."""
    write_errors(root / "sys/bus/pci/devices" / pci_address, block, uncorrectable)


def change_topology(root: Path) -> None:
    """Count a change of the topology, as KFD does with each GPU that comes or goes."""
    path = root / "sys" / GENERATION
    path.write_text(f"{int(path.read_text()) + 1}\n")
