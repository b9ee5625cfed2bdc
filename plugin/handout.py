"""Choosing the CUs of a pod that HAMi's scheduler placed: that says how many CUs a pod has, its plugin says which.

For a pod of this project's scheduler there is nothing to choose.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from protocol.allocation import AllocationError, encode_cus
from protocol.cuchoice import choose_cus, extend_cus
from protocol.cuset import format_ids, format_parts, parse_ids
from protocol.demand import Role
from protocol.devices import DeviceInfo
from protocol.pods import Holding
from protocol.usage import GpuUsage


def missing_devices(holding: Holding) -> list[str]:
    """Return the ids of the GPUs that a pod was given without being told which CUs."""
    given = dict.fromkeys(share.device_id for segment in holding.segments for share in segment)
    return [device_id for device_id in given if device_id not in holding.cus]


def complete(holding: Holding, usages: Mapping[str, GpuUsage]) -> tuple[Holding, str]:
    """Return what the pod holds with its CUs on every GPU, and the annotation that says so.

    Args:
        holding: as the pod's annotations say it.
        usages: the node's GPUs and what all other pods hold of them.

    Raises:
        AllocationError: there is no valid choice.
    """
    texts = {device_id: format_ids(ids) for device_id, ids in holding.cus.items()}
    for device_id in missing_devices(holding):
        texts[device_id] = _choose(holding, device_id, usages.get(device_id))
    cus = {device_id: parse_ids(text) for device_id, text in texts.items()}
    return replace(holding, cus=cus), encode_cus(texts)


def _choose(holding: Holding, device_id: str, usage: GpuUsage | None) -> str:
    """Return the CU list of the whole pod on one GPU, in the order that the annotation has."""
    if usage is None:
        raise AllocationError(f"GPU {device_id!r} is not on this node")
    if usage.blocked:
        raise AllocationError(f"GPU {device_id!r}: {usage.blocked}")
    choice = _Choice(usage.device, set(usage.free_cus))
    shares = [
        (demand.role, share.cu_count)
        for demand, segment in zip(holding.demands, holding.segments, strict=True)
        for share in segment
        if share.device_id == device_id
    ]
    # Init containers come last: they run before the others, on the others' CUs as far as these suffice.
    for role, count in sorted(shares, key=lambda entry: entry[0] is Role.INIT):
        choice.add(role, count)
    return choice.text()


@dataclass
class _Choice:
    """The CUs that a pod gets on one GPU, container by container."""

    device: DeviceInfo
    free: set[int]

    def __post_init__(self) -> None:
        self._parts: list[tuple[int, ...]] = []
        self._reusable: list[int] = []
        self._init_extra: list[int] = []

    def add(self, role: Role, count: int) -> None:
        if role is Role.INIT:
            ids = extend_cus([*self._reusable, *self._init_extra], self.free, count, self.device)
        else:
            ids = choose_cus(self.free, count, self.device)
        if ids is None:
            raise AllocationError(
                f"GPU {self.device.id!r}: {count} CUs cannot be given: {len(self.free)} are free, "
                f"and a share has at least {self.device.least_cus}"
            )
        self.free -= set(ids)
        if role is Role.INIT:
            self._init_extra.extend(ids)
            return
        self._parts.append(ids)
        if role is Role.APP:
            self._reusable.extend(ids)

    def text(self) -> str:
        return format_parts([*self._parts, self._init_extra])
