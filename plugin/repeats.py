"""Recognising an Allocate call that the kubelet makes a second time.

A kubelet that restarts between an answer and its own checkpoint admits the pod again and asks again, with the same
device ids or, as it picks them at random, with others. The pod's annotations are used up by then. The node's ledger has
what was answered, whichever process of the plugin it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plugin.ledger import Entry
from plugin.pending import Pending, read_pending
from protocol.allocation import AllocationError
from protocol.demand import Role
from protocol.lock import NodeLock
from protocol.pods import Holding, Json, PodRef, is_ending, is_finished


@dataclass(frozen=True, slots=True)
class Served:
    """A container that was answered for, and may still wait to be started.

    Attributes:
        pod: as it is now.
        entry: the ledger's, of the pod.
        holding: what the pod was given, by its annotations.
        position: which of its containers.
    """

    pod: Json
    entry: Entry
    holding: Holding
    position: int

    @property
    def name(self) -> str:
        """Of the container."""
        return self.holding.demands[self.position].name


def find_repeated(
    device_ids: frozenset[str], entries: Iterable[Entry], on_node: Sequence[Json], lock: NodeLock | None
) -> Served | None:
    """Return the container that a call is for if it was answered before; None where that is not certain.

    Args:
        device_ids: of the call.
        entries: the ledger's.
        on_node: all pods that are bound to the node.
        lock: of the node; while a pod holds it, a call is for no other.
    """
    pods = _admissible(on_node)
    mine = [one for one in entries if one.pod in pods and _may_call(one.pod, lock)]
    found = [served for entry in mine for served in _served_by(device_ids, entry, pods[entry.pod])]
    return found[0] if len(found) == 1 else None


def find_forgotten(
    devices: int, entries: Iterable[Entry], on_node: Sequence[Json], lock: NodeLock | None
) -> tuple[Served, ...]:
    """Return the containers that were served and did not start, in the order in which the kubelet asks for a pod's.

    A call is for the first of those that the kubelet does not list as holders of devices.

    Args:
        devices: how many the call asks for.
        entries: the ledger's.
        on_node: all pods that are bound to the node.
        lock: of the node; while a pod holds it, a call is for no other.
    """
    pods = _admissible(on_node)
    mine = [one for one in entries if one.pod in pods and _may_call(one.pod, lock)]
    return tuple(served for entry in mine for served in _not_started(entry, pods[entry.pod], devices))


def _admissible(on_node: Sequence[Json]) -> dict[PodRef, Json]:
    return {PodRef.of(pod): pod for pod in on_node if not is_finished(pod) and not is_ending(pod)}


def _may_call(pod: PodRef, lock: NodeLock | None) -> bool:
    return lock is None or lock.held_by(pod.namespace, pod.name)


def _not_started(entry: Entry, pod: Json, devices: int) -> Iterator[Served]:
    holding = _holding_if_complete(pod)
    for position, demand in enumerate(holding.demands if holding else ()):
        asks = demand.gpus == devices and demand.name in entry.kubelet_ids
        if holding and asks and not was_started(pod, demand.name):
            yield Served(pod, entry, holding, position)


def _holding_if_complete(pod: Json) -> Holding | None:
    """Return what a pod was given if nothing of it is left to be handed out."""
    try:
        pending = read_pending(pod)
    except AllocationError:
        return None
    return None if pending.positions else pending.holding


def _served_by(device_ids: frozenset[str], entry: Entry, pod: Json) -> Iterator[Served]:
    """Yield the pod's container whose answer the kubelet may ask for again, if there is one.

    The containers after an init container get its device ids, so it is the last of those with them, and none while
    one is left that may be asked for the first time.
    """
    try:
        pending = read_pending(pod)
    except AllocationError:
        return
    demands = pending.holding.demands
    position = max((at for at, one in enumerate(demands) if entry.kubelet_ids.get(one.name) == device_ids), default=-1)
    if position >= 0 and not _is_next(pending, position) and not was_started(pod, demands[position].name):
        yield Served(pod, entry, pending.holding, position)


def _is_next(pending: Pending, position: int) -> bool:
    role = pending.holding.demands[position].role
    return position in pending.positions or (role is Role.INIT and bool(pending.positions))


def was_started(pod: Json, name: str) -> bool:
    """Return whether a pod's container of this name was ever started, by the pod's status."""
    status: Mapping[str, Any] = pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any(state.get("name") == name and bool(state.get("containerID")) for state in states)
