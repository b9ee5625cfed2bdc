from collections.abc import AsyncIterator

import grpc
import pytest

from kube.client import KubeClient
from plugin.allocator import Allocator
from plugin.inventory import Inventory
from plugin.service import DevicePluginService
from plugin.serving import serving
from plugin.settings import PluginSettings
from plugin.v1beta1 import api_pb2, api_pb2_grpc


@pytest.fixture
def service(settings: PluginSettings, client: KubeClient, inventory: Inventory) -> DevicePluginService:
    return DevicePluginService(inventory, Allocator(settings, client, inventory))


@pytest.fixture
async def address(settings: PluginSettings, service: DevicePluginService) -> AsyncIterator[str]:
    async with serving(settings, service) as socket:
        yield f"unix:{socket}"


@pytest.mark.parametrize("authority", ["/var/lib/kubelet/device-plugins/x.sock", "%2Fvar%2Flib%2Fx.sock", "localhost"])
async def test_c4_the_authority_of_old_kubelets(address: str, authority: str) -> None:
    """Kubelets before 1.26 send the socket's path as the authority, which some servers refuse."""
    async with grpc.aio.insecure_channel(address, [("grpc.default_authority", authority)]) as channel:
        answer = await api_pb2_grpc.DevicePluginStub(channel).GetDevicePluginOptions(api_pb2.Empty(), timeout=5)
    assert answer == api_pb2.DevicePluginOptions()


async def test_the_optional_calls(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = api_pb2_grpc.DevicePluginStub(channel)
        started = await stub.PreStartContainer(api_pb2.PreStartContainerRequest(devicesIDs=["x-0"]), timeout=5)
        assert started == api_pb2.PreStartContainerResponse()
        available = [
            f"{gpu}-{number}" for gpu in ("GPU-8e1bb56457addd1b", "GPU-8e1bb56457addd1c") for number in range(10)
        ]
        asked = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=2)
        request = api_pb2.PreferredAllocationRequest(container_requests=[asked, asked])
        answer = await stub.GetPreferredAllocation(request, timeout=5)
    first, second = answer.container_responses
    assert list(first.deviceIDs) == ["GPU-8e1bb56457addd1b-0", "GPU-8e1bb56457addd1c-0"]
    assert first == second


async def test_a_stream_is_counted_while_it_is_open(address: str, service: DevicePluginService) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stream = api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty())
        message = await stream.read()
        assert isinstance(message, api_pb2.ListAndWatchResponse)
        assert len(message.devices) == 20
        assert service.streams == 1
        service.close()
        assert await stream.read() is grpc.aio.EOF
    assert service.streams == 0
