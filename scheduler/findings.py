"""What is wrong on a node, told from its annotations and those of its pods: no I/O.

None of it stops a pod elsewhere, and as little as can be known to be safe stops on the node itself; docs/scheduler.md
says for each kind what is withheld and why.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol.allocation import AllocationError
from protocol.claim import pod_claims
from protocol.cuset import format_ids
from protocol.devices import DeviceInfo, RegisterError, decode_register
from protocol.names import NODE_REGISTER, NODE_SURVIVORS
from protocol.pods import Holding, Json, PodRef, annotations, is_finished, read_holding
from protocol.survivors import SurvivorsError, decode_survivors


class Kind(StrEnum):
    """What can be wrong; the value is the reason of the Event and the label of the metric."""

    MALFORMED_ALLOCATION = "MalformedAllocation"
    OVERLAPPING_ALLOCATION = "OverlappingAllocation"
    MEMORY_OVERCOMMITTED = "MemoryOvercommitted"
    GPU_LOST = "GpuLost"
    GPU_CHANGED = "GpuChanged"
    MALFORMED_NODE = "MalformedNodeAnnotation"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: of it.
        node: where.
        pod: which pod it is about; None for the node itself.
        text: what, in one sentence.
    """

    kind: Kind
    node: str
    pod: PodRef | None
    text: str


Geometry = Mapping[str, int]
"""Number of CUs by device id, as a pod found its GPUs."""


def inspect(node: str, item: Json, pods: Collection[Json], found: Mapping[str, Geometry]) -> list[Finding]:
    """Return what is wrong on a node.

    Args:
        node: its name.
        item: the node object.
        pods: that are bound to it.
        found: by pod uid, how many CUs each of its GPUs had when the pod was first seen on it.
    """
    findings = list(_of_node(node, item))
    devices = _devices(item)
    held: list[tuple[PodRef, Holding]] = []
    for pod in pods:
        if is_finished(pod):
            continue
        ref = PodRef.of(pod)
        try:
            holding = read_holding(pod)
        except AllocationError as error:
            findings.append(Finding(Kind.MALFORMED_ALLOCATION, node, ref, f"its allocation cannot be read: {error}"))
            continue
        if holding is not None:
            held.append((ref, holding))
            if devices is not None:
                findings.extend(_of_pod(node, ref, holding, devices, found.get(ref.uid, {})))
    findings.extend(_overlaps(node, held))
    if devices is not None:
        findings.extend(_overcommitted(node, held, devices))
    return findings


def geometry(pod: Json, item: Json) -> Geometry:
    """Return how many CUs each of a pod's GPUs has now; nothing of GPUs that are not there, or cannot be read."""
    try:
        holding = read_holding(pod)
    except AllocationError:
        return {}
    devices = _devices(item) or {}
    names = {share.device_id for segment in holding.segments for share in segment} if holding else set()
    return {name: devices[name].cu_count for name in names & devices.keys()}


def _of_node(node: str, item: Json) -> Iterator[Finding]:
    notes = annotations(item)
    try:
        decode_register(notes.get(NODE_REGISTER, "[]"))
    except RegisterError as error:
        yield Finding(Kind.MALFORMED_NODE, node, None, f"annotation {NODE_REGISTER} cannot be read: {error}")
    try:
        decode_survivors(notes.get(NODE_SURVIVORS, ""))
    except SurvivorsError as error:
        yield Finding(Kind.MALFORMED_NODE, node, None, f"annotation {NODE_SURVIVORS} cannot be read: {error}")


def _devices(item: Json) -> dict[str, DeviceInfo] | None:
    """Return the node's GPUs by id; None when it has no registration that can be read, so that none counts as lost."""
    text = annotations(item).get(NODE_REGISTER)
    if text is None:
        return None
    try:
        return {device.id: device for device in decode_register(text)}
    except RegisterError:
        return None


def _of_pod(
    node: str, ref: PodRef, holding: Holding, devices: Mapping[str, DeviceInfo], found: Geometry
) -> Iterator[Finding]:
    for device_id in sorted({share.device_id for segment in holding.segments for share in segment}):
        device = devices.get(device_id)
        if device is None:
            yield Finding(Kind.GPU_LOST, node, ref, f"its GPU {device_id} is not on node {node} any more")
            continue
        beyond = [cu for cu in holding.cus.get(device_id, ()) if cu >= device.cu_count]
        before = found.get(device_id, device.cu_count)
        if beyond:
            text = f"it holds CUs {format_ids(beyond)} of GPU {device_id}, which has {device.cu_count}"
            yield Finding(Kind.GPU_CHANGED, node, ref, text)
        elif before != device.cu_count:
            text = f"its GPU {device_id} had {before} CUs and now has {device.cu_count}"
            yield Finding(Kind.GPU_CHANGED, node, ref, text)


def _overlaps(node: str, held: Collection[tuple[PodRef, Holding]]) -> Iterator[Finding]:
    """Yield who holds a CU that another pod held before."""
    owners: dict[tuple[str, int], PodRef] = {}
    for ref, holding in held:
        clashes: defaultdict[tuple[str, PodRef], list[int]] = defaultdict(list)
        for device_id, ids in holding.cus.items():
            for cu in ids:
                owner = owners.setdefault((device_id, cu), ref)
                if owner != ref:
                    clashes[device_id, owner].append(cu)
        for (device_id, owner), cus in clashes.items():
            text = f"it holds CUs {format_ids(cus)} of GPU {device_id}, and so does pod {owner}"
            yield Finding(Kind.OVERLAPPING_ALLOCATION, node, ref, text)


def _overcommitted(
    node: str, held: Collection[tuple[PodRef, Holding]], devices: Mapping[str, DeviceInfo]
) -> Iterator[Finding]:
    """Yield the GPUs of whose memory pods hold more than there is."""
    memory: Counter[str] = Counter()
    for _, holding in held:
        for device_id, claim in pod_claims([demand.role for demand in holding.demands], holding.segments).items():
            memory[device_id] += claim.memory_mib
    for device_id, device in devices.items():
        if memory[device_id] > device.memory_mib:
            text = f"pods hold {memory[device_id]} MiB of GPU {device_id}, which has {device.memory_mib}"
            yield Finding(Kind.MEMORY_OVERCOMMITTED, node, None, text)
