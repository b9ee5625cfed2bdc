"""For which container a call is, where the lock alone does not say: the kubelet is asked whom it knows."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from plugin.holder import RivalError
from plugin.ledger import Entry
from plugin.pending import has_begun
from plugin.podresources import PodResourcesError, kubelet_shares
from plugin.repeats import Served, find_forgotten, find_repeated
from plugin.rivals import Waiting, find_rivals, without_devices
from protocol.lock import NodeLock
from protocol.pods import Json, PodRef

log = logging.getLogger(__name__)


class Callers:
    """Tells whose a call is.

    Args:
        pod_resources: the kubelet's socket.
    """

    def __init__(self, pod_resources: Path) -> None:
        self._pod_resources = pod_resources

    async def repeated(
        self, device_ids: frozenset[str], standing: Sequence[Entry], on_node: Sequence[Json], lock: NodeLock | None
    ) -> Served | None:
        """Return the container that a call is for if it was answered before; None where that is not certain.

        Args:
            device_ids: of the call.
            standing: the ledger's entries of pods that are not over.
            on_node: all pods that are bound to the node.
            lock: of the node.
        """
        same = find_repeated(device_ids, standing, on_node, lock)
        forgotten = () if same else find_forgotten(len(device_ids), standing, on_node, lock)
        if not forgotten:
            return same
        unknown = await self._unknown([(one.entry.pod, one.name) for one in forgotten]) or ()
        left = [one for one in forgotten if (one.entry.pod, one.name) in unknown]
        if len({one.entry.pod for one in left}) != 1:
            return None
        rivals = await self._rivals(left[0].entry.pod, len(device_ids), on_node, standing)
        return None if rivals else left[0]

    async def check_rivals(
        self, holder: Json, devices: int, on_node: Sequence[Json], standing: Sequence[Entry]
    ) -> None:
        """Refuse while a call may be for another pod than the holder of the node's lock.

        Raises:
            RivalError: with the other.
        """
        if has_begun(holder):
            return
        rivals = await self._rivals(PodRef.of(holder), devices, on_node, standing)
        if rivals:
            other, name = rivals[0]
            raise RivalError(
                f"the call may be for container {name!r} of pod {other}, which came past the scheduler "
                "and asks for as many GPUs"
            )

    async def _rivals(
        self, holder: PodRef, devices: int, on_node: Sequence[Json], standing: Sequence[Entry]
    ) -> tuple[Waiting, ...]:
        """Return the containers that may wait beside a pod's; where the kubelet is silent, all that the cluster has."""
        rivals = find_rivals(holder, devices, on_node, standing)
        unknown = await self._unknown(rivals) if rivals else ()
        return rivals if unknown is None else unknown

    async def _unknown(self, containers: Iterable[Waiting]) -> tuple[Waiting, ...] | None:
        """Return those to which the kubelet has given no devices, None where it does not tell."""
        try:
            return without_devices(containers, await kubelet_shares(self._pod_resources))
        except PodResourcesError as error:
            log.debug("the kubelet does not tell who has its devices: %s", error)
            return None
