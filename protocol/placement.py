"""Placing a pod on a node: which GPUs, and which CUs of them.

Pure functions, called for every node by the extender's filter and scores, and under the node lock by its bind.

A pod's GPUs come from as few NUMA nodes as can be: each container's from the NUMA nodes that the pod is on already,
then from those that can give most of what is missing, and only among these by the policy. It is a wish: a pod that fits
only across NUMA nodes goes across them. For a pod with one GPU there is nothing to wish. GPUs that do not say where
they are count as being together.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocol.allocation import DeviceShare, Segments, encode_cus, encode_segments
from protocol.cuchoice import can_choose, can_extend, choose_cus, extend_cus
from protocol.cuset import format_parts
from protocol.demand import ContainerDemand, Role
from protocol.devices import DeviceInfo
from protocol.names import CU_ALLOCATED, DEVICES_ALLOCATED, DEVICES_TO_ALLOCATE
from protocol.pods import Holding
from protocol.policy import Policy
from protocol.selection import ANY, Selection
from protocol.usage import GpuUsage


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod's containers go.

    Attributes:
        segments: each container's shares, init containers first.
        parts: for each GPU the CU parts in the order of the annotation: sidecars and containers, then what init
            containers need beyond them.
    """

    segments: Segments
    parts: Mapping[str, Sequence[Sequence[int]]]

    def annotations(self) -> dict[str, str]:
        """Return the pod annotations that record this placement."""
        text = encode_segments(self.segments)
        cus = encode_cus({device_id: format_parts(parts) for device_id, parts in self.parts.items()})
        return {DEVICES_TO_ALLOCATE: text, DEVICES_ALLOCATED: text, CU_ALLOCATED: cus}

    def holding(self, demands: Sequence[ContainerDemand]) -> Holding:
        """Return what a pod of these demands holds once it is placed so."""
        cus = {device_id: tuple(cu for part in parts for cu in part) for device_id, parts in self.parts.items()}
        return Holding(tuple(demands), self.segments, cus)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod does not fit.

    Attributes:
        reason: short, with numbers, the same for all nodes with the same trouble.
        permanent: no other pod's end can help: the node has too few GPUs, or they are too small.
    """

    reason: str
    permanent: bool = False


def place(
    demands: Sequence[ContainerDemand], usages: Iterable[GpuUsage], policy: Policy, selection: Selection = ANY
) -> Placement | Refusal:
    """Return where a pod's containers go on a node, or why they do not fit.

    Containers that run together are placed largest first, each of their GPUs being distinct for one container; init
    containers come last, as they may reuse what the pod already has.

    Args:
        demands: of all containers, by position.
        usages: the node's GPUs and what other pods hold of them.
        policy: which GPUs are preferred.
        selection: which GPUs the pod accepts.
    """
    usages = list(usages)
    outcome = _place(demands, usages, policy, selection, _nearest)
    if isinstance(outcome, Refusal) and sum(demand.gpus > 0 for demand in demands) > 1:
        # What is near for one container may be all that another could have had.
        outcome = _place(demands, usages, policy, selection, _first)
    return outcome


def _place(
    demands: Sequence[ContainerDemand],
    usages: Iterable[GpuUsage],
    policy: Policy,
    selection: Selection,
    choose: "Callable[[Sequence[_Candidate], int, Collection[int]], Sequence[_Candidate]]",
) -> Placement | Refusal:
    gpus = [_Candidate(usage, selection) for usage in usages]
    running = [demand for demand in demands if demand.gpus and demand.role is not Role.INIT]
    inits = [demand for demand in demands if demand.gpus and demand.role is Role.INIT]
    segments: dict[int, tuple[DeviceShare, ...]] = {}
    for demand in [*sorted(running, key=_size, reverse=True), *sorted(inits, key=_size, reverse=True)]:
        fitting, refusals = _fitting(gpus, demand)
        if len(fitting) < demand.gpus:
            return _refusal(demand, len(fitting), refusals)
        ranked = sorted(fitting, key=lambda gpu: gpu.preference(demand, policy))
        chosen = choose(ranked, demand.gpus, {gpu.device.numa for gpu in gpus if gpu.is_used})
        segments[demand.position] = tuple(gpu.take(demand) for gpu in sorted(chosen, key=lambda gpu: gpu.device.index))
    return Placement(
        segments=tuple(segments.get(demand.position, ()) for demand in demands),
        parts={gpu.device.id: gpu.parts() for gpu in gpus if gpu.is_used},
    )


def obstacle(
    demands: Sequence[ContainerDemand], usages: Iterable[GpuUsage], policy: Policy, selection: Selection = ANY
) -> Refusal | None:
    """Return why `place` would refuse, or None where it would not: cheaper, and asked for every node."""
    asking = [demand for demand in demands if demand.gpus]
    if len(asking) != 1:
        outcome = place(demands, usages, policy, selection)
        return outcome if isinstance(outcome, Refusal) else None
    # One container takes any GPUs that fit it, so there is nothing to choose before it is known that enough do.
    (demand,) = asking
    fitting, refusals = 0, []
    for usage in usages:
        refusal = _Candidate(usage, selection).obstacle(demand)
        if refusal is not None:
            refusals.append(refusal)
            continue
        fitting += 1
        if fitting == demand.gpus:
            return None
    return _refusal(demand, fitting, refusals)


def numa_nodes(
    demands: Sequence[ContainerDemand], usages: Iterable[GpuUsage], policy: Policy, selection: Selection = ANY
) -> int:
    """Return over how many NUMA nodes a pod's GPUs would be spread on a node; 0 where it does not fit.

    Args:
        demands: of all containers, by position.
        usages: the node's GPUs and what other pods hold of them.
        policy: which GPUs are preferred.
        selection: which GPUs the pod accepts.
    """
    usages = list(usages)
    asking = [demand for demand in demands if demand.gpus]
    if len(asking) == 1:
        # Without choosing CUs, as this is asked for many nodes.
        fitting, _ = _fitting([_Candidate(usage, selection) for usage in usages], asking[0])
        chosen = _nearest(fitting, asking[0].gpus, frozenset()) if len(fitting) >= asking[0].gpus else ()
        return len({gpu.device.numa for gpu in chosen})
    outcome = place(demands, usages, policy, selection)
    if isinstance(outcome, Refusal):
        return 0
    return len({usage.device.numa for usage in usages if usage.device.id in outcome.parts})


def _first(ranked: "Sequence[_Candidate]", count: int, _homes: Collection[int]) -> "Sequence[_Candidate]":
    """Return the best GPUs, wherever they are."""
    return ranked[:count]


def _nearest(ranked: "Sequence[_Candidate]", count: int, homes: Collection[int]) -> "Sequence[_Candidate]":
    """Return the best GPUs from as few NUMA nodes as can be.

    Args:
        ranked: at least `count` GPUs that fit, the best first.
        count: how many.
        homes: NUMA nodes that the pod is on already.
    """
    if count == 1 and not homes:
        return ranked[:1]
    ranks: dict[int, list[int]] = {}
    for rank, gpu in enumerate(ranked):
        ranks.setdefault(gpu.device.numa, []).append(rank)
    chosen: list[int] = []
    while len(chosen) < count:
        missing = count - len(chosen)
        numa = min(ranks, key=lambda numa: (numa not in homes, -min(missing, len(ranks[numa])), ranks[numa][:missing]))
        chosen += ranks.pop(numa)[:missing]
    return [ranked[rank] for rank in chosen]


def _size(demand: ContainerDemand) -> tuple[float, float, int]:
    whole = float("inf")
    cores = whole if demand.cores_percent is None else demand.cores_percent
    memory = whole if demand.memory_mib is None else demand.memory_mib
    return (cores, memory, demand.gpus)


class _Candidate:
    """A GPU while a pod is placed on it."""

    def __init__(self, usage: GpuUsage, selection: Selection) -> None:
        self.device: DeviceInfo = usage.device
        self._usage = usage
        self._unwanted = selection.obstacle(usage.device)
        self._unshared = selection.unshared
        self._running: dict[int, tuple[int, ...]] = {}
        self._sidecar_cus: set[int] = set()
        self._init_extra: list[int] = []
        self._running_mib = 0
        self._sidecar_mib = 0
        self._init_mib = 0
        self._free = usage.free_cus

    @property
    def is_used(self) -> bool:
        return bool(self._running or self._init_extra)

    def parts(self) -> list[tuple[int, ...]]:
        return [part for _, part in sorted(self._running.items())] + [tuple(self._init_extra)] * bool(self._init_extra)

    def obstacle(self, demand: ContainerDemand) -> Refusal | None:
        """Return why the container does not fit on this GPU, beside what the pod already has there."""
        return self._closed() or self._too_full(demand)

    def _closed(self) -> Refusal | None:
        unfit = self._unwanted or self._unusable()
        if unfit:
            return Refusal(unfit, permanent=True)
        if not self.device.healthy:
            return Refusal("GPU unhealthy")
        if self._usage.blocked:
            return Refusal(f"GPU blocked: {self._usage.blocked}")
        if self._unshared and self._usage.pods:
            return Refusal("GPU shared: the pod's policy mutex accepts none that another pod has a share of")
        if not self.is_used and len(self._usage.pods) >= self.device.count:
            return Refusal(f"GPU sharers: {self.device.count} pods at most")
        return None

    def _unusable(self) -> str:
        # A registration without these fields: no CUs would mean a program without a mask, on all of them.
        has_all = self.device.cu_count and self.device.memory_mib
        return "" if has_all else "GPU registered without compute units or memory"

    def _too_full(self, demand: ContainerDemand) -> Refusal | None:
        # The numbers are the pod's: what its other containers already have here counts as asked, not as taken.
        asked = self._own_mib() + self._memory_growth(demand)
        if asked > self.device.memory_mib:
            return Refusal(f"GPU memory: {self.device.memory_mib} MiB in all, {asked} asked", permanent=True)
        if asked > self._usage.free_memory_mib:
            return Refusal(f"GPU memory: {self._usage.free_memory_mib} MiB free, {asked} asked")
        if not self._can_choose(demand):
            own = len(self._usage.free_cus) - len(self._free)
            asked = own + self.device.cus_for(demand.cores_percent)
            return Refusal(f"GPU compute units: {len(self._usage.free_cus)} free, {asked} asked")
        return None

    def preference(self, demand: ContainerDemand, policy: Policy) -> tuple[int, float, int]:
        """Return the key by which GPUs are sorted: the smallest is taken first."""
        memory = (self._usage.memory_mib + self._own_mib()) / max(1, self.device.memory_mib)
        cus = 1 - len(self._free) / max(1, self.device.cu_count)
        load = max(memory, cus)
        reused = int(demand.role is Role.INIT and self.is_used)
        return (-reused, -load if policy is Policy.BINPACK else load, self.device.index)

    def take(self, demand: ContainerDemand) -> DeviceShare:
        """Give the container its share; it must fit."""
        ids = self._choose(demand)
        if ids is None:
            raise AssertionError(f"GPU {self.device.id} was chosen for a container that does not fit")
        self._free -= set(ids)
        memory = self.device.memory_for(demand.memory_mib)
        if demand.role is Role.INIT:
            self._init_extra.extend(ids)
            self._init_mib = max(self._init_mib, memory)
        else:
            self._running[demand.position] = ids
            self._running_mib += memory
        if demand.role is Role.SIDECAR:
            self._sidecar_cus.update(ids)
            self._sidecar_mib += memory
        return DeviceShare(self.device.id, self.device.product, memory, self.device.cus_for(demand.cores_percent))

    def _choose(self, demand: ContainerDemand) -> tuple[int, ...] | None:
        """Return the ids that the container adds to what the pod has here, perhaps none; None when it does not fit."""
        count = self.device.cus_for(demand.cores_percent)
        if demand.role is not Role.INIT:
            return choose_cus(self._free, count, self.device)
        return extend_cus(self._reusable_cus(), self._free, count, self.device)

    def _can_choose(self, demand: ContainerDemand) -> bool:
        count = self.device.cus_for(demand.cores_percent)
        if demand.role is not Role.INIT:
            return can_choose(self._free, count, self.device)
        return can_extend(self._reusable_cus(), self._free, count, self.device)

    def _reusable_cus(self) -> list[int]:
        apps = (cu for part in self._running.values() for cu in part if cu not in self._sidecar_cus)
        return [*apps, *self._init_extra]

    def _own_mib(self) -> int:
        return max(self._running_mib, self._sidecar_mib + self._init_mib)

    def _memory_growth(self, demand: ContainerDemand) -> int:
        memory = self.device.memory_for(demand.memory_mib)
        if demand.role is Role.INIT:
            return max(0, self._sidecar_mib + memory - self._own_mib())
        return memory


def _fitting(gpus: Iterable[_Candidate], demand: ContainerDemand) -> tuple[list[_Candidate], list[Refusal]]:
    fitting: list[_Candidate] = []
    refusals: list[Refusal] = []
    for gpu in gpus:
        obstacle = gpu.obstacle(demand)
        if obstacle is None:
            fitting.append(gpu)
        else:
            refusals.append(obstacle)
    return fitting, refusals


def _refusal(demand: ContainerDemand, fitting: int, refusals: Sequence[Refusal]) -> Refusal:
    """Return one reason for the node: the most frequent of its GPUs', or that it has too few."""
    total = fitting + len(refusals)
    permanent = demand.gpus > total - sum(refusal.permanent for refusal in refusals)
    if demand.gpus > total:
        return Refusal(f"GPUs: {total} on the node, {demand.gpus} asked", permanent=True)
    reason, _ = Counter(refusal.reason for refusal in refusals).most_common(1)[0]
    if demand.gpus > 1:
        reason = f"{reason} ({fitting} of {demand.gpus} GPUs fit)"
    return Refusal(reason, permanent)
