# Types of the generated module, which has none: what of it is used, for grpc.aio.
from collections.abc import AsyncIterator
from typing import Any

import grpc

from plugin.v1beta1 import api_pb2

_Context = grpc.aio.ServicerContext[Any, Any]

class RegistrationStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Register: grpc.aio.UnaryUnaryMultiCallable[api_pb2.RegisterRequest, api_pb2.Empty]

class RegistrationServicer:
    async def Register(self, request: api_pb2.RegisterRequest, context: _Context) -> api_pb2.Empty: ...

def add_RegistrationServicer_to_server(servicer: RegistrationServicer, server: grpc.aio.Server) -> None: ...

class DevicePluginStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    GetDevicePluginOptions: grpc.aio.UnaryUnaryMultiCallable[api_pb2.Empty, api_pb2.DevicePluginOptions]
    ListAndWatch: grpc.aio.UnaryStreamMultiCallable[api_pb2.Empty, api_pb2.ListAndWatchResponse]
    GetPreferredAllocation: grpc.aio.UnaryUnaryMultiCallable[
        api_pb2.PreferredAllocationRequest, api_pb2.PreferredAllocationResponse
    ]
    Allocate: grpc.aio.UnaryUnaryMultiCallable[api_pb2.AllocateRequest, api_pb2.AllocateResponse]
    PreStartContainer: grpc.aio.UnaryUnaryMultiCallable[
        api_pb2.PreStartContainerRequest, api_pb2.PreStartContainerResponse
    ]

class DevicePluginServicer:
    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: _Context
    ) -> api_pb2.DevicePluginOptions: ...
    def ListAndWatch(
        self, request: api_pb2.Empty, context: _Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]: ...
    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: _Context
    ) -> api_pb2.PreferredAllocationResponse: ...
    async def Allocate(self, request: api_pb2.AllocateRequest, context: _Context) -> api_pb2.AllocateResponse: ...
    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: _Context
    ) -> api_pb2.PreStartContainerResponse: ...

def add_DevicePluginServicer_to_server(servicer: DevicePluginServicer, server: grpc.aio.Server) -> None: ...
