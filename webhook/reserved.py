"""Annotations that say which GPUs a pod holds: whoever could write them could take another pod's compute units."""

from collections.abc import Mapping
from typing import Any, Final

from protocol.faults import Fault
from webhook.pod import Pod

PREFIXES: Final = ("hami.io/amd-", "hami.io/vgpu-", "hami.io/bind-")
CREATE_EXPECTATION: Final = "must not be set, only the scheduler and the device plugin write it: remove it"
UPDATE_EXPECTATION: Final = "must not be changed, only the scheduler and the device plugin write it"


def reserved_faults(pod: Pod) -> list[Fault]:
    """Return a fault for every such annotation of a new pod, whoever makes it and whether or not it asks for GPUs."""
    return [_fault(pod, key, pod.annotations, CREATE_EXPECTATION) for key in sorted(_reserved(pod.annotations))]


def changed_reserved_faults(old: Pod, new: Pod) -> list[Fault]:
    """Return a fault for every such annotation that an update adds, changes or removes."""
    keys = _reserved(old.annotations) | _reserved(new.annotations)
    return [
        _fault(new, key, new.annotations, UPDATE_EXPECTATION)
        for key in sorted(keys)
        if old.annotations.get(key) != new.annotations.get(key)
    ]


def _reserved(notes: Mapping[str, Any]) -> set[str]:
    return {key for key in notes if key.startswith(PREFIXES)}


def _fault(pod: Pod, key: str, notes: Mapping[str, Any], expected: str) -> Fault:
    return Fault(pod.annotation_path(key), notes.get(key, ""), expected, kind="Forbidden")
