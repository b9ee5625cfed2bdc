"""A stand-in for the kubelet: its side of the device plugin API over real Unix sockets.

It does what the kubelet's device manager does: removes all sockets of its folder when it starts, calls a plugin back
while that registers, keeps one ListAndWatch open for each resource, and says nothing when it goes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc

from plugin.v1beta1 import api_pb2, api_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class StandInKubelet(api_pb2_grpc.RegistrationServicer):
    """One life of a kubelet.

    Attributes:
        registrations: all that came, in order.
        called_back: what GetDevicePluginOptions answered during each of them.
        devices: health by device id, as ListAndWatch said last.
        numa: NUMA nodes by device id.
        refusals: so many registrations are refused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registrations: list[api_pb2.RegisterRequest] = []
        self.called_back: list[api_pb2.DevicePluginOptions] = []
        self.devices: dict[str, str] = {}
        self.numa: dict[str, list[int]] = {}
        self.refusals = 0
        self._server = grpc.aio.server()
        self._stream: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, *, wipe: bool = True, refusals: int = 0) -> AsyncIterator[Self]:
        """Run a kubelet; a real one wipes the folder's sockets first."""
        kubelet = cls(folder)
        kubelet.refusals = refusals
        if wipe:
            _wipe(folder)
        api_pb2_grpc.add_RegistrationServicer_to_server(kubelet, kubelet._server)
        kubelet._server.add_insecure_port(f"unix:{folder / 'kubelet.sock'}")
        await kubelet._server.start()
        try:
            yield kubelet
        finally:
            await kubelet.forget()
            await kubelet._server.stop(None)

    async def Register(  # noqa: N802 - the API's name
        self, request: api_pb2.RegisterRequest, context: Context
    ) -> api_pb2.Empty:
        self.registrations.append(request)
        self._news.set()
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.UNKNOWN, "stand-in: refused")
        async with self._channel(request.endpoint) as channel:
            stub = api_pb2_grpc.DevicePluginStub(channel)
            self.called_back.append(await stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=5))
        await self.forget()
        self._stream = asyncio.create_task(self._watch(request.endpoint))
        return api_pb2.Empty()

    async def forget(self) -> None:
        """End the ListAndWatch call, as a kubelet does that has lost interest."""
        if self._stream is not None:
            self._stream.cancel()
            await asyncio.gather(self._stream, return_exceptions=True)
            self._stream = None

    async def allocate(self, *device_ids: str) -> api_pb2.ContainerAllocateResponse:
        """Ask the plugin that registered last, as for one container."""
        request = api_pb2.AllocateRequest(
            container_requests=[api_pb2.ContainerAllocateRequest(devicesIDs=list(device_ids))]
        )
        async with self._channel(self.registrations[-1].endpoint) as channel:
            response = await api_pb2_grpc.DevicePluginStub(channel).Allocate(request, timeout=10)
        (answer,) = response.container_responses
        return answer

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what the plugin said holds."""
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def until_healthy(self, number: int) -> None:
        """Wait until so many devices are healthy."""
        await self.until(lambda: list(self.devices.values()).count("Healthy") == number)

    @property
    def healthy(self) -> set[str]:
        return {device_id for device_id, health in self.devices.items() if health == "Healthy"}

    async def _watch(self, endpoint: str) -> None:
        async with self._channel(endpoint) as channel:
            try:
                async for message in api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty()):
                    self.devices = {device.ID: device.health for device in message.devices}
                    self.numa = {device.ID: [node.ID for node in device.topology.nodes] for device in message.devices}
                    self._news.set()
            except grpc.aio.AioRpcError:
                pass
            # The end of the stream, in whatever way, is the end of all devices.
            self.devices = {}
            self._news.set()

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self.folder / endpoint}")


def _wipe(folder: Path) -> None:
    for path in folder.glob("*.sock"):
        path.unlink()
