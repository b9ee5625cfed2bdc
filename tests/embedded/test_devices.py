"""The kubelet stand-in's device manager, with a stand-in for a device plugin on a real socket."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from embedded.kubelet.devices import AdmissionError, ContainerRef, DeviceManager, serving
from plugin.podresources import kubelet_shares
from plugin.v1beta1 import api_pb2, api_pb2_grpc

GPU = "amd.com/gpu"
Context = grpc.aio.ServicerContext[Any, Any]


class StandInPlugin(api_pb2_grpc.DevicePluginServicer):
    """Lists devices, answers with their ids, and refuses what it is told to."""

    def __init__(self, devices: list[str]) -> None:
        self.devices = devices
        self.refuses = False
        self.changed = asyncio.Event()

    async def GetDevicePluginOptions(  # noqa: N802
        self, _request: api_pb2.Empty, _context: Context
    ) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(  # noqa: N802
        self, _request: api_pb2.Empty, _context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        while True:
            listed = [api_pb2.Device(ID=name, health="Healthy") for name in self.devices]
            yield api_pb2.ListAndWatchResponse(devices=listed)
            self.changed.clear()
            await self.changed.wait()

    async def Allocate(  # noqa: N802
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        if self.refuses:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not this one")
        (asked,) = request.container_requests
        answer = api_pb2.ContainerAllocateResponse(envs={"IDS": ",".join(asked.devicesIDs)})
        return api_pb2.AllocateResponse(container_responses=[answer])


class Node:
    """A device manager and the plugin that registered with it."""

    def __init__(self, folder: Path) -> None:
        self.plugin = StandInPlugin(["one", "two"])
        self.pod_resources = folder / "pod-resources.sock"
        self.listed = asyncio.Event()
        self.manager = DeviceManager(folder, self.listed.set)

    async def until_listed(self) -> None:
        async with asyncio.timeout(10):
            await self.listed.wait()
        self.listed.clear()

    async def allocate(self, container: str, *, pod: str = "a", is_init: bool = False, count: int = 1) -> str:
        ref = ContainerRef(f"uid-{pod}", "space", pod, container, is_init)
        answer = await self.manager.allocate(ref, GPU, count)
        return str(answer.envs["IDS"])


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as name:
        folder = Path(name)
        node = Node(folder)
        async with serving(node.manager, folder, node.pod_resources), served(node.plugin, folder / "p.sock"):
            await register(folder, "v1beta1")
            await node.until_listed()
            yield node


@asynccontextmanager
async def served(plugin: StandInPlugin, path: Path) -> AsyncIterator[None]:
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    yield
    await server.stop(None)


async def register(folder: Path, version: str) -> None:
    request = api_pb2.RegisterRequest(version=version, endpoint="p.sock", resource_name=GPU)
    async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=5)


async def test_devices_are_given_once_and_back_when_the_pod_ends(node: Node) -> None:
    assert [await node.allocate("x"), await node.allocate("y")] == ["one", "two"]
    with pytest.raises(AdmissionError, match=r"unavailable for amd\.com/gpu\. Requested: 1, Available: 0"):
        await node.allocate("x", pod="b")
    node.manager.forget("uid-a")
    assert await node.allocate("x", pod="b", count=2) == "one,two"


async def test_an_init_containers_device_is_used_again_by_its_own_pod_only(node: Node) -> None:
    assert await node.allocate("prepare", is_init=True) == "one"
    assert await node.allocate("x", pod="b") == "two"
    assert await node.allocate("x") == "one"
    with pytest.raises(AdmissionError):
        await node.allocate("y")


async def test_who_holds_what_is_told_once_the_plugin_has_answered(node: Node) -> None:
    node.plugin.refuses = True
    with pytest.raises(AdmissionError, match="code = FAILED_PRECONDITION desc = not this one"):
        await node.allocate("x")
    assert await kubelet_shares(node.pod_resources) == ()
    node.plugin.refuses = False
    node.manager.forget("uid-a")
    await node.allocate("x")
    (share,) = await kubelet_shares(node.pod_resources)
    assert (share.namespace, share.pod, share.container) == ("space", "a", "x")
    assert share.device_ids == {"one"}


async def test_capacity_follows_the_list_and_the_plugins_end(node: Node) -> None:
    assert node.manager.capacity() == {GPU: (2, 2)}
    node.plugin.devices = ["one"]
    node.plugin.changed.set()
    await node.until_listed()
    assert node.manager.capacity() == {GPU: (1, 1)}


async def test_another_version_of_the_api_is_refused(node: Node) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="unsupported version 'v2'"):
        await register(node.pod_resources.parent, "v2")
