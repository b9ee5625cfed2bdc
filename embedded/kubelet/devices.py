"""The kubelet's device manager: plugins register, list their devices, and are asked for each container's."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from plugin.podresources_v1 import api_pb2 as resources_pb2
from plugin.podresources_v1 import api_pb2_grpc as resources_grpc
from plugin.v1beta1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

_VERSION: Final = "v1beta1"
_CALL_SECONDS: Final = 10.0
_ALLOCATE_SECONDS: Final = 60.0


class AdmissionError(Exception):
    """A pod cannot have its devices; the message is what its status says."""


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """Which container: the PodResources API names pods, the device manager goes by their uids."""

    uid: str
    namespace: str
    pod: str
    container: str
    is_init: bool = False


@dataclass(slots=True)
class _Plugin:
    """A plugin that registered: its socket, and the devices that it lists."""

    endpoint: str
    stream: asyncio.Task[None]
    healthy: list[str] = field(default_factory=list)
    listed: int = 0


class DeviceManager(api_pb2_grpc.RegistrationServicer):
    """Knows the plugins of one folder, and who holds which of their devices.

    Args:
        folder: of the plugins' sockets.
        changed: called whenever a plugin lists its devices anew, or goes.
    """

    def __init__(self, folder: Path, changed: Callable[[], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._plugins: dict[str, _Plugin] = {}
        self._held: dict[ContainerRef, dict[str, list[str]]] = {}
        self._answered: set[ContainerRef] = set()
        self._admitting = asyncio.Lock()

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Return for each resource how many devices there are, and how many of them are healthy."""
        return {name: (plugin.listed, len(plugin.healthy)) for name, plugin in self._plugins.items()}

    def holders(self) -> dict[ContainerRef, dict[str, list[str]]]:
        """Return the device ids that containers hold, by resource, once their plugin has answered for them."""
        return {ref: held for ref, held in self._held.items() if ref in self._answered}

    def forget(self, uid: str) -> None:
        """Free the devices of a pod."""
        self._held = {ref: held for ref, held in self._held.items() if ref.uid != uid}
        self._answered = {ref for ref in self._answered if ref.uid != uid}

    @asynccontextmanager
    async def admission(self) -> AsyncIterator[None]:
        """Admit one pod at a time, as the kubelet does."""
        async with self._admitting:
            yield

    async def allocate(self, ref: ContainerRef, resource: str, count: int) -> api_pb2.ContainerAllocateResponse:
        """Give a container devices, and return what its plugin says that it shall get.

        Raises:
            AdmissionError: there are not enough devices, or the plugin refuses.
        """
        plugin = self._plugins.get(resource)
        ids = self._choose(ref, resource, count, plugin.healthy if plugin else [])
        if plugin is None or len(ids) < count:
            raise AdmissionError(
                f"requested number of devices unavailable for {resource}. Requested: {count}, Available: {len(ids)}"
            )
        self._held.setdefault(ref, {})[resource] = ids
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devicesIDs=ids)])
        try:
            async with self._channel(plugin.endpoint) as channel:
                stub = api_pb2_grpc.DevicePluginStub(channel)
                response = await stub.Allocate(request, timeout=_ALLOCATE_SECONDS)
        except grpc.aio.AioRpcError as error:
            words = f"rpc error: code = {error.code().name} desc = {error.details()}"
            raise AdmissionError(f"Allocate failed due to {words}, which is unexpected") from error
        self._answered.add(ref)
        answer: api_pb2.ContainerAllocateResponse = response.container_responses[0]
        return answer

    def _choose(self, ref: ContainerRef, resource: str, count: int, healthy: list[str]) -> list[str]:
        """Return free devices, those of the pod's own init containers first: they have ended when others run."""
        taken: set[str] = set()
        own: list[str] = []
        for holder, held in self._held.items():
            is_reusable = holder.uid == ref.uid and holder.is_init
            own += held.get(resource, []) if is_reusable else []
            taken.update(() if is_reusable else held.get(resource, ()))
        free = [device for device in healthy if device not in taken]
        return [*dict.fromkeys([*(device for device in own if device not in taken), *free])][:count]

    async def Register(  # noqa: N802 - the API's name
        self, request: api_pb2.RegisterRequest, context: Context
    ) -> api_pb2.Empty:
        """Take a plugin's registration, once it answers on its own socket."""
        if request.version != _VERSION:
            await context.abort(grpc.StatusCode.UNKNOWN, f"unsupported version {request.version!r}, not {_VERSION!r}")
        async with self._channel(request.endpoint) as channel:
            stub = api_pb2_grpc.DevicePluginStub(channel)
            await stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=_CALL_SECONDS)
        before = self._plugins.pop(request.resource_name, None)
        if before is not None:
            before.stream.cancel()
        stream = asyncio.create_task(self._follow(request.resource_name, request.endpoint))
        self._plugins[request.resource_name] = _Plugin(request.endpoint, stream)
        return api_pb2.Empty()

    async def _follow(self, resource: str, endpoint: str) -> None:
        async with self._channel(endpoint) as channel:
            try:
                async for message in api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty()):
                    plugin = self._plugins[resource]
                    plugin.listed = len(message.devices)
                    plugin.healthy = [device.ID for device in message.devices if device.health == "Healthy"]
                    self._changed()
            except grpc.aio.AioRpcError as error:
                log.info("the plugin of %s is gone: %s", resource, error.code().name)
            # The end of the stream, in whatever way, makes all devices unhealthy.
            self._plugins[resource].healthy = []
            self._changed()

    async def close(self) -> None:
        """End the calls to all plugins."""
        streams = [plugin.stream for plugin in self._plugins.values()]
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self._folder / endpoint}")


class PodResources(resources_grpc.PodResourcesListerServicer):
    """The kubelet's PodResources API on top of a device manager."""

    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager

    async def List(  # noqa: N802 - the API's name
        self, request: resources_pb2.ListPodResourcesRequest, context: Context
    ) -> resources_pb2.ListPodResourcesResponse:
        """Return which containers hold which devices."""
        del request, context
        by_pod: defaultdict[tuple[str, str], list[resources_pb2.ContainerResources]] = defaultdict(list)
        for ref, held in self._manager.holders().items():
            devices = [resources_pb2.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in held.items()]
            by_pod[ref.namespace, ref.pod].append(resources_pb2.ContainerResources(name=ref.container, devices=devices))
        return resources_pb2.ListPodResourcesResponse(
            pod_resources=[
                resources_pb2.PodResources(namespace=namespace, name=name, containers=containers)
                for (namespace, name), containers in by_pod.items()
            ]
        )


@asynccontextmanager
async def serving(manager: DeviceManager, plugins: Path, pod_resources: Path) -> AsyncIterator[None]:
    """Serve both of the kubelet's sockets; sockets of plugins from before are removed, as a kubelet does that starts.

    Args:
        manager: answers.
        plugins: folder of the plugins' sockets and of `kubelet.sock`.
        pod_resources: path of the other socket.
    """
    _wipe(plugins)
    server = grpc.aio.server()
    api_pb2_grpc.add_RegistrationServicer_to_server(manager, server)
    resources_grpc.add_PodResourcesListerServicer_to_server(PodResources(manager), server)
    server.add_insecure_port(f"unix:{plugins / 'kubelet.sock'}")
    server.add_insecure_port(f"unix:{pod_resources}")
    await server.start()
    try:
        yield
    finally:
        await manager.close()
        await server.stop(None)


def _wipe(folder: Path) -> None:
    for path in folder.glob("*.sock"):
        path.unlink()
