"""Registering with the kubelet, and with every kubelet that takes its place.

A kubelet that starts removes all sockets of its folder and remembers no plugin. It does not say so; what tells is its
new socket, or a ListAndWatch that it does not call.
"""

import logging
import time
from pathlib import Path
from typing import Final

import grpc

from plugin.service import DevicePluginService
from plugin.sockets import KUBELET_SOCKET, identity
from plugin.v1beta1 import api_pb2, api_pb2_grpc
from protocol.names import RESOURCE_GPU

log = logging.getLogger(__name__)

API_VERSION: Final = "v1beta1"

_REGISTER_SECONDS: Final = 10
"""The kubelet calls back before it answers."""
_POLLS_WITHOUT_STREAM: Final = 2
"""A kubelet that had no ListAndWatch open for so many times the poll's interval has forgotten the plugin."""
_MOST_POLLS_WITHOUT_STREAM: Final = 64


class Registration:
    """One server's registration with the kubelet of its folder.

    Args:
        socket: the server's, in the kubelet's folder.
        service: what it serves.
        poll_seconds: how often it is asked at least whether registration is due.
    """

    def __init__(self, socket: Path, service: DevicePluginService, poll_seconds: float) -> None:
        self._kubelet = socket.parent / KUBELET_SOCKET
        self._endpoint = socket.name
        self._service = service
        self._accepted_by: tuple[int, int, int] | None = None
        self._last_watched = time.monotonic()
        self._patience = _POLLS_WITHOUT_STREAM * poll_seconds
        self._most_patience = _MOST_POLLS_WITHOUT_STREAM * poll_seconds

    def is_due(self) -> bool:
        """Look at the kubelet's socket and return whether the kubelet does not know the server."""
        present = identity(self._kubelet)
        if present is None:
            return False
        if self._service.streams:
            self._last_watched = time.monotonic()
        if present != self._accepted_by:
            return True
        if time.monotonic() - self._last_watched <= self._patience:
            return False
        log.warning("the kubelet does not watch our devices: does another plugin offer %s?", RESOURCE_GPU)
        # Two plugins that take the resource from each other by turns would be worse than one that has it.
        self._patience = min(self._patience * 2, self._most_patience)
        return True

    async def register(self) -> bool:
        """Register, and return whether the kubelet accepted."""
        present = identity(self._kubelet)  # before the call: a kubelet that comes during it is another one
        try:
            await register(self._kubelet, self._endpoint, self._service.options)
        except grpc.aio.AioRpcError as error:
            log.warning("the kubelet at %s refused: %s %s", self._kubelet, error.code().name, error.details())
            self._accepted_by = None
            return False
        log.info("registered %s with the kubelet at %s", self._endpoint, self._kubelet)
        self._accepted_by = present
        self._last_watched = time.monotonic()
        return True


async def register(kubelet: Path, endpoint: str, options: api_pb2.DevicePluginOptions) -> None:
    """Tell a kubelet where the plugin listens.

    Args:
        kubelet: the kubelet's socket.
        endpoint: name of the plugin's socket in the same folder.
        options: which of the optional calls the kubelet shall make.
    """
    request = api_pb2.RegisterRequest(
        version=API_VERSION, endpoint=endpoint, resource_name=RESOURCE_GPU, options=options
    )
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=_REGISTER_SECONDS)
