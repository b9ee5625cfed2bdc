"""Replicas: the devices that the kubelet counts, each GPU as often as it may be shared."""

from collections.abc import Iterator, Sequence

from plugin.discovery import Gpu


def replica_ids(gpu: Gpu) -> Iterator[str]:
    """Yield the device ids of one GPU, the same as long as it has its id and count."""
    return (f"{gpu.id}-{number}" for number in range(gpu.info.count))


def gpus_by_replica(gpus: Sequence[Gpu]) -> dict[str, Gpu]:
    """Return the GPU of each device id."""
    return {device_id: gpu for gpu in gpus for device_id in replica_ids(gpu)}
