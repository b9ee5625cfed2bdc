"""The decision about one Allocate call, once everything is read: which container is next and what it gets.

Pure, so that all ways in which it can go wrong can be tried.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from plugin.allocate import Answer, Host, translate
from plugin.cdi import by_cdi_name
from plugin.discovery import Gpu
from plugin.handout import complete, missing_devices
from plugin.heldcus import Cus, read_cus
from plugin.holder import RefusedError, Remedy, check_survivors, find_entry_overlap, find_overlap
from plugin.ledger import Entry
from plugin.pending import NothingLeftError, OtherCallError, Pending, read_pending
from plugin.repeats import Served
from protocol.allocation import AllocationError
from protocol.names import BIND_PHASE, CU_ALLOCATED, DEVICES_TO_ALLOCATE, PHASE_SUCCESS
from protocol.pods import Holding, Json, PodRef, annotations
from protocol.survivors import Survivor, encode_parts
from protocol.usage import node_usage


@dataclass(frozen=True, slots=True)
class Given:
    """What one container gets.

    Attributes:
        pod: whose container.
        position: which container, init containers first.
        answer: to the kubelet.
        gpu_ids: of the container's GPUs.
    """

    pod: PodRef
    position: int
    answer: Answer
    gpu_ids: tuple[str, ...]

    def by_cdi_name(self) -> "Given":
        """Return the same with an answer that leaves the device nodes to the runtime."""
        return replace(self, answer=by_cdi_name(self.answer, self.gpu_ids))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a container gets for the first time, the annotations that say so, and the ledger's entry of the pod."""

    given: Given
    patch: Mapping[str, str]
    entry: Entry

    def by_cdi_name(self) -> "Grant":
        """Return the same with an answer that leaves the device nodes to the runtime."""
        return replace(self, given=self.given.by_cdi_name())

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
    host: Host,
    *,
    survivors: Sequence[Survivor] = (),
    standing: Sequence[Entry] = (),
    read: Callable[[Json], Cus] = read_cus,
) -> Grant:
    """Return what the pod's next container gets.

    Args:
        pod: that waits for its devices.
        on_node: all pods that are bound to the node.
        gpus: this machine's GPUs by id.
        device_ids: of the kubelet's call.
        host: what is the same for all containers of this machine.
        survivors: pods that are over and still have processes.
        standing: what the ledger says of pods that are not over; their annotations may have been changed since.
        read: tells which CUs a pod holds.

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
        holding, notes = pending.holding, {}
        if missing_devices(holding):
            holding, text = complete(holding, node_usage(infos, others, survivors)[0])
            notes = {CU_ALLOCATED: text}
        answer = translate(pod, holding, position, gpus, host)
    except AllocationError as error:
        raise RefusedError(f"pod {ref}: {error}", _remedy(error)) from error
    overlap = find_overlap(holding.cus, others, read) or find_entry_overlap(holding.cus, standing, but=ref.uid)
    if overlap is not None:
        raise RefusedError(f"pod {ref}: {overlap}")
    entry = Entry.of(ref, holding).served(holding.demands[position].name, device_ids)
    if survivors:
        check_survivors(entry, survivors, node_usage(infos, others)[0])
    given = Given(ref, position, answer, _gpu_ids(holding, position))
    return Grant(given, {**notes, **_served(pending, position)}, entry)


def repeat(served: Served, gpus: Mapping[str, Gpu], host: Host) -> Given:
    """Return what a container gets that was answered for before: the same, as it follows from the same annotations.

    Args:
        served: the container.
        gpus: this machine's GPUs by id.
        host: what is the same for all containers of this machine.

    Raises:
        RefusedError: it cannot be given any more, or the annotations are not those of the first answer.
    """
    ref = PodRef.of(served.pod)
    if encode_parts(Entry.of(ref, served.holding).parts) != encode_parts(served.entry.parts):
        raise RefusedError(f"pod {ref}: its annotations say something else than the node's ledger", Remedy.NOTHING)
    try:
        answer = translate(served.pod, served.holding, served.position, gpus, host)
    except AllocationError as error:
        raise RefusedError(f"pod {ref}: {error}", Remedy.NOTHING) from error
    return Given(ref, served.position, answer, _gpu_ids(served.holding, served.position))


def _gpu_ids(holding: Holding, position: int) -> tuple[str, ...]:
    return tuple(share.device_id for share in holding.segments[position])


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


def _served(pending: Pending, position: int) -> dict[str, str]:
    left = {DEVICES_TO_ALLOCATE: pending.without(position)}
    return left if len(pending.positions) > 1 else {**left, BIND_PHASE: PHASE_SUCCESS}
