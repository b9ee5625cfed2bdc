"""What the rules look at in a pod."""

from collections.abc import Mapping
from typing import Any

from protocol.demand import ContainerField, containers, wants_gpu
from protocol.names import DEFAULT_SCHEDULER_NAME
from protocol.pods import Json

Spec = Mapping[str, Any]


def spec_of(pod: Json) -> Spec:
    """Return the pod's spec, an empty one when it has none."""
    return pod.get("spec") or {}


def gpu_containers(spec: Spec) -> list[ContainerField]:
    """Return the containers that name one of the GPU resources, init containers first."""
    return [container for container in containers(spec) if wants_gpu(container.body)]


def other_scheduler(spec: Spec, scheduler_name: str) -> str:
    """Return the scheduler that the user chose instead of ours, or the empty string."""
    name = spec.get("schedulerName") or ""
    return "" if name in {DEFAULT_SCHEDULER_NAME, scheduler_name} else str(name)
