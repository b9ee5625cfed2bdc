"""Registering with the kubelet, and with every kubelet that takes its place.

A kubelet that starts removes all sockets of its folder and remembers no plugin. It does not say so; what tells is its
new socket, or a ListAndWatch that it does not call.
"""

import logging
from pathlib import Path
from typing import Final

import grpc

from plugin.service import DevicePluginService, options
from plugin.sockets import KUBELET_SOCKET, identity
from plugin.v1beta1 import api_pb2, api_pb2_grpc
from protocol.names import RESOURCE_GPU

log = logging.getLogger(__name__)

API_VERSION: Final = "v1beta1"

_REGISTER_SECONDS: Final = 10
"""The kubelet calls back before it answers."""
_LOOKS_WITHOUT_STREAM: Final = 5
"""A kubelet that has no ListAndWatch open at so many looks in a row has forgotten the plugin."""
_MOST_LOOKS_WITHOUT_STREAM: Final = 320


class Registration:
    """One server's registration with the kubelet of its folder."""

    def __init__(self, socket: Path, service: DevicePluginService) -> None:
        self._kubelet = socket.parent / KUBELET_SOCKET
        self._endpoint = socket.name
        self._service = service
        self._accepted_by: tuple[int, int, int] | None = None
        self._looks_without_stream = 0
        self._looks_allowed = _LOOKS_WITHOUT_STREAM

    def is_due(self) -> bool:
        """Look at the kubelet's socket and return whether the kubelet does not know the server."""
        present = identity(self._kubelet)
        if present is None:
            return False
        self._looks_without_stream = 0 if self._service.streams else self._looks_without_stream + 1
        if present != self._accepted_by:
            return True
        if self._looks_without_stream <= self._looks_allowed:
            return False
        log.warning("the kubelet does not watch our devices: does another plugin offer %s?", RESOURCE_GPU)
        # Two plugins that take the resource from each other by turns would be worse than one that has it.
        self._looks_allowed = min(self._looks_allowed * 2, _MOST_LOOKS_WITHOUT_STREAM)
        return True

    async def register(self) -> bool:
        """Register, and return whether the kubelet accepted."""
        present = identity(self._kubelet)  # before the call: a kubelet that comes during it is another one
        try:
            await register(self._kubelet, self._endpoint)
        except grpc.aio.AioRpcError as error:
            log.warning("the kubelet at %s refused: %s %s", self._kubelet, error.code().name, error.details())
            self._accepted_by = None
            return False
        log.info("registered %s with the kubelet at %s", self._endpoint, self._kubelet)
        self._accepted_by = present
        self._looks_without_stream = 0
        return True


async def register(kubelet: Path, endpoint: str) -> None:
    """Tell a kubelet where the plugin listens.

    Args:
        kubelet: the kubelet's socket.
        endpoint: name of the plugin's socket in the same folder.
    """
    request = api_pb2.RegisterRequest(
        version=API_VERSION, endpoint=endpoint, resource_name=RESOURCE_GPU, options=options()
    )
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=_REGISTER_SECONDS)
