"""What an operator can set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.names import LIBRARY_DIR

MAX_COUNT: Final = 1000
"""The kubelet takes gRPC messages of at most 4 MiB; this many ids for each of 64 GPUs still fit."""


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Settings of one device plugin process.

    Attributes:
        node_name: name of the Node object of this machine.
        library: the audit library inside the plugin's image.
        library_dir: folder on the host, mounted here under the same path, where containers find the library.
        kubelet_dir: folder of `kubelet.sock`, where the plugin's own socket goes.
        sysfs_root: where sysfs is mounted.
        dev_root: where the host's devices are; also the host path given to the kubelet.
        count: how many pods may share one GPU.
        allocate_seconds: how long Allocate waits for the API server before it gives up. The kubelet itself sets no
            deadline and admits no other pod meanwhile.
        rescan_seconds: time between two looks at the GPUs.
        recheck_seconds: time between two looks at the node annotation, in case somebody changed it.
        poll_seconds: time between two looks at the sockets.
        grace_seconds: how long calls may still run when the plugin ends.
    """

    node_name: str
    library: Path
    library_dir: Path = Path(LIBRARY_DIR)
    kubelet_dir: Path = Path("/var/lib/kubelet/device-plugins")
    sysfs_root: Path = Path("/sys")
    dev_root: Path = Path("/dev")
    count: int = 10
    allocate_seconds: float = 20
    rescan_seconds: float = 5
    recheck_seconds: float = 60
    poll_seconds: float = 1
    grace_seconds: float = 5

    def __post_init__(self) -> None:
        """Refuse values that cannot work, with the name of the setting."""
        if not self.node_name:
            raise ValueError("node_name: must not be empty")
        if not 1 <= self.count <= MAX_COUNT:
            raise ValueError(f"count: {self.count}: must be from 1 to {MAX_COUNT}")
        for name in ("allocate_seconds", "rescan_seconds", "recheck_seconds", "poll_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)}: must be greater than 0")
