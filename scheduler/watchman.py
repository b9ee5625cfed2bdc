"""Looking at every node that changed: what is wrong there becomes Events and metrics, what is free becomes sums.

The cost goes with the changes, not with the size of the cluster.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from protocol.pods import PodRef
from scheduler.capacity import Sums, sums
from scheduler.events import About, Events
from scheduler.findings import Finding, Geometry, geometry, inspect
from scheduler.leader import Leadership
from scheduler.metrics import Metrics
from scheduler.state import ClusterState

_TELL_SECONDS: Final = 60.0
"""Time between two times that everything wrong is told; `Events` forgets none of it for far longer."""
_LEAST_PAUSE: Final = 0.5
"""Time between two rounds: changes that come close together are looked at once."""
_ACTION: Final = "Accounting"


class Watchman:
    """Keeps what is known to be wrong, and the sums, up to date.

    Args:
        state: the watched cluster.
        events: are told of troubles, by the active replica alone.
        metrics: are told of everything.
        leadership: whether this replica is active.
        monotonic: seconds.
    """

    def __init__(
        self,
        state: ClusterState,
        events: Events,
        metrics: Metrics,
        leadership: Leadership,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._events = events
        self._metrics = metrics
        self._leadership = leadership
        self._monotonic = monotonic
        self._findings: dict[str, list[Finding]] = {}
        self._found: dict[str, dict[str, Geometry]] = {}
        self._sums: dict[str, Sums] = {}
        self._total: Sums = Counter()
        self._told_at = float("-inf")

    async def run(self) -> None:
        """Look at what changes until cancelled."""
        await self._state.wait_until(lambda: self._state.is_synced)
        while True:
            try:
                async with asyncio.timeout(_TELL_SECONDS):
                    await self._state.wait_until(lambda: bool(self._state.touched))
            except TimeoutError:
                pass
            await self.look()
            await asyncio.sleep(_LEAST_PAUSE)

    async def look(self) -> None:
        """Look at every node that changed since the last time."""
        fresh: list[Finding] = []
        while self._state.touched:
            node = self._state.touched.pop()
            before = self._findings.get(node, [])
            fresh.extend(finding for finding in self._inspect(node) if finding not in before)
            self._sum(node)
            await asyncio.sleep(0)  # a large cluster that was just read must not keep kube-scheduler waiting
        self._total = +self._total  # without products that are gone
        self._metrics.summed(self._total)
        self._metrics.found(Counter(one.kind for findings in self._findings.values() for one in findings))
        self._tell(fresh)

    def _inspect(self, node: str) -> list[Finding]:
        item, pods = self._state.node(node) or {}, self._state.pods_on(node)
        known: Mapping[str, Geometry] = self._found.get(node, {})
        findings = inspect(node, item, tuple(pods.values()), known)
        self._found[node] = {uid: {**geometry(pod, item), **known.get(uid, {})} for uid, pod in pods.items()}
        self._findings[node] = findings
        for kept in (self._found, self._findings):
            if not kept[node]:
                del kept[node]
        return findings

    def _sum(self, node: str) -> None:
        self._total.subtract(self._sums.pop(node, Counter()))
        now = sums(self._state.usages(node).values())
        if now:
            self._sums[node] = now
            self._total.update(now)

    def _tell(self, fresh: list[Finding]) -> None:
        if not self._leadership.held:
            return
        now = self._monotonic()
        if now - self._told_at >= _TELL_SECONDS:
            # All of it: this replica may have become active since, and Events of long ago may be gone.
            self._told_at, fresh = now, [one for findings in self._findings.values() for one in findings]
        for finding in fresh:
            self._events.note(_about(finding.pod, finding.node), finding.kind, _ACTION, finding.text)


def _about(pod: PodRef | None, node: str) -> About:
    return About.node(node) if pod is None else About.pod(pod)
