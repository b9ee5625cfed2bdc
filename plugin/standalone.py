"""Pods that no scheduler of ours or HAMi's has placed: whole GPUs, as the kubelet's device ids say.

Only with the option `--standalone`. Nothing then limits what a container does with its GPUs, so a GPU that others
hold shares of is not given.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from plugin.allocate import Answer, Host, HostNode
from plugin.discovery import Gpu
from plugin.visible import visible_devices
from protocol.allocation import AllocationError
from protocol.names import ENV_HIP_VISIBLE_DEVICES, ENV_VISIBLE_DEVICES
from protocol.pods import Json, PodRef, is_finished, read_holding


def whole_gpus(device_ids: Collection[str], gpus: Mapping[str, Gpu], on_node: Iterable[Json], host: Host) -> Answer:
    """Return what a container gets that was given these devices by the kubelet.

    Args:
        device_ids: one replica of each GPU.
        gpus: the GPU of each device id.
        on_node: all pods that are bound to the node.
        host: what is the same for all containers of this machine.

    Raises:
        AllocationError: two replicas are of one GPU, a GPU is unhealthy, unknown, or others hold shares of it.
    """
    unknown = sorted(set(device_ids) - gpus.keys())
    if unknown:
        raise AllocationError(f"device {unknown[0]!r} is not on this node")
    chosen = sorted({gpus[device_id].id: gpus[device_id] for device_id in device_ids}.values(), key=_kfd_order)
    if len(chosen) < len(device_ids):
        raise AllocationError(f"{len(device_ids)} GPUs were asked for, and the kubelet chose {_names(chosen)} only")
    for gpu in chosen:
        _check(gpu, on_node)
    nodes = [HostNode(f"/dev/dri/{gpu.render_device.name}", str(gpu.render_device)) for gpu in chosen]
    return Answer(
        env={
            ENV_VISIBLE_DEVICES: visible_devices(chosen),
            ENV_HIP_VISIBLE_DEVICES: ",".join(str(index) for index in range(len(chosen))),
        },
        devices=(HostNode("/dev/kfd", str(host.dev_root / "kfd")), *nodes),
        mounts=(),
    )


def _check(gpu: Gpu, on_node: Iterable[Json]) -> None:
    if gpu.ailment is not None:
        raise AllocationError(f"GPU {gpu.id!r} is unhealthy: {gpu.ailment.detail}")
    for pod in on_node:
        if not is_finished(pod) and gpu.id in _held(pod):
            raise AllocationError(f"pod {PodRef.of(pod)} holds a share of GPU {gpu.id!r}")


def _held(pod: Json) -> set[str]:
    """Return the ids of the GPUs that a pod was given shares of; none for a pod that no scheduler of ours placed."""
    try:
        holding = read_holding(pod)
    except AllocationError:
        return set()
    return {share.device_id for segment in holding.segments for share in segment} if holding else set()


def _kfd_order(gpu: Gpu) -> int:
    return gpu.kfd_node


def _names(gpus: Sequence[Gpu]) -> str:
    return ", ".join(gpu.id for gpu in gpus)
