"""The node lock `hami.io/mutex.lock`: `<RFC 3339 time>,<namespace>,<pod name>`.

Its holder alone decides about the node's GPUs. It also tells the device plugin whose Allocate comes next, as the
kubelet does not say. HAMi's parser wants exactly three parts, so nothing can be added to the value.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_PARTS: Final = 3
# Names of Kubernetes objects. Whoever may change nodes may write anything here, and it becomes part of a URL.
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_YEARS: Final = (1970, 9000)
CLOCK_SKEW: Final = timedelta(minutes=1)
"""How far the clocks of two machines may be apart: a lock has the scheduler's time, a pod the API server's."""


@dataclass(frozen=True, slots=True)
class NodeLock:
    """Who holds a node, since when.

    Attributes:
        since: when it was taken, with a time zone; whole seconds on the wire.
        namespace: of the holding pod.
        pod: name of the holding pod.
    """

    since: datetime
    namespace: str
    pod: str

    def encode(self) -> str:
        """Return the annotation's value."""
        return f"{self.since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{self.namespace},{self.pod}"

    def held_by(self, namespace: str, pod: str) -> bool:
        """Return whether this pod is the holder; names are compared whole."""
        return (self.namespace, self.pod) == (namespace, pod)

    def is_due(self, now: datetime, grace: timedelta) -> bool:
        """Return whether the lock is older than a time of grace, or of a time to come, so that its age says nothing.

        Such a lock is that of a clock that was wrong, and must not count until that time has come.
        """
        return not -CLOCK_SKEW <= now - self.since < grace

    def is_older_than(self, created: datetime) -> bool:
        """Return whether a pod of this name that was created then cannot be the holder: it came after the lock."""
        return self.since + CLOCK_SKEW < created


def decode_lock(value: str) -> NodeLock | None:
    """Return the lock, or None for a value that names nobody and so binds nobody (an old or broken writer)."""
    parts = value.split(",")
    if len(parts) != _PARTS or not all(_NAME.fullmatch(name) for name in parts[1:]):
        return None
    try:
        since = datetime.fromisoformat(parts[0])
    except ValueError:
        return None
    # Others reckon with it, which must not end beyond what a time can be.
    if not _YEARS[0] <= since.year < _YEARS[1]:
        return None
    return NodeLock(since if since.tzinfo else since.replace(tzinfo=UTC), parts[1], parts[2])
