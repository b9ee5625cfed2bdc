"""Reading pods as the API server gives them: JSON objects, never client models, so that unknown fields stay."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from protocol.allocation import AllocationError, Segments, align_segments, decode_cus, decode_segments
from protocol.demand import ContainerDemand, DemandError, containers, read_demand, wants_gpu
from protocol.names import CU_ALLOCATED, DEVICES_ALLOCATED

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodRef:
    """Which pod: names are reused (StatefulSets), the uid is not."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: Json) -> Self:
        """Return the reference of a pod object."""
        metadata = pod.get("metadata") or {}
        return cls(metadata.get("namespace", ""), metadata.get("name", ""), metadata.get("uid", ""))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def annotations(item: Json) -> dict[str, str]:
    """Return the annotations of any object, an empty dictionary when it has none."""
    return dict((item.get("metadata") or {}).get("annotations") or {})


def is_finished(pod: Json) -> bool:
    """Return whether the pod's containers have ended for good, so that it holds nothing any more.

    A pod that is being deleted still runs: it holds what it has until its object is gone or its phase says so.
    """
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def is_ending(pod: Json) -> bool:
    """Return whether a pod is being deleted; it holds what it has until it is gone."""
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def node_name(pod: Json) -> str:
    """Return the node that the pod is bound to, or the empty string."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def nominated_node(pod: Json) -> str:
    """Return the node on which others are evicted for a pod that is not bound yet, or the empty string."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def priority(pod: Json) -> int:
    """Return a pod's priority as the API server has filled it in."""
    return int((pod.get("spec") or {}).get("priority") or 0)


@dataclass(frozen=True, slots=True)
class Holding:
    """What a pod holds on its node.

    Attributes:
        demands: of its containers, by position.
        segments: the containers' shares, at the same positions.
        cus: all CUs of the pod by device id, in the annotation's order. A device of the segments that is missing here
            was given out by HAMi's scheduler; its plugin says which CUs only at Allocate.
    """

    demands: tuple[ContainerDemand, ...]
    segments: Segments
    cus: Mapping[str, tuple[int, ...]]


def asks_for_gpus(pod: Json) -> bool:
    """Return whether any of a pod's containers names one of the resources."""
    return any(wants_gpu(container.body) for container in containers(pod.get("spec") or {}))


def read_holding(pod: Json) -> Holding | None:
    """Return what a pod that is bound holds by its annotations, or None for a pod that asks for no GPU.

    The annotations of a pod that asks for none mean nothing: anybody may have copied them there.

    Raises:
        AllocationError: it asks for GPUs and its annotations are missing, cannot be read, or do not fit its containers.
    """
    if not asks_for_gpus(pod):
        return None
    try:
        demands = read_demand(pod.get("spec") or {})
    except DemandError as error:
        raise AllocationError(str(error)) from error
    notes = annotations(pod)
    text = notes.get(DEVICES_ALLOCATED)
    if text is None:
        raise AllocationError(f"it has no annotation {DEVICES_ALLOCATED}")
    segments = align_segments(decode_segments(text), [demand.gpus > 0 for demand in demands])
    cus = decode_cus(notes[CU_ALLOCATED]) if CU_ALLOCATED in notes else {}
    return Holding(demands, segments, cus)


def named_devices(pod: Json) -> frozenset[str] | None:
    """Return the ids of the GPUs that a bound pod holds parts of, None if it does not say readably which."""
    notes = {key: value for key, value in annotations(pod).items() if key != CU_ALLOCATED}
    try:
        holding = read_holding({**pod, "metadata": {**pod["metadata"], "annotations": notes}})
    except AllocationError:
        return None
    segments = holding.segments if holding else ()
    return frozenset(share.device_id for segment in segments for share in segment)
