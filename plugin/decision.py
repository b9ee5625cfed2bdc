"""The decision about one Allocate call, once everything is read: which container is next and what it gets.

Pure, so that all ways in which it can go wrong can be tried.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plugin.allocate import HostPaths, translate
from plugin.cdi import by_cdi_name
from plugin.discovery import Gpu
from plugin.handout import complete, missing_devices
from plugin.holder import RefusedError, Remedy, check_survivors, find_entry_overlap, find_overlap
from plugin.ledger import Entry
from plugin.pending import NothingLeftError, OtherCallError, Pending, read_pending
from plugin.repeats import Given
from protocol.allocation import AllocationError
from protocol.names import BIND_PHASE, CU_ALLOCATED, DEVICES_TO_ALLOCATE, PHASE_SUCCESS
from protocol.pods import Holding, Json, PodRef, annotations
from protocol.survivors import Survivor
from protocol.usage import GpuUsage, node_usage


@dataclass(frozen=True, slots=True)
class Grant:
    """An answer, the annotations that say it was given, the ledger's entry of the pod, and the container's GPUs."""

    given: Given
    patch: Mapping[str, str]
    entry: Entry
    device_ids: tuple[str, ...]

    def by_cdi_name(self) -> "Grant":
        """Return the grant with an answer that leaves the device nodes to the runtime."""
        return replace(self, given=replace(self.given, answer=by_cdi_name(self.given.answer, self.device_ids)))

    @property
    def remedy(self) -> Remedy:
        """What is due when the answer was given: after the last container the lock goes."""
        return Remedy.RELEASE if BIND_PHASE in self.patch else Remedy.NOTHING

    def has_landed(self, pod: Json) -> bool:
        """Return whether the pod carries the patch already: the API server's answer was lost on the way."""
        return self.patch.items() <= annotations(pod).items()


def decide(
    pod: Json,
    on_node: Sequence[Json],
    gpus: Mapping[str, Gpu],
    device_ids: frozenset[str],
    paths: HostPaths,
    *,
    survivors: Sequence[Survivor] = (),
    standing: Sequence[Entry] = (),
) -> Grant:
    """Return what the pod's next container gets.

    Args:
        pod: that waits for its devices.
        on_node: all pods that are bound to the node.
        gpus: this machine's GPUs by id.
        device_ids: of the kubelet's call.
        paths: where things are on this machine.
        survivors: pods that are over and still have processes.
        standing: what the ledger says of pods that are not over; their annotations may have been changed since.

    Raises:
        RefusedError: with the reason.
        StillHeldError: a survivor holds some of what the pod was given; none was found for a pod without CUs.
    """
    ref = PodRef.of(pod)
    others = [other for other in on_node if PodRef.of(other).uid != ref.uid]
    infos = [gpu.info for gpu in gpus.values()]
    try:
        pending = read_pending(pod)
        position = pending.next_for(len(device_ids))
        holding, notes = _with_cus(pending.holding, node_usage(infos, others, survivors)[0])
        answer = translate(pod, holding, position, gpus, paths)
    except AllocationError as error:
        raise RefusedError(f"pod {ref}: {error}", _remedy(error)) from error
    overlap = find_overlap(holding.cus, others) or find_entry_overlap(holding.cus, standing, but=ref.uid)
    if overlap is not None:
        raise RefusedError(f"pod {ref}: {overlap}")
    demand = holding.demands[position]
    given = Given(ref, position, demand.role, device_ids, answer)
    entry = Entry.of(ref, holding).served(demand.name, device_ids)
    if survivors:
        check_survivors(entry, survivors, node_usage(infos, others)[0])
    gpu_ids = tuple(share.device_id for share in holding.segments[position])
    return Grant(given, {**notes, **_served(pending, position)}, entry, gpu_ids)


def _remedy(error: AllocationError) -> Remedy:
    """Return what becomes of the pod that holds the lock.

    It is not to blame for a call that does not fit it: that is most likely for a pod which came past the scheduler, and
    the holder's own call is still to come. Was it the holder's after all, the kubelet fails it, and the scheduler
    releases the lock of a failed pod.
    """
    match error:
        case OtherCallError():
            return Remedy.NOTHING
        case NothingLeftError():
            return Remedy.RELEASE
        case _:
            return Remedy.FAIL


def _with_cus(holding: Holding, usages: Mapping[str, GpuUsage]) -> tuple[Holding, dict[str, str]]:
    """Return what the pod holds, with its CUs, and the annotation to add when they had to be chosen."""
    if not missing_devices(holding):
        return holding, {}
    completed, text = complete(holding, usages)
    return completed, {CU_ALLOCATED: text}


def _served(pending: Pending, position: int) -> dict[str, str]:
    left = {DEVICES_TO_ALLOCATE: pending.without(position)}
    return left if len(pending.positions) > 1 else {**left, BIND_PHASE: PHASE_SUCCESS}
