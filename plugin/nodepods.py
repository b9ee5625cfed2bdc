"""The pods of this node as the API server shows them, kept by a watch; of each only what the ledger needs."""

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass

from kube.client import KubeClient
from kube.listwatch import Change, Snapshot, list_watch
from kube.paths import PODS
from plugin.ledger import Entry
from protocol.allocation import AllocationError
from protocol.names import BIND_PHASE, PHASE_SUCCESS
from protocol.pods import Json, PodRef, annotations, is_finished, read_holding

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of a pod: whether it is over, and what it holds if that was handed out."""

    pod: PodRef
    finished: bool
    entry: Entry | None


class NodePods:
    """Written by `follow`, in one task; read by any other in the same event loop.

    Attributes:
        changed: set whenever something changed, also at first; whoever looks clears it.
        is_synced: whether the pods were read at least once.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Seen] = {}
        self.changed = asyncio.Event()
        self.is_synced = False

    @property
    def live(self) -> dict[str, Entry | None]:
        """By uid, for the pods that are not over, what was handed out to them."""
        return {uid: seen.entry for uid, seen in self._pods.items() if not seen.finished}

    @property
    def live_names(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of the pods that are not over."""
        return frozenset((seen.pod.namespace, seen.pod.name) for seen in self._pods.values() if not seen.finished)

    @property
    def known(self) -> frozenset[str]:
        """The uids of all pods of the node, over or not."""
        return frozenset(self._pods)

    def see(self, update: Snapshot | Change) -> None:
        """Take in what happened to the pods."""
        before = dict(self._pods)
        if isinstance(update, Snapshot):
            self._pods = {PodRef.of(item).uid: _seen(item) for item in update.items}
            self.is_synced = True
        elif update.kind == "DELETED":
            self._pods.pop(PodRef.of(update.item).uid, None)
        else:
            self._pods[PodRef.of(update.item).uid] = _seen(update.item)
        if isinstance(update, Snapshot) or self._pods != before:
            self.changed.set()

    async def follow(self, client: KubeClient, node: str) -> None:
        """Follow the pods of a node until cancelled."""
        async with aclosing(list_watch(client, PODS, field_selector=f"spec.nodeName={node}")) as updates:
            async for update in updates:
                self.see(update)


def _seen(pod: Json) -> Seen:
    return Seen(PodRef.of(pod), is_finished(pod), _entry(pod))


def _entry(pod: Json) -> Entry | None:
    if annotations(pod).get(BIND_PHASE) != PHASE_SUCCESS:
        return None
    try:
        holding = read_holding(pod)
    except AllocationError:
        return None  # the scheduler keeps such a pod's GPUs closed, and says so
    return Entry.of(PodRef.of(pod), holding) if holding is not None else None
