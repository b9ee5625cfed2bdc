"""What an earlier bind of a pod, that stopped halfway, may yet do: no I/O."""

import re
from datetime import datetime
from typing import Final

from protocol.lock import CLOCK_SKEW
from protocol.names import ASSIGNED_NODE, BIND_PHASE, BIND_TIME, PHASE_ALLOCATING
from protocol.pods import Json, annotations, node_name
from scheduler.nodelock import UNBOUND_GRACE

_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
GRACE_SECONDS: Final = UNBOUND_GRACE.total_seconds()


def bound_soon(pod: Json, now: datetime) -> str:
    """Return the node to which an earlier bind may yet bind the pod, or the empty string.

    An API server before 1.23 lets a Binding through whatever has become of the pod since, so nothing but time ends a
    bind that stopped halfway.
    """
    notes = annotations(pod)
    began = notes.get(BIND_TIME, "")
    if node_name(pod) or notes.get(BIND_PHASE) != PHASE_ALLOCATING or not _SECONDS.fullmatch(began):
        return ""
    age = now.timestamp() - int(began)
    return notes.get(ASSIGNED_NODE, "") if -CLOCK_SKEW.total_seconds() <= age < GRACE_SECONDS else ""
