"""Who still runs on this node, by those who must know: the kernel, and the kubelet for pods that it has not let go."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from plugin.bookkeeping import still_listed
from plugin.cgroups import CgroupError, pods_with_processes
from plugin.ledger import Entry
from plugin.podresources import PodResourcesError, kubelet_shares

log = logging.getLogger(__name__)


class Evidence:
    """Tells which pods still run. Without one of its witnesses it goes by the other, and says so once.

    Args:
        cgroup_root: where the host's cgroups are mounted.
        pod_resources: the kubelet's socket.
    """

    def __init__(self, cgroup_root: Path, pod_resources: Path) -> None:
        self._cgroup_root = cgroup_root
        self._pod_resources = pod_resources
        self._said: set[str] = set()

    async def running(self, forgotten: Iterable[Entry]) -> frozenset[str]:
        """Return the uids of all pods that have processes, and of those that the kubelet still counts as holders.

        Args:
            forgotten: entries of pods that the API server does not know any more. Of others the kubelet is not asked:
                older ones list pods that have ended, for as long as their objects exist.
        """
        return await asyncio.to_thread(self._with_processes) | await self._listed(tuple(forgotten))

    def _with_processes(self) -> frozenset[str]:
        try:
            return pods_with_processes(self._cgroup_root)
        except (CgroupError, OSError) as error:
            self._say_once("cgroups", f"it cannot be told which pods still have processes: {error}")
            return frozenset()

    async def _listed(self, entries: tuple[Entry, ...]) -> frozenset[str]:
        if not entries:
            return frozenset()
        try:
            return still_listed(entries, await kubelet_shares(self._pod_resources))
        except PodResourcesError as error:
            self._say_once("kubelet", f"the kubelet does not tell who has its devices: {error}")
            return frozenset()

    def _say_once(self, witness: str, message: str) -> None:
        if witness not in self._said:
            self._said.add(witness)
            log.warning("%s", message)
