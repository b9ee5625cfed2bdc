"""Running the device plugin: install the library, find the GPUs, then keep the kubelet and the cluster informed."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from functools import partial

from kube.client import KubeClient
from plugin.allocator import Allocator
from plugin.cdi import keep_spec, write_spec
from plugin.discovery import Snapshot
from plugin.heartbeat import keep_beating
from plugin.inventory import Inventory
from plugin.library import install_library
from plugin.metrics import Metrics
from plugin.nodepods import NodePods
from plugin.recovery import Recovery
from plugin.register import keep_registered
from plugin.requirement import Requirement
from plugin.service import DevicePluginService
from plugin.serving import keep_serving
from plugin.settings import PluginSettings
from plugin.sockets import own_socket
from plugin.upkeep import Upkeep
from plugin.watching import keep_looking, look, take_over

log = logging.getLogger(__name__)


async def run(settings: PluginSettings, client: KubeClient, stop: asyncio.Event) -> None:
    """Run the device plugin until `stop` is set.

    The kubelet learns of the GPUs whether or not the API server is there: after a reboot of the node it must not take
    running pods' devices for lost.

    Raises:
        LibraryError: the audit library cannot be installed.
        SocketPathError: the path of the kubelet's folder is too long.
        CdiError: the CDI spec cannot be written.
        PortError: the port for metrics cannot be had.
    """
    own_socket(settings.kubelet_dir)  # a path that is too long fails before anything else is done
    await asyncio.to_thread(install_library, settings.library, settings.library_dir)
    inventory, metrics = Inventory(Snapshot()), Metrics()
    take_over(inventory, await look(settings), metrics, Recovery(settings.recovery_seconds))
    if not inventory.snapshot.gpus:
        log.warning("no GPU was found")
    if settings.cdi_dir is not None:
        # Before the first Allocate names a device of it.
        await asyncio.to_thread(write_spec, settings.cdi_dir, inventory.snapshot.gpus, settings.dev_root)
    allocator = Allocator(settings, client, inventory)
    make_service = partial(DevicePluginService, inventory, allocator, prefers=settings.standalone)
    register = partial(
        keep_registered,
        client,
        settings.node_name,
        inventory,
        recheck_seconds=settings.recheck_seconds,
    )
    with metrics.served(settings.metrics_port):
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(keep_looking(settings, inventory, metrics)),
                tasks.create_task(register()),
                tasks.create_task(keep_beating(client, settings.namespace, settings.node_name, inventory)),
                tasks.create_task(Upkeep(settings, client, NodePods()).run()),
                *(tasks.create_task(option) for option in _options(settings, client, inventory)),
            ]
            await keep_serving(settings, make_service, stop)
            for task in background:
                task.cancel()


def _options(
    settings: PluginSettings, client: KubeClient, inventory: Inventory
) -> Iterator[Coroutine[None, None, None]]:
    """Yield what else is to run in the background, as the operator asked for."""
    if settings.require_audit:
        yield Requirement(settings, client).run()
    if settings.cdi_dir is not None:
        yield keep_spec(settings.cdi_dir, inventory, settings.dev_root)
