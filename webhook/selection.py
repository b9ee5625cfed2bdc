"""Annotations with which users choose GPUs and nodes, in HAMi's spelling.

HAMi takes an unknown policy for the default and an empty list for one that nothing fits, without a word.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from protocol.faults import Fault
from protocol.names import RESOURCES
from protocol.selection import GPU_POLICY, NO_ID, NO_TYPE, NODE_POLICY, USE_ID, USE_INDEX, USE_TYPE
from webhook.pod import Pod

NODE_POLICIES: Final = frozenset({"binpack", "spread"})
GPU_POLICIES: Final = frozenset({"binpack", "spread", "mutex", "numa", "topology-aware"})

# The other vendors' spelling, which HAMi reads for none of AMD's GPUs.
_MISSPELT: Final = {"amd.com/use-gpuuuid": USE_ID, "amd.com/nouse-gpuuuid": NO_ID}
_INDEX: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


def selection_faults(pod: Pod) -> list[Fault]:
    """Return a fault for every choice of a pod that cannot be meant."""
    return [
        Fault(pod.annotation_path(key), pod.annotations[key], expected)
        for key, (is_right, expected) in _RULES.items()
        if key in pod.annotations and not is_right(pod.annotations[key])
    ]


def changed_selection_faults(old: Pod, new: Pod) -> list[Fault]:
    """Return the faults of an update's own choices."""
    unchanged = {new.annotation_path(key) for key in _RULES if old.annotations.get(key) == new.annotations.get(key)}
    return [fault for fault in selection_faults(new) if fault.field not in unchanged]


def selection_warnings(pod: Pod) -> list[str]:
    """Return warnings about annotations that look as if they were read."""
    amounts = [
        f"{pod.annotation_path(name)}: is not read; write {name} under resources.limits of the container"
        for name in RESOURCES
        if name in pod.annotations
    ]
    spellings = [
        f"{pod.annotation_path(wrong)}: is not read; write {right}"
        for wrong, right in _MISSPELT.items()
        if wrong in pod.annotations
    ]
    return [*amounts, *spellings]


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",") if member.strip()]


def _is_indices(text: str) -> bool:
    return bool(_members(text)) and all(_INDEX.fullmatch(member) for member in _members(text))


def _is_node_policy(text: str) -> bool:
    return text in NODE_POLICIES


def _is_gpu_policy(text: str) -> bool:
    return all(member.strip() in GPU_POLICIES for member in text.split(","))


def _is_list(text: str) -> bool:
    return bool(_members(text))


_Rule = tuple[Callable[[str], bool], str]
_TYPES: Final[_Rule] = (_is_list, "must name at least one GPU type, several joined by commas")
_UUIDS: Final[_Rule] = (_is_list, "must name at least one GPU id, several joined by commas")
_RULES: Final[Mapping[str, _Rule]] = {
    USE_TYPE: _TYPES,
    NO_TYPE: _TYPES,
    USE_ID: _UUIDS,
    NO_ID: _UUIDS,
    USE_INDEX: (_is_indices, "must be the numbers of GPUs, counted from 0, joined by commas"),
    NODE_POLICY: (_is_node_policy, "must be binpack or spread"),
    GPU_POLICY: (
        _is_gpu_policy,
        "must be binpack, spread, mutex, numa or topology-aware, or several of them joined by commas",
    ),
}
