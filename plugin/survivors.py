"""Pods that are over for the cluster and still have processes on this node: what they hold is not free yet."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from plugin.bookkeeping import Verdict, judge
from plugin.evidence import Evidence
from plugin.ledger import Entry, Ledger
from plugin.settings import PluginSettings
from protocol.pods import Json, PodRef, is_finished


class Survivors:
    """Finds them by the ledger.

    Args:
        ledger: of this node.
        evidence: tells who still runs.
    """

    def __init__(self, ledger: Ledger, evidence: Evidence) -> None:
        self._ledger = ledger
        self._evidence = evidence

    @classmethod
    def of(cls, settings: PluginSettings) -> Self:
        """Return one for a plugin's settings."""
        return cls(Ledger(settings.run_dir), Evidence(settings.cgroup_root, settings.pod_resources))

    async def among(self, on_node: Sequence[Json]) -> Verdict:
        """Return who survives and what the others hold, given all pods that are bound to the node now."""
        live = {PodRef.of(pod).uid: None for pod in on_node if not is_finished(pod)}
        return await self.look(live, {PodRef.of(pod).uid for pod in on_node})

    async def look(self, live: Mapping[str, Entry | None], known: Collection[str]) -> Verdict:
        """Return what is to be done about the ledger.

        Args:
            live: by uid, for the pods that are not over what the ledger should say, or None.
            known: uids of all pods that the API server has, over or not.
        """
        books = await asyncio.to_thread(self._ledger.read)
        over = {*books.entries, *books.faulty} - live.keys()
        forgotten = [books.entries[uid] for uid in over if uid in books.entries and uid not in known]
        return judge(books, live, await self._evidence.running(forgotten) if over else frozenset())
