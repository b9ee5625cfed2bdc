"""A stand-in for the kubelet's PodResources API, over its real protocol and a real socket."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from plugin.podresources import KubeletShare
from plugin.podresources_v1 import api_pb2, api_pb2_grpc


class StandInPodResources(api_pb2_grpc.PodResourcesListerServicer):
    """Lists what a test says the kubelet gave out; each share's devices are on two NUMA nodes if it has several."""

    def __init__(self) -> None:
        self.shares: list[KubeletShare] = []
        self.resource = "amd.com/gpu"

    async def List(  # noqa: N802 - the API's name
        self, request: api_pb2.ListPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.ListPodResourcesResponse:
        del request, context
        return api_pb2.ListPodResourcesResponse(pod_resources=[self._pod(share) for share in self.shares])

    def _pod(self, share: KubeletShare) -> api_pb2.PodResources:
        ids = sorted(share.device_ids)
        nodes: Iterable[list[str]] = (ids[::2], ids[1::2])
        devices = [api_pb2.ContainerDevices(resource_name=self.resource, device_ids=one) for one in nodes if one]
        container = api_pb2.ContainerResources(name=share.container, devices=devices)
        return api_pb2.PodResources(name=share.pod, namespace=share.namespace, containers=[container])


@asynccontextmanager
async def serving(socket: Path) -> AsyncIterator[StandInPodResources]:
    stand_in = StandInPodResources()
    server = grpc.aio.server()
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(stand_in, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield stand_in
    finally:
        await server.stop(None)
