"""What the rules look at: a pod, or the template of pods in a workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from protocol.demand import ContainerField, containers, wants_gpu
from protocol.names import DEFAULT_SCHEDULER_NAME
from protocol.pods import Json, annotations

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that is to be judged, and where it stands in its object.

    Attributes:
        annotations: of the pod.
        spec: of the pod, an empty one when it has none.
        containers: init containers first.
        gpu_containers: those that name one of the GPU resources.
        prefix: what comes before `metadata` and `spec` in field paths, such as `spec.template.`; empty for a pod.
    """

    annotations: Mapping[str, Any]
    spec: Spec
    containers: tuple[ContainerField, ...]
    gpu_containers: tuple[ContainerField, ...]
    prefix: str = ""

    @classmethod
    def of(cls, pod: Json, prefix: str = "") -> Self:
        """Return the view of a pod object."""
        spec = spec_of(pod)
        found = tuple(containers(spec, f"{prefix}spec"))
        return cls(annotations(pod), spec, found, tuple(one for one in found if wants_gpu(one.body)), prefix)

    @property
    def spec_path(self) -> str:
        """Where the spec stands."""
        return f"{self.prefix}spec"

    def annotation_path(self, key: str) -> str:
        """Return where an annotation stands."""
        return f"{self.prefix}metadata.annotations[{key}]"


def spec_of(pod: Json) -> Spec:
    """Return the pod's spec, an empty one when it has none."""
    return pod.get("spec") or {}


def other_scheduler(spec: Spec, scheduler_name: str) -> str:
    """Return the scheduler that the user chose instead of ours, or the empty string."""
    name = spec.get("schedulerName") or ""
    return "" if name in {DEFAULT_SCHEDULER_NAME, scheduler_name} else str(name)
