"""`--require-audit`: a program that the audit library cannot hold fails, instead of running without a memory limit.

Nobody can tell when a container starts what programs it will run, so they are looked at while they run: as soon as one
has opened the GPU without the library it is killed, and an Event on the pod says why.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kube.client import KubeClient, KubeError
from plugin.cgroups import CgroupError, processes_of_pods
from plugin.ledger import Entry, Ledger
from plugin.settings import PluginSettings
from plugin.unaudited import Unaudited, find_unaudited, kill
from protocol.names import LIBRARY_NAME
from protocol.pods import PodRef

log = logging.getLogger(__name__)

REASON: Final = "WithoutMemoryLimit"
_SECONDS: Final = 2.0
"""A look costs some 15 ms where 250 pods run."""
_PROC: Final = Path("/proc")


class Requirement:
    """Looks after the processes of all pods that were given a share on this node.

    Args:
        settings: of the plugin, which has the host's PID namespace.
        client: the API server, for Events.
    """

    def __init__(self, settings: PluginSettings, client: KubeClient) -> None:
        self._settings = settings
        self._client = client
        self._ledger = Ledger(settings.run_dir)
        self._blind = False

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_SECONDS)

    async def look(self) -> None:
        """Look once, and tell what was killed."""
        try:
            killed = await asyncio.to_thread(self._enforce)
        except (CgroupError, OSError) as error:
            log.warning("not known whether programs are held to their limits: %s", error)
            return
        for entry, found in killed:
            message = f"{found.program} used a GPU without {LIBRARY_NAME}, which holds programs to their limit: killed"
            log.warning("pod %s: %s", entry.pod, message)
            await self._tell(entry.pod, message)

    def _enforce(self) -> list[tuple[Entry, Unaudited]]:
        entries = self._ledger.read().entries
        if not entries:
            return []
        kfd = (self._settings.dev_root / "kfd").stat().st_rdev
        processes = processes_of_pods(self._settings.cgroup_root, entries.keys())
        self._check_sight(processes)
        suspects = [(entries[uid], pid) for uid, pids in processes.items() for pid in pids]
        found = [(entry, one) for entry, pid in suspects if (one := find_unaudited(_PROC, pid, kfd))]
        return [(entry, one) for entry, one in found if kill(one, _PROC, kfd)]

    def _check_sight(self, processes: Mapping[str, frozenset[int]]) -> None:
        blind = bool(processes) and not any(processes.values())
        if blind and not self._blind:
            log.error(
                "pods have processes that cannot be seen: --require-audit needs hostPID: true in the plugin's pod"
            )
        self._blind = blind

    async def _tell(self, pod: PodRef, message: str) -> None:
        moment = datetime.now(UTC)
        now = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name}.{int(moment.timestamp() * 1e6):x}", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning",
            "reason": REASON,
            "message": message,
            "source": {"component": "amd-vgpu-plugin", "host": self._settings.node_name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._client.create(f"/api/v1/namespaces/{pod.namespace}/events", body)
        except KubeError as error:
            log.warning("no Event for pod %s: %s", pod, error)
