# Types of the generated module, which has none: what of it is used, for grpc.aio.
from typing import Any

import grpc

from plugin.podresources_v1 import api_pb2

_Context = grpc.aio.ServicerContext[Any, Any]

class PodResourcesListerStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    List: grpc.aio.UnaryUnaryMultiCallable[api_pb2.ListPodResourcesRequest, api_pb2.ListPodResourcesResponse]

class PodResourcesListerServicer:
    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: _Context
    ) -> api_pb2.ListPodResourcesResponse: ...

def add_PodResourcesListerServicer_to_server(servicer: PodResourcesListerServicer, server: grpc.aio.Server) -> None: ...
