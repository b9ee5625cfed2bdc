"""What an operator can set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from plugin.counts import DEFAULT_COUNT, MAX_COUNT
from plugin.discovery import Offer
from protocol.names import LIBRARY_DIR

_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Settings of one device plugin process.

    Attributes:
        node_name: name of the Node object of this machine.
        namespace: of the Lease that tells the scheduler that this plugin lives.
        library: the audit library inside the plugin's image.
        library_dir: folder on the host, mounted here under the same path, where containers find the library.
        run_dir: folder on a tmpfs of the host, mounted here under the same path, where each pod with GPUs gets one.
        cdi_dir: folder for the CDI spec of the GPUs; None: containers get device nodes from the kubelet.
        below_hip: count memory that programs take below HIP (OpenCL, OpenMP), too.
        require_audit: kill programs that use a GPU without the audit library; needs the host's PID namespace.
        cgroup_root: where the host's cgroups are mounted.
        pod_resources: socket of the kubelet's PodResources API.
        kubelet_dir: folder of `kubelet.sock`, where the plugin's own socket goes.
        sysfs_root: where sysfs is mounted.
        dev_root: where the host's devices are; also the host path given to the kubelet.
        count: how many pods may share one GPU.
        count_by_type: the same for some types, such as 20 for `MI300X`.
        integrated: offer GPUs that are part of a processor too.
        errors_tolerated: uncorrectable errors that a block of a GPU may have counted before the GPU is unhealthy.
        recovery_seconds: how long a GPU that was unhealthy must be well before it is healthy again.
        standalone: give whole GPUs to pods that no scheduler of ours or HAMi's has placed.
        metrics_port: where `/metrics` is served over plain HTTP, on all addresses; None: nowhere.
        allocate_seconds: how long Allocate waits for the API server before it gives up. The kubelet itself sets no
            deadline and admits no other pod meanwhile.
        pulse_seconds: time between two looks for a sign that something about the GPUs changed.
        rescan_seconds: time between two looks at everything about the GPUs, sign or not.
        recheck_seconds: time between two looks at the node annotation, in case somebody changed it.
        poll_seconds: time between two looks at the sockets, should one have come or gone without being told.
        grace_seconds: how long calls may still run when the plugin ends.
    """

    node_name: str
    library: Path
    namespace: str = "amd-vgpu"
    library_dir: Path = Path(LIBRARY_DIR)
    run_dir: Path = Path("/run/amd-vgpu")
    cdi_dir: Path | None = None
    below_hip: bool = False
    require_audit: bool = False
    cgroup_root: Path = Path("/sys/fs/cgroup")
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    kubelet_dir: Path = Path("/var/lib/kubelet/device-plugins")
    sysfs_root: Path = Path("/sys")
    dev_root: Path = Path("/dev")
    count: int = DEFAULT_COUNT
    count_by_type: Mapping[str, int] = field(default_factory=dict)
    integrated: bool = False
    errors_tolerated: int = 0
    recovery_seconds: float = 30
    standalone: bool = False
    metrics_port: int | None = None
    allocate_seconds: float = 20
    pulse_seconds: float = 1
    rescan_seconds: float = 30
    recheck_seconds: float = 60
    poll_seconds: float = 5
    grace_seconds: float = 5

    def __post_init__(self) -> None:
        """Refuse values that cannot work, with the name of the setting."""
        if not self.node_name:
            raise ValueError("node_name: must not be empty")
        for said, count in ((self.count, self.count), *((f"{key}={n}", n) for key, n in self.count_by_type.items())):
            if not 1 <= count <= MAX_COUNT:
                raise ValueError(f"count: {said}: must be from 1 to {MAX_COUNT}")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= _MAX_PORT:
            raise ValueError(f"metrics_port: {self.metrics_port}: must be from 0 to {_MAX_PORT}")
        for name in ("errors_tolerated", "recovery_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)}: must be 0 or more")
        for name in ("allocate_seconds", "pulse_seconds", "rescan_seconds", "recheck_seconds", "poll_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)}: must be greater than 0")

    @property
    def offer(self) -> Offer:
        """Which GPUs are offered, and how often."""
        return Offer(self.count, self.count_by_type, self.integrated, self.errors_tolerated)
