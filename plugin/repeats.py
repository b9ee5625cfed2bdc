"""Recognising an Allocate call that the kubelet makes a second time.

A kubelet that restarts between an answer and its own checkpoint admits the pod again and asks again. The pod's
annotations are used up by then, so the answer is remembered here.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from plugin.allocate import Answer
from protocol.demand import Role, containers
from protocol.pods import Json, PodRef, is_finished, node_name

_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class Given:
    """An answer and what it was for.

    Attributes:
        pod: whose container.
        position: which container.
        role: its role: the kubelet hands an init container's device ids on to the containers after it.
        device_ids: of the kubelet's call.
        answer: what the container gets.
    """

    pod: PodRef
    position: int
    role: Role
    device_ids: frozenset[str]
    answer: Answer


class Repeats:
    """The last answers, newest first; the last one for each container counts."""

    def __init__(self) -> None:
        self._given: deque[Given] = deque(maxlen=_REMEMBERED)

    def remember(self, given: Given) -> None:
        """Remember an answer; called before it takes effect, so that none is missed."""
        same = next((old for old in self._given if (old.pod, old.position) == (given.pod, given.position)), None)
        if same is not None:
            self._given.remove(same)
        self._given.appendleft(given)

    def find(self, device_ids: frozenset[str]) -> Given | None:
        """Return the newest answer to a call with just these ids."""
        return next((given for given in self._given if given.device_ids == device_ids), None)


def may_repeat(given: Given, pod: Json, node: str) -> bool:
    """Return whether the container that was served may still wait to be started.

    Args:
        given: what was answered.
        pod: the pod as it is now.
        node: this node's name.
    """
    same = PodRef.of(pod) == given.pod and node_name(pod) == node and not is_finished(pod)
    return same and not _was_started(pod, given.position)


def _was_started(pod: Json, position: int) -> bool:
    spec = pod.get("spec") or {}
    name = next((field.body.get("name") for field in containers(spec) if field.position == position), None)
    status: Mapping[str, Any] = pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any(state.get("name") == name and bool(state.get("containerID")) for state in states)
