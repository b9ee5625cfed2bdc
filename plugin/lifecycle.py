"""Running the device plugin: install the library, find the GPUs, then keep the kubelet and the cluster informed."""

import asyncio
import logging

from kube.client import KubeClient
from plugin.allocator import Allocator
from plugin.discovery import Snapshot, carry_over, discover
from plugin.inventory import Inventory
from plugin.library import install_library
from plugin.register import keep_registered
from plugin.service import DevicePluginService
from plugin.serving import keep_serving
from plugin.settings import PluginSettings
from plugin.sockets import own_socket

log = logging.getLogger(__name__)


async def run(settings: PluginSettings, client: KubeClient, stop: asyncio.Event) -> None:
    """Run the device plugin until `stop` is set.

    The kubelet learns of the GPUs whether or not the API server is there: after a reboot of the node it must not take
    running pods' devices for lost.

    Raises:
        LibraryError: the audit library cannot be installed.
        SocketPathError: the path of the kubelet's folder is too long.
    """
    own_socket(settings.kubelet_dir)  # a path that is too long fails before anything else is done
    await asyncio.to_thread(install_library, settings.library, settings.library_dir)
    snapshot = await _look(settings)
    _log_snapshot(snapshot)
    inventory = Inventory(snapshot)
    allocator = Allocator(settings, client, inventory)
    recheck = settings.recheck_seconds
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(keep_looking(settings, inventory)),
            tasks.create_task(keep_registered(client, settings.node_name, inventory, recheck_seconds=recheck)),
        ]
        await keep_serving(settings, lambda: DevicePluginService(inventory, allocator), stop)
        for task in background:
            task.cancel()


async def keep_looking(settings: PluginSettings, inventory: Inventory) -> None:
    """Look at the GPUs every few seconds, for ever."""
    while True:
        await asyncio.sleep(settings.rescan_seconds)
        before = inventory.snapshot
        now = carry_over(before, await _look(settings))
        if now != before:
            _log_snapshot(now)
        inventory.publish(now)


async def _look(settings: PluginSettings) -> Snapshot:
    # In a thread: reading sysfs can take long while a driver resets a GPU.
    return await asyncio.to_thread(discover, settings.sysfs_root, settings.dev_root, count=settings.count)


def _log_snapshot(snapshot: Snapshot) -> None:
    for gpu in snapshot.gpus:
        log.info("GPU %s: %s, healthy: %s", gpu.id, gpu.info.product, gpu.info.healthy)
    for reason in snapshot.left_out:
        log.warning("left out: %s", reason)
    if not snapshot.gpus:
        log.warning("no GPU was found")
