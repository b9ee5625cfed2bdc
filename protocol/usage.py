"""What is taken of a node's GPUs, told from the pods on it.

There is no counter anywhere: usage is the sum of the live pods' annotations, so nothing can leak.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from protocol.allocation import AllocationError
from protocol.claim import pod_claims
from protocol.devices import DeviceInfo
from protocol.pods import Holding, Json, PodRef, is_finished, named_devices, read_holding
from protocol.survivors import Survivor


@dataclass(slots=True)
class GpuUsage:
    """One GPU and what its pods hold of it.

    Attributes:
        device: the GPU.
        memory_mib: MiB that are taken.
        cus: CU ids that are taken.
        pods: who shares it.
        blocked: why nobody else may be placed on it; empty when it is open.
    """

    device: DeviceInfo
    memory_mib: int = 0
    cus: set[int] = field(default_factory=set)
    pods: set[PodRef] = field(default_factory=set)
    blocked: str = ""
    _free: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    _free_without: int = field(default=-1, compare=False, repr=False)

    def copy(self) -> "GpuUsage":
        """Return a usage that can be charged without changing this one."""
        return replace(self, cus=set(self.cus), pods=set(self.pods))

    @property
    def free_memory_mib(self) -> int:
        """MiB that nobody holds; never negative."""
        return max(0, self.device.memory_mib - self.memory_mib)

    @property
    def free_cus(self) -> frozenset[int]:
        """CU ids that nobody holds."""
        # Asked far more often than it changes; CUs are only ever added to a usage.
        if self._free_without != len(self.cus):
            self._free = frozenset(range(self.device.cu_count)) - self.cus
            self._free_without = len(self.cus)
        return self._free


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A pod whose annotations do not say what it holds, and why."""

    pod: PodRef
    reason: str


def node_usage(
    devices: Iterable[DeviceInfo], pods: Iterable[Json], survivors: Iterable[Survivor] = ()
) -> tuple[dict[str, GpuUsage], list[Unreadable]]:
    """Return the usage of a node's GPUs by device id, and the pods that could not be counted.

    What a pod holds but does not say counts as taken: a GPU whose CUs are held by number only is blocked, so are those
    of a pod whose CU list cannot be read, and a pod that says nothing readable blocks all GPUs of its node, until it
    is gone or repaired.

    Args:
        devices: the node's GPUs.
        pods: all pods that are bound to the node; finished ones count nothing.
        survivors: pods that are over and whose processes still run. One that is among the pods, and not finished, is
            counted as such.
    """
    usages = {device.id: GpuUsage(device) for device in devices}
    unreadable: list[Unreadable] = []
    live: set[str] = set()
    for pod in pods:
        if is_finished(pod):
            continue
        live.add(PodRef.of(pod).uid)
        trouble = charge_pod(usages, pod)
        if trouble is not None:
            unreadable.append(trouble)
    for survivor in survivors:
        if survivor.pod.uid not in live:
            charge_survivor(usages, survivor)
    return usages, unreadable


def charge_pod(usages: Mapping[str, GpuUsage], pod: Json) -> Unreadable | None:
    """Add what a bound pod holds to the usage of its node's GPUs.

    One that does not say it readably blocks the GPUs that it names, and all of them when even these cannot be read.
    """
    ref = PodRef.of(pod)
    try:
        holding = read_holding(pod)
    except AllocationError as error:
        named = named_devices(pod)
        theirs = (usage for name, usage in usages.items() if named is None or name in named)
        _block(theirs, f"pod {ref} has an unreadable allocation")
        return Unreadable(ref, str(error))
    if holding is not None:
        charge(usages, holding, ref)
    return None


def charge_survivor(usages: Mapping[str, GpuUsage], survivor: Survivor) -> None:
    """Add what a pod's remaining processes hold; all GPUs are blocked where nobody knows what that is."""
    if survivor.parts is None:
        _block(usages.values(), f"an unknown part is held by processes of pod {survivor}")
        return
    for device_id, part in survivor.parts.items():
        usage = usages.get(device_id)
        if usage is not None:
            usage.memory_mib += part.memory_mib
            usage.cus.update(part.cus)
            usage.pods.add(survivor.pod)


def charge(usages: Mapping[str, GpuUsage], holding: Holding, ref: PodRef) -> None:
    """Add what a pod holds to the usage of its node's GPUs, by device id."""
    claims = pod_claims([demand.role for demand in holding.demands], holding.segments)
    for device_id, claim in claims.items():
        usage = usages.get(device_id)
        if usage is None:
            continue  # the GPU left the node; nobody can be placed on it
        ids = holding.cus.get(device_id, ())
        usage.memory_mib += claim.memory_mib
        usage.pods.add(ref)
        usage.cus.update(ids)
        if len(ids) < claim.cu_count:
            _block([usage], f"pod {ref} holds {claim.cu_count} CUs and names {len(ids)}")


def _block(usages: Iterable[GpuUsage], reason: str) -> None:
    for usage in usages:
        usage.blocked = usage.blocked or reason
