"""From what a pod was given to what a container gets: environment, devices, mounts.

Pure: the same pod and GPUs always give the same answer. Whatever does not fit raises; a wrong value would not be
noticed in the container, where it gives the whole GPU or none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from plugin.discovery import Gpu
from plugin.podfolders import region_path
from plugin.visible import visible_devices
from protocol.allocation import AllocationError, DeviceShare
from protocol.claim import container_cus
from protocol.cumask import MaskError, write_mask
from protocol.demand import containers
from protocol.devices import DeviceInfo
from protocol.names import (
    ENV_AUDIT,
    ENV_CU_MASK,
    ENV_HIP_VISIBLE_DEVICES,
    ENV_MEMORY_LIMIT,
    ENV_REGION,
    ENV_TUNABLES,
    ENV_VISIBLE_DEVICES,
    LIBRARY_DIR,
    LIBRARY_NAME,
    REGION_DIR,
    REGION_FILE,
    STATIC_TLS_TUNABLE,
)
from protocol.pods import Holding, Json, PodRef

PERMISSIONS: Final = "rw"
"""What a container may do with its devices: no `m`, it has no business making device nodes."""


@dataclass(frozen=True, slots=True)
class Host:
    """What is the same for all containers of this machine.

    Attributes:
        dev_root: where the devices are.
        library_dir: the folder of the audit library.
        run_dir: the folder in which the pods have theirs.
        env: variables that containers with a share get besides.
    """

    dev_root: Path
    library_dir: Path
    run_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostNode:
    """A device of the host and where the container sees it."""

    container_path: str
    host_path: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, where the container sees it, and whether it may only read there."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What one container gets; its devices either as nodes or by their CDI names."""

    env: Mapping[str, str]
    devices: tuple[HostNode, ...]
    mounts: tuple[Mount, ...]
    cdi_devices: tuple[str, ...] = ()


def translate(pod: Json, holding: Holding, position: int, gpus: Mapping[str, Gpu], host: Host) -> Answer:
    """Return what one container of a pod gets.

    Args:
        pod: as the API server has it.
        holding: what the pod was given, read from its annotations.
        position: which of its containers, init containers first.
        gpus: this machine's GPUs by id.
        host: what is the same for all containers of this machine.

    Raises:
        AllocationError: the shares do not fit this machine's GPUs, or each other.
    """
    shares = holding.segments[position]
    allocated = [_usable(gpus, share) for share in shares]
    if len({gpu.id for gpu in allocated}) != len(allocated):
        raise AllocationError("one container has two shares of one GPU")
    roles = [demand.role for demand in holding.demands]
    infos = {gpu.id: gpu.info for gpu in gpus.values()}
    parts = container_cus(roles, holding.segments, holding.cus, position, infos)
    return Answer(
        env={**_environment(shares, allocated, parts), **host.env},
        devices=_devices(allocated, host.dev_root),
        mounts=(
            *_library_mounts(pod, position, host.library_dir),
            _region_mount(pod, holding, position, host.run_dir),
        ),
    )


def _usable(gpus: Mapping[str, Gpu], share: DeviceShare) -> Gpu:
    gpu = gpus.get(share.device_id)
    if gpu is None:
        raise AllocationError(f"GPU {share.device_id!r} is not on this node")
    if not gpu.info.healthy:
        raise AllocationError(f"GPU {gpu.id!r} is unhealthy: {gpu.ailment.detail if gpu.ailment else 'unknown'}")
    return gpu


def _environment(
    shares: Sequence[DeviceShare], allocated: Sequence[Gpu], parts: Sequence[Sequence[int]]
) -> dict[str, str]:
    return {
        ENV_VISIBLE_DEVICES: visible_devices(allocated),
        ENV_HIP_VISIBLE_DEVICES: ",".join(str(index) for index in range(len(allocated))),
        ENV_CU_MASK: _mask(allocated, parts),
        ENV_MEMORY_LIMIT: f"{_memory_limit(shares)}m",
        ENV_AUDIT: f"{LIBRARY_DIR}/{LIBRARY_NAME}",
        ENV_TUNABLES: STATIC_TLS_TUNABLE,
        ENV_REGION: REGION_DIR,
    }


def _mask(allocated: Sequence[Gpu], parts: Sequence[Sequence[int]]) -> str:
    for gpu, ids in zip(allocated, parts, strict=True):
        _check_part(gpu.info, frozenset(ids))
    try:
        return write_mask(parts, cu_counts=[gpu.info.cu_count for gpu in allocated])
    except MaskError as error:
        raise AllocationError(str(error)) from error


def _check_part(device: DeviceInfo, ids: frozenset[int]) -> None:
    """Refuse a mask that the hardware would not keep to: it would silently run on other pods' CUs."""
    if len(ids) == device.cu_count:
        return
    if not device.divisible:
        raise AllocationError(f"GPU {device.id!r}: {len(ids)} of its CUs were given, it can only be given as a whole")
    if len({cu % device.xcc_count for cu in ids}) < device.xcc_count:
        raise AllocationError(f"GPU {device.id!r}: no CU in some of its {device.xcc_count} XCCs, which run unmasked")
    if device.wgp and any(cu ^ 1 not in ids for cu in ids):
        raise AllocationError(f"GPU {device.id!r}: half a pair of CUs was given, the GPU would ignore the mask")


def _memory_limit(shares: Sequence[DeviceShare]) -> int:
    """Return the MiB for all GPUs of the container: there is one variable, so whole GPUs of two sizes get the less."""
    limit = min(share.memory_mib for share in shares)
    if limit < 1:
        raise AllocationError("a share has no memory")
    return limit


def _devices(allocated: Sequence[Gpu], dev_root: Path) -> tuple[HostNode, ...]:
    render = (HostNode(f"/dev/dri/{gpu.render_device.name}", str(gpu.render_device)) for gpu in allocated)
    return (HostNode("/dev/kfd", str(dev_root / "kfd")), *render)


def _library_mounts(pod: Json, position: int, library_dir: Path) -> tuple[Mount, ...]:
    """Return the library's mount, unless the pod has it: this project's webhook adds it, HAMi's does not."""
    body = next(field.body for field in containers(pod.get("spec") or {}) if field.position == position)
    paths = {str(mount.get("mountPath", "")).rstrip("/") for mount in body.get("volumeMounts") or ()}
    return () if LIBRARY_DIR in paths else (Mount(LIBRARY_DIR, str(library_dir)),)


def _region_mount(pod: Json, holding: Holding, position: int, run_dir: Path) -> Mount:
    """Return the mount of the container's memory account.

    It is the file alone: so it can neither be replaced in the container, nor get neighbours there that would fill the
    host's tmpfs.
    """
    path = region_path(run_dir, PodRef.of(pod).uid, holding.demands[position].name)
    return Mount(f"{REGION_DIR}/{REGION_FILE}", str(path), read_only=False)
