"""Which container of a pod is next.

The kubelet calls Allocate for a pod's containers one by one, init containers first, and does not say for which. The
annotation `hami.io/amd-devices-to-allocate` says which are left: a served container's segment is emptied.
"""

from dataclasses import dataclass

from protocol.allocation import AllocationError, Segments, decode_segments, encode_segments
from protocol.names import BIND_PHASE, DEVICES_TO_ALLOCATE, PHASE_SUCCESS
from protocol.pods import Holding, Json, annotations, read_holding


class OtherCallError(AllocationError):
    """The kubelet's call does not fit the pod that waits, so it is for another pod."""


class NothingLeftError(AllocationError):
    """The pod has everything already, so the call is for another pod."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What of a pod's allocation is still to be handed out.

    Attributes:
        holding: all that the pod was given.
        positions: of the containers that are still to be served, in the kubelet's order.
    """

    holding: Holding
    positions: tuple[int, ...]

    def next_for(self, gpus: int) -> int:
        """Return the position of the container that is next, if it was given this many GPUs.

        Raises:
            NothingLeftError: no container is left.
            OtherCallError: the next one was given another number.
        """
        if not self.positions:
            raise NothingLeftError("every container has its devices already")
        position = self.positions[0]
        given = len(self.holding.segments[position])
        if given != gpus:
            name = self.holding.demands[position].name
            raise OtherCallError(f"container {name!r} was given {given} GPUs, the kubelet asks for {gpus}")
        return position

    def without(self, position: int) -> str:
        """Return the annotation's text once a container is served, with every segment at its container's position."""
        left = {other for other in self.positions if other != position}
        return encode_segments([segment if at in left else () for at, segment in enumerate(self.holding.segments)])


def read_pending(pod: Json) -> Pending:
    """Return what is left to hand out of a pod's allocation.

    Raises:
        AllocationError: the pod was never given a GPU, or its annotations cannot be read or contradict each other.
    """
    holding = read_holding(pod)
    text = annotations(pod).get(DEVICES_TO_ALLOCATE)
    if holding is None or text is None:
        raise AllocationError("the pod has no allocation")
    return Pending(holding, _positions(holding.segments, decode_segments(text)))


def is_complete(pod: Json) -> bool:
    """Return whether all of a pod's containers have their devices."""
    return annotations(pod).get(BIND_PHASE) == PHASE_SUCCESS


def has_begun(pod: Json) -> bool:
    """Return whether one of a pod's containers has its devices already.

    The kubelet admits one pod after the other, so the next call is that pod's, too.
    """
    try:
        pending = read_pending(pod)
    except AllocationError:
        return False
    return len(pending.positions) < sum(bool(segment) for segment in pending.holding.segments)


def _positions(segments: Segments, to_allocate: Segments) -> tuple[int, ...]:
    """Return the positions of the segments that are left.

    They are the last ones, as containers are served in order. That holds as well where HAMi left out the empty
    segments of containers without GPUs, so the place in the text is not used.
    """
    left = [segment for segment in to_allocate if segment]
    filled = [position for position, segment in enumerate(segments) if segment]
    positions = filled[len(filled) - len(left) :] if len(left) <= len(filled) else []
    if [segments[position] for position in positions] != left:
        raise AllocationError("the devices that are left to allocate are not among those allocated")
    return tuple(positions)
