"""Serving the kubelet: a server on a socket of its own, and a new one whenever that socket was removed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc

from plugin.folderwatch import sockets_watched
from plugin.kubelet import Registration
from plugin.patience import Backoff, first_of
from plugin.service import DevicePluginService
from plugin.settings import PluginSettings
from plugin.sockets import identity, own_socket, remove_dead_sockets
from plugin.v1beta1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

_DIAL_SECONDS: Final = 5
_LONGEST_DELAY: Final = 5.0


async def keep_serving(
    settings: PluginSettings, make_service: Callable[[], DevicePluginService], stop: asyncio.Event
) -> None:
    """Serve and be registered until `stop` is set.

    Args:
        settings: of the plugin.
        make_service: called for each server: the calls of one must not outlive it.
        stop: ends everything.
    """
    backoff = Backoff(settings.poll_seconds, _LONGEST_DELAY)
    while not stop.is_set():
        remove_dead_sockets(settings.kubelet_dir)
        service = make_service()
        try:
            async with serving(settings, service) as socket:
                backoff.reset()
                await _stay_registered(settings, socket, service, stop)
        except (RuntimeError, grpc.aio.AioRpcError) as error:
            # gRPC raises a RuntimeError where it cannot bind: the folder is the kubelet's and may not be there yet.
            log.warning("could not serve in %s: %s", settings.kubelet_dir, error)
            await first_of(stop, seconds=backoff.next())


@asynccontextmanager
async def serving(settings: PluginSettings, service: DevicePluginService) -> AsyncIterator[Path]:
    """Serve, and yield the socket's path once the server answers on it; remove the socket afterwards."""
    path = own_socket(settings.kubelet_dir)
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)
    server.add_insecure_port(f"unix:{path}")
    try:
        await server.start()
        await _dial(path)
        log.info("serving on %s", path)
        yield path
    finally:
        service.close()
        await server.stop(settings.grace_seconds)
        path.unlink(missing_ok=True)


async def _dial(path: Path) -> None:
    """Call our own server: the kubelet calls back while it registers a plugin, and gives up at once."""
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        await api_pb2_grpc.DevicePluginStub(channel).GetDevicePluginOptions(api_pb2.Empty(), timeout=_DIAL_SECONDS)


async def _stay_registered(
    settings: PluginSettings, socket: Path, service: DevicePluginService, stop: asyncio.Event
) -> None:
    """Register with every kubelet that comes, until `stop` is set or somebody removed our socket."""
    served = identity(socket)
    registration = Registration(socket, service, settings.poll_seconds)
    backoff = Backoff(settings.poll_seconds, _LONGEST_DELAY)
    changed = asyncio.Event()
    async with sockets_watched(socket.parent, changed):
        while not stop.is_set() and served is not None and identity(socket) == served:
            changed.clear()
            pause = settings.poll_seconds
            if registration.is_due():
                if await registration.register():
                    backoff.reset()
                else:
                    pause = backoff.next()
            await first_of(stop, changed, seconds=pause)
