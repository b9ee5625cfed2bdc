"""Telling the cluster about the node's GPUs: the annotation `hami.io/node-amd-register`, and the capacity."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from kube.client import KubeClient, KubeError
from kube.paths import node as node_path
from plugin.capacity import due_capacity
from plugin.inventory import Inventory
from plugin.patience import Backoff, first_of
from protocol.devices import DeviceInfo, encode_register
from protocol.names import NODE_REGISTER
from protocol.pods import annotations

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0


async def keep_registered(client: KubeClient, node: str, inventory: Inventory, *, recheck_seconds: float) -> None:
    """Keep the node equal to the inventory, for ever; the API server's absence only delays it.

    Args:
        client: the API server.
        node: this node's name.
        inventory: the GPUs.
        recheck_seconds: time between two looks: a Node object that was made anew has lost its annotations.
    """
    backoff = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
    while True:
        replaced = inventory.replaced
        try:
            await write_register(client, node, inventory.snapshot.devices)
        except KubeError as error:
            delay = backoff.next()
            log.warning("the GPUs could not be written to node %s, next try in %.1f s: %s", node, delay, error)
            await asyncio.sleep(delay)
        else:
            backoff.reset()
            await first_of(replaced, seconds=recheck_seconds)


async def write_register(client: KubeClient, node: str, devices: Sequence[DeviceInfo]) -> None:
    """Write what differs: the capacity first, as pods come when the annotation is there."""
    item = await client.get(node_path(node))
    due = due_capacity(item, devices)
    if due:
        status = {"capacity": due, "allocatable": due}
        await client.patch(f"{node_path(node)}/status", {"status": status})
        log.info("wrote capacity to node %s: %s", node, due)
    text = encode_register(devices)
    if annotations(item).get(NODE_REGISTER) != text:
        await client.patch(node_path(node), {"metadata": {"annotations": {NODE_REGISTER: text}}})
        log.info("wrote the GPUs to node %s: %s", node, text)
