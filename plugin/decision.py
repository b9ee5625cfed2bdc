"""The decision about one Allocate call, once everything is read: which container is next and what it gets.

Pure, so that all ways in which it can go wrong can be tried.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plugin.allocate import translate
from plugin.discovery import Gpu
from plugin.handout import complete, missing_devices
from plugin.holder import RefusedError, Remedy, find_overlap
from plugin.pending import Pending, read_pending
from plugin.repeats import Given
from protocol.allocation import AllocationError
from protocol.names import BIND_PHASE, CU_ALLOCATED, DEVICES_TO_ALLOCATE, PHASE_SUCCESS
from protocol.pods import Holding, Json, PodRef, annotations
from protocol.usage import node_usage


@dataclass(frozen=True, slots=True)
class Grant:
    """An answer, and the annotations that say it was given."""

    given: Given
    patch: Mapping[str, str]

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
    *,
    dev_root: Path,
    library_dir: Path,
) -> Grant:
    """Return what the pod's next container gets.

    Args:
        pod: that waits for its devices.
        on_node: all pods that are bound to the node.
        gpus: this machine's GPUs by id.
        device_ids: of the kubelet's call.
        dev_root: where the host's devices are.
        library_dir: the host's folder of the audit library.

    Raises:
        RefusedError: with the reason.
    """
    ref = PodRef.of(pod)
    others = [other for other in on_node if PodRef.of(other).uid != ref.uid]
    try:
        pending = read_pending(pod)
        position = pending.next_for(len(device_ids))
        holding, notes = _with_cus(pending.holding, others, gpus)
        answer = translate(pod, holding, position, gpus, dev_root=dev_root, library_dir=library_dir)
    except AllocationError as error:
        raise RefusedError(f"pod {ref}: {error}") from error
    overlap = find_overlap(holding.cus, others)
    if overlap is not None:
        raise RefusedError(f"pod {ref}: {overlap}")
    given = Given(ref, position, holding.demands[position].role, device_ids, answer)
    return Grant(given, {**notes, **_served(pending, position)})


def _with_cus(holding: Holding, others: Sequence[Json], gpus: Mapping[str, Gpu]) -> tuple[Holding, dict[str, str]]:
    """Return what the pod holds, with its CUs, and the annotation to add when they had to be chosen."""
    if not missing_devices(holding):
        return holding, {}
    usages, _ = node_usage([gpu.info for gpu in gpus.values()], others)
    completed, text = complete(holding, usages)
    return completed, {CU_ALLOCATED: text}


def _served(pending: Pending, position: int) -> dict[str, str]:
    left = {DEVICES_TO_ALLOCATE: pending.without(position)}
    return left if len(pending.positions) > 1 else {**left, BIND_PHASE: PHASE_SUCCESS}
