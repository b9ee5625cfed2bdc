"""Keeping the ledger true: entries that were lost come back, those of pods without processes go, survivors are told.

The scheduler counts by the pods' annotations. For pods whose processes outlive them it reads what is written here to
the Node object: `amd-vgpu.io/survivors`.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from kube.client import KubeClient, KubeError
from kube.paths import PODS
from kube.paths import node as node_path
from plugin.bookkeeping import disagreements
from plugin.ledger import Entry, Ledger
from plugin.nodepods import NodePods
from plugin.patience import first_of
from plugin.podresources import KubeletShare, PodResourcesError, kubelet_shares
from plugin.settings import PluginSettings
from plugin.survivors import Survivors
from protocol.allocation import AllocationError
from protocol.names import NODE_SURVIVORS
from protocol.pods import PodRef, annotations, is_finished
from protocol.survivors import Survivor, encode_survivors

log = logging.getLogger(__name__)

_PAUSE: Final = 0.2
"""Seconds between two looks at least: pods change several times a second while they start and end."""
_WHILE_OVER: Final = 1.0
"""Seconds until the next look while pods that are over have an entry: that processes end is no event of the cluster."""


class Upkeep:
    """Does it for one node.

    Args:
        settings: of the plugin.
        client: the API server.
        pods: of the node; followed here.
    """

    def __init__(self, settings: PluginSettings, client: KubeClient, pods: NodePods) -> None:
        self._settings = settings
        self._client = client
        self._pods = pods
        self._node = settings.node_name
        self._ledger = Ledger(settings.run_dir)
        self._survivors = Survivors.of(settings)
        self._told: str | None = None
        self._complaints: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Follow the node's pods and keep the ledger until cancelled; trouble with it is logged and tried again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.follow(self._client, self._node))
            tasks.create_task(self._keep())

    async def _keep(self) -> None:
        pause: float | None = None
        while True:
            await first_of(self._pods.changed, seconds=pause)
            if not self._pods.changed.is_set():
                self._told = None  # a Node object that was made anew has lost its annotations
            self._pods.changed.clear()
            pause = self._settings.recheck_seconds
            if not self._pods.is_synced:
                continue
            try:
                if await self.look():
                    pause = _WHILE_OVER
            except (KubeError, OSError) as error:
                log.warning("the ledger of the node could not be kept: %s", error)
                pause = _WHILE_OVER
            await asyncio.sleep(_PAUSE)

    async def look(self) -> bool:
        """Look once and do what is due; return whether entries of pods that are over are left.

        Raises:
            KubeError: the API server could not be asked.
            OSError: the ledger could not be written.
        """
        verdict = await self._survivors.look(self._pods.live, self._pods.known)
        shares = await self._kubelet_shares()
        for entry in verdict.lost:
            await self._restore(entry, shares)
        await self._tell(verdict.survivors)
        left = await self._forget(verdict.ended) if verdict.ended else False
        await self._compare(shares)
        return bool(verdict.survivors) or left

    async def _kubelet_shares(self) -> tuple[KubeletShare, ...]:
        """Return what the kubelet says of the pods that are not over; older kubelets also list those that are."""
        try:
            shares = await kubelet_shares(self._settings.pod_resources)
        except PodResourcesError as error:
            log.debug("not compared with the kubelet's account: %s", error)
            return ()
        names = self._pods.live_names
        return tuple(share for share in shares if (share.namespace, share.pod) in names)

    async def _restore(self, entry: Entry, shares: tuple[KubeletShare, ...]) -> None:
        """Write an entry by what the pod's annotations say that it holds, and the kubelet that it has."""
        for share in shares:
            if (share.namespace, share.pod) == (entry.pod.namespace, entry.pod.name):
                entry = entry.served(share.container, share.device_ids)
        try:
            await asyncio.to_thread(self._ledger.record, entry)
        except AllocationError as error:
            log.warning("pod %s has no entry in the ledger: %s", entry.pod, error)
        else:
            log.warning("the ledger had no readable entry of pod %s: written again from its annotations", entry.pod)

    async def _forget(self, uids: Collection[str]) -> bool:
        """Remove the entries of pods that are really over; return whether any has to stay.

        A pod that was just bound may be served before the watch shows it, so the API server is asked once more.
        """
        on_node, _ = await self._client.list(PODS, field_selector=f"spec.nodeName={self._node}")
        live = {PodRef.of(pod).uid for pod in on_node if not is_finished(pod)}
        for uid in uids:
            if uid not in live:
                await asyncio.to_thread(self._ledger.forget, uid)
                log.info("pod uid=%s is over and has no process any more: its entry is removed", uid)
        return not live.isdisjoint(uids)

    async def _tell(self, survivors: tuple[Survivor, ...]) -> None:
        """Write the survivors to the node; the node is only read when something may have changed."""
        text = encode_survivors(survivors) if survivors else None
        if self._told is not None and text == (self._told or None):
            return
        item = await self._client.get(node_path(self._node))
        if annotations(item).get(NODE_SURVIVORS) != text:
            await self._client.patch(node_path(self._node), {"metadata": {"annotations": {NODE_SURVIVORS: text}}})
            for survivor in survivors:
                log.warning("node %s: what it holds stays taken: pod %s", self._node, survivor)
        self._told = text or ""

    async def _compare(self, shares: tuple[KubeletShare, ...]) -> None:
        """Say where the kubelet's own account differs, once for each case."""
        found = frozenset(disagreements(await asyncio.to_thread(self._ledger.read), shares))
        for complaint in sorted(found - self._complaints):
            log.error("%s", complaint)
        self._complaints = found
