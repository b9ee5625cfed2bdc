"""The kubelet's side: the DevicePlugin service.

A GPU is offered as `count` replicas, each a device id of its own. Which ids the kubelet picks means nothing where a
scheduler has chosen the GPU: the ids only count how many containers may share one. Where nobody has, they are the
choice.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NoReturn

import grpc

from plugin.allocate import PERMISSIONS, Answer
from plugin.allocator import Allocator, UnavailableError
from plugin.discovery import Gpu
from plugin.holder import RefusedError
from plugin.inventory import Inventory
from plugin.preferred import preferred
from plugin.replicas import gpus_by_replica, replica_ids
from plugin.v1beta1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

Context = grpc.aio.ServicerContext[Any, Any]


def replicas(gpus: Sequence[Gpu]) -> list[api_pb2.Device]:
    """Return the devices that the kubelet counts: each GPU as often as it may be shared."""
    return [_replica(gpu, device_id) for gpu in gpus for device_id in replica_ids(gpu)]


def _replica(gpu: Gpu, device_id: str) -> api_pb2.Device:
    known = gpu.info.numa >= 0
    return api_pb2.Device(
        ID=device_id,
        health=HEALTHY if gpu.info.healthy else UNHEALTHY,
        topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=gpu.info.numa)]) if known else None,
    )


class DevicePluginService(api_pb2_grpc.DevicePluginServicer):
    """Answers one kubelet on one socket.

    Args:
        inventory: the GPUs.
        allocator: answers Allocate.
        prefers: whether the kubelet shall ask which devices to take.

    Attributes:
        options: which of the optional calls the kubelet shall make.
        streams: how many ListAndWatch calls are open; the kubelet keeps one.
    """

    def __init__(self, inventory: Inventory, allocator: Allocator, *, prefers: bool = False) -> None:
        self._inventory = inventory
        self._allocator = allocator
        self._closing = asyncio.Event()
        self.options = api_pb2.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=prefers)
        self.streams = 0

    def close(self) -> None:
        """End all ListAndWatch calls; they never end by themselves."""
        self._closing.set()

    async def GetDevicePluginOptions(  # noqa: N802 - the API's name
        self, request: api_pb2.Empty, context: Context
    ) -> api_pb2.DevicePluginOptions:
        """Return the options, the same as at registration."""
        del request, context
        return self.options

    async def ListAndWatch(  # noqa: N802
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """Yield the whole list at once, and again each time that it changed."""
        del request, context
        self.streams += 1
        try:
            async for snapshot in self._inventory.follow(self._closing):
                yield api_pb2.ListAndWatchResponse(devices=replicas(snapshot.gpus))
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(  # noqa: N802
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        """Return for each container the devices that are spread best."""
        del context
        gpus = gpus_by_replica(self._inventory.snapshot.gpus)
        chosen = [
            preferred(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size, gpus)
            for one in request.container_requests
        ]
        return api_pb2.PreferredAllocationResponse(
            container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
        )

    async def Allocate(  # noqa: N802
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        """Return what each container gets; the kubelet asks for one at a time."""
        try:
            answers = [
                _to_message(await self._allocator.allocate(container.devicesIDs))
                for container in request.container_requests
            ]
        except RefusedError as error:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except UnavailableError as error:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        return api_pb2.AllocateResponse(container_responses=answers)

    async def PreStartContainer(  # noqa: N802
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        """Do nothing: the options say that it is not needed."""
        del request, context
        return api_pb2.PreStartContainerResponse()


async def _abort(context: Context, code: grpc.StatusCode, message: str) -> NoReturn:
    log.warning("answered the kubelet %s: %s", code.name, message)
    await context.abort(code, f"amd-vgpu: {message}")
    raise AssertionError("abort raises")


def _to_message(answer: Answer) -> api_pb2.ContainerAllocateResponse:
    return api_pb2.ContainerAllocateResponse(
        envs=answer.env,
        mounts=[
            api_pb2.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in answer.mounts
        ],
        devices=[
            api_pb2.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=PERMISSIONS)
            for node in answer.devices
        ],
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in answer.cdi_devices],
    )
