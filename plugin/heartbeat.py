"""Telling the scheduler that this node's device plugin lives: a Lease, renewed for as long as there are GPUs.

Only that it changes counts: the scheduler measures with its own clock when it last did.
"""

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any, Final

from kube import paths
from kube.client import ConflictError, KubeClient, KubeError, NotFoundError
from plugin.inventory import Inventory
from plugin.patience import Backoff, first_of
from protocol.heartbeat import RENEW_SECONDS, STALE_SECONDS, lease_name

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.5
_SPREAD: Final = 0.1


async def keep_beating(
    client: KubeClient, namespace: str, node: str, inventory: Inventory, *, seconds: float = RENEW_SECONDS
) -> None:
    """Renew the node's Lease for ever; a node without GPUs has none to renew.

    Args:
        client: the API server.
        namespace: of the Lease.
        node: this node's name.
        inventory: the GPUs.
        seconds: time between two renewals.
    """
    backoff = Backoff(_FIRST_DELAY, seconds)
    while True:
        replaced = inventory.replaced
        if not inventory.snapshot.devices:
            await first_of(replaced)
            continue
        try:
            await beat(client, namespace, node)
        except KubeError as error:
            delay = backoff.next()
            log.warning("the Lease of node %s was not renewed, next try in %.1f s: %s", node, delay, error)
            await asyncio.sleep(delay)
        else:
            backoff.reset()
            # Plugins that were started at once should not all write at once for ever.
            await asyncio.sleep(seconds * random.uniform(1 - _SPREAD, 1 + _SPREAD))  # noqa: S311


async def beat(client: KubeClient, namespace: str, node: str) -> None:
    """Renew the Lease, or make it.

    Raises:
        KubeError: the API server refused or could not be asked.
    """
    spec = {
        "holderIdentity": node,
        "leaseDurationSeconds": int(STALE_SECONDS),
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    path = paths.named(paths.leases(namespace), lease_name(node))
    try:
        await client.patch(path, {"spec": spec})
    except NotFoundError:
        await _create(client, namespace, node, spec)


async def _create(client: KubeClient, namespace: str, node: str, spec: dict[str, Any]) -> None:
    """Make the Lease; it goes with the Node, to which it belongs."""
    item = await client.get(paths.node(node))
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": item["metadata"]["uid"]}
    metadata = {"name": lease_name(node), "namespace": namespace, "ownerReferences": [owner]}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    try:
        await client.create(paths.leases(namespace), body)
    except ConflictError:
        return  # made meanwhile, by a plugin that is just being replaced: the next beat is for both
