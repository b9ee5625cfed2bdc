import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kube.client import KubeClient
from plugin.discovery import Offer, discover
from plugin.inventory import Inventory
from plugin.library import LibraryError
from plugin.lifecycle import run
from plugin.service import replicas
from plugin.settings import PluginSettings
from plugin.sockets import SocketPathError, identity, own_socket, remove_dead_sockets
from protocol.devices import decode_register
from protocol.names import NODE_LOCK, NODE_REGISTER
from tests.plugin.made_pods import NODE, bound_pod, container, lock_for, path_of
from tests.plugin.standin_api import StandInApi, until
from tests.plugin.standin_kubelet import StandInKubelet
from tests.trees import MadeGpu, make_tree

NODE_PATH = f"/api/v1/nodes/{NODE}"
BOTH_GPUS = 20


@asynccontextmanager
async def running(settings: PluginSettings, client: KubeClient) -> AsyncIterator[asyncio.Event]:
    """Run a plugin; at the end it must stop by itself, quickly."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, client, stop))
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


def sockets(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("amd-vgpu-*.sock")}


async def test_registers_and_lists_each_gpu_as_often_as_it_may_be_shared(
    settings: PluginSettings, client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        assert {f"GPU-8e1bb56457addd1{last}-{number}" for last in "bc" for number in range(10)} == kubelet.healthy
        assert kubelet.numa["GPU-8e1bb56457addd1b-0"] == [0]
        assert kubelet.numa["GPU-8e1bb56457addd1c-9"] == [1]
        await until(api, lambda: NODE_REGISTER in api.notes(NODE_PATH))
        assert decode_register(api.notes(NODE_PATH)[NODE_REGISTER]) == inventory.snapshot.devices
        assert (settings.library_dir / "libamvgpu.so").exists()


async def test_c1_kubelet_restart(settings: PluginSettings, client: KubeClient) -> None:
    async with running(settings, client):
        async with StandInKubelet.running(settings.kubelet_dir) as first:
            await first.until_healthy(BOTH_GPUS)
            ids = first.healthy
        for _ in range(3):
            async with StandInKubelet.running(settings.kubelet_dir) as next_one:
                await next_one.until_healthy(BOTH_GPUS)
                assert next_one.healthy == ids
                assert sockets(settings.kubelet_dir) == {next_one.registrations[-1].endpoint}


async def test_c1_a_new_kubelet_is_told_without_polling(settings: PluginSettings, client: KubeClient) -> None:
    unpolled = replace(settings, poll_seconds=1000)
    async with StandInKubelet.running(settings.kubelet_dir) as first, running(unpolled, client):
        await first.until_healthy(BOTH_GPUS)
        async with StandInKubelet.running(settings.kubelet_dir) as second:
            await second.until_healthy(BOTH_GPUS)


async def test_c1_kubelet_socket_replaced_and_ours_left(
    settings: PluginSettings, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugin.kubelet._POLLS_WITHOUT_STREAM", 10**9)  # the new socket alone must do
    async with running(settings, client):
        async with StandInKubelet.running(settings.kubelet_dir) as first:
            await first.until_healthy(BOTH_GPUS)
        async with StandInKubelet.running(settings.kubelet_dir, wipe=False) as second:
            await second.until_healthy(BOTH_GPUS)
            assert second.registrations[0].endpoint == first.registrations[-1].endpoint


async def test_c1_own_socket_removed(settings: PluginSettings, client: KubeClient) -> None:
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        (settings.kubelet_dir / kubelet.registrations[0].endpoint).unlink()
        await kubelet.until(lambda: len(kubelet.registrations) > 1)
        assert kubelet.registrations[1].endpoint != kubelet.registrations[0].endpoint
        await kubelet.until_healthy(BOTH_GPUS)


async def test_c1_a_kubelet_that_ends_the_stream_is_told_again(settings: PluginSettings, client: KubeClient) -> None:
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        await kubelet.forget()
        await kubelet.until(lambda: len(kubelet.registrations) > 1)
        await kubelet.until_healthy(BOTH_GPUS)


async def test_c1_a_kubelet_that_comes_late(settings: PluginSettings, client: KubeClient, api: StandInApi) -> None:
    async with running(settings, client):
        await until(api, lambda: NODE_REGISTER in api.notes(NODE_PATH))
        async with StandInKubelet.running(settings.kubelet_dir, wipe=False) as kubelet:
            await kubelet.until_healthy(BOTH_GPUS)


async def test_c1_a_folder_that_comes_late(settings: PluginSettings, client: KubeClient, api: StandInApi) -> None:
    settings.kubelet_dir.rmdir()
    async with running(settings, client):
        await until(api, lambda: NODE_REGISTER in api.notes(NODE_PATH))
        settings.kubelet_dir.mkdir()
        async with StandInKubelet.running(settings.kubelet_dir) as kubelet:
            await kubelet.until_healthy(BOTH_GPUS)


async def test_c1_a_registration_that_is_refused_is_repeated(settings: PluginSettings, client: KubeClient) -> None:
    async with StandInKubelet.running(settings.kubelet_dir, refusals=2) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        assert len({request.endpoint for request in kubelet.registrations}) == 1
        assert len(kubelet.registrations) == 3


async def test_a_kubelet_that_stays_is_told_once(settings: PluginSettings, client: KubeClient) -> None:
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        for missing in ("dev/kfd", "dev/dri/renderD128"):  # changes that end in the kubelet, in place of a pause
            root = settings.dev_root.parent
            await kubelet.until_healthy(BOTH_GPUS)
            (root / missing).rename(root / "away")
            await kubelet.until(lambda: 0 < len(kubelet.devices) != len(kubelet.healthy))
            (root / "away").rename(root / missing)
        await kubelet.until_healthy(BOTH_GPUS)
        assert len(kubelet.registrations) == 1


async def test_c2_socket_overlap(settings: PluginSettings, client: KubeClient) -> None:
    """During an update two plugins run for a moment; the end of the old one must not touch the new one's socket."""
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet:
        async with running(settings, client):
            await kubelet.until_healthy(BOTH_GPUS)
            async with running(settings, client) as stop_new:
                await kubelet.until(lambda: len(kubelet.registrations) > 1)
                old, new = (request.endpoint for request in kubelet.registrations[:2])
                assert old != new
                assert sockets(settings.kubelet_dir) == {old, new}
                assert not stop_new.is_set()
        assert sockets(settings.kubelet_dir) == set()


async def test_c2_the_old_plugins_end_leaves_the_new_one_serving(settings: PluginSettings, client: KubeClient) -> None:
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet:
        old_stop, new_stop = asyncio.Event(), asyncio.Event()
        old = asyncio.create_task(run(settings, client, old_stop))
        await kubelet.until_healthy(BOTH_GPUS)
        new = asyncio.create_task(run(settings, client, new_stop))
        await kubelet.until(lambda: len(kubelet.registrations) > 1)
        old_stop.set()
        await asyncio.wait_for(old, 10)
        await kubelet.until_healthy(BOTH_GPUS)
        with pytest.raises(grpc.aio.AioRpcError, match="expected a pod in the lock"):
            await kubelet.allocate("GPU-8e1bb56457addd1b-0")
        new_stop.set()
        await asyncio.wait_for(new, 10)


def test_c2_only_dead_sockets_of_ours_are_removed(tmp_path: Path) -> None:
    def listen(name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / name))
        listener.listen()
        return listener

    for name in ("amd-vgpu-1-0.sock", "other.sock"):
        listen(name).close()
    with listen("amd-vgpu-2-0.sock"):
        remove_dead_sockets(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["amd-vgpu-2-0.sock", "other.sock"]


def test_c2_no_two_sockets_have_one_name(tmp_path: Path) -> None:
    assert len({own_socket(tmp_path) for _ in range(100)}) == 100


async def test_a_socket_path_that_is_too_long_is_said(settings: PluginSettings, client: KubeClient) -> None:
    long = replace(settings, kubelet_dir=settings.kubelet_dir / ("x" * 100))
    with pytest.raises(SocketPathError, match=r"bytes long, a socket's path may have 107"):
        await run(long, client, asyncio.Event())


def test_identity_tells_a_file_from_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    assert identity(path) is None
    path.touch()
    first = identity(path)
    assert first is not None
    assert identity(path) == first
    path.unlink()
    clock = tmp_path / "clock"
    clock.touch()
    while clock.stat().st_ctime_ns == first[2]:  # the kernel's clock for files goes in steps of some milliseconds
        clock.touch()
    path.touch()
    assert identity(path) != first


async def test_c3_serves_before_registering(settings: PluginSettings, client: KubeClient) -> None:
    """The kubelet calls back within Register: what it gets there must be what Register says."""
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
    (request,) = kubelet.registrations
    assert (request.version, request.resource_name) == ("v1beta1", "amd.com/gpu")
    assert request.HasField("options")
    assert kubelet.called_back == [request.options]
    assert not request.options.pre_start_required
    assert not request.options.get_preferred_allocation_available


async def test_c5_registering_does_not_wait_for_the_api_server(
    settings: PluginSettings, client: KubeClient, api: StandInApi
) -> None:
    api.away = True
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        api.away = False
        await until(api, lambda: NODE_REGISTER in api.notes(NODE_PATH))


async def test_c5_allocate_without_the_api_server(
    settings: PluginSettings, client: KubeClient, api: StandInApi
) -> None:
    api.away = True
    hurried = replace(settings, allocate_seconds=0.2)
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(hurried, client):
        await kubelet.until_healthy(BOTH_GPUS)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.allocate("GPU-8e1bb56457addd1b-0")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (caught.value.details() or "").startswith("amd-vgpu: not served within 0.2 s")
        assert len(kubelet.healthy) == BOTH_GPUS


async def test_allocate_through_the_socket(
    settings: PluginSettings, client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    pod = bound_pod("one", [container("main", mem=16384, cores=25)], inventory.snapshot)
    api.put(path_of(pod), pod)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(pod)})
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        answer = await kubelet.allocate("GPU-8e1bb56457addd1c-4")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.allocate("GPU-8e1bb56457addd1c-5")
    assert dict(answer.envs) == {
        "ROCR_VISIBLE_DEVICES": "GPU-8e1bb56457addd1b",
        "HIP_VISIBLE_DEVICES": "0",
        "HSA_CU_MASK": "0:0-75",
        "HIP_DEVICE_MEMORY_LIMIT": "16384m",
        "LD_AUDIT": "/usr/local/vgpu/libamvgpu.so",
        "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096",
        "AMVGPU_REGION": "/run/amd-vgpu",
    }
    dev = settings.dev_root
    assert [(spec.container_path, spec.host_path, spec.permissions) for spec in answer.devices] == [
        ("/dev/kfd", f"{dev}/kfd", "rw"),
        ("/dev/dri/renderD128", f"{dev}/dri/renderD128", "rw"),
    ]
    assert [(mount.container_path, mount.host_path, mount.read_only) for mount in answer.mounts] == [
        ("/usr/local/vgpu", str(settings.library_dir), True),
        ("/run/amd-vgpu/region", f"{settings.run_dir}/pods/uid-one/main.region", False),
    ]
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_c13_a_gpu_that_vanishes_is_unhealthy_everywhere_and_comes_back(
    settings: PluginSettings, client: KubeClient, api: StandInApi
) -> None:
    def healths() -> list[bool]:
        return [device.healthy for device in decode_register(api.notes(NODE_PATH)[NODE_REGISTER])]

    root = settings.dev_root.parent
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(BOTH_GPUS)
        make_tree(root, [MadeGpu()])
        await kubelet.until_healthy(10)
        assert len(kubelet.devices) == BOTH_GPUS
        await until(api, lambda: healths() == [True, False])
        make_tree(root, [MadeGpu(), MadeGpu()])
        await kubelet.until_healthy(BOTH_GPUS)
        await until(api, lambda: healths() == [True, True])


async def test_d9_stop_with_an_open_stream(settings: PluginSettings, client: KubeClient) -> None:
    settings = replace(settings, grace_seconds=60)  # the stream must end by itself
    for _ in range(20):
        async with StandInKubelet.running(settings.kubelet_dir) as kubelet:
            async with running(settings, client):
                await kubelet.until_healthy(BOTH_GPUS)
            await kubelet.until(lambda: kubelet.devices == {})
            assert sockets(settings.kubelet_dir) == set()


async def test_d9_sigterm(settings: PluginSettings, client: KubeClient) -> None:
    loop = asyncio.get_running_loop()
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client) as stop:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        await kubelet.until_healthy(BOTH_GPUS)
        os.kill(os.getpid(), signal.SIGTERM)
        await kubelet.until(lambda: kubelet.devices == {})
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_missing_library_ends_the_start(settings: PluginSettings, client: KubeClient) -> None:
    settings.library.unlink()
    with pytest.raises(LibraryError, match="No such file"):
        await run(settings, client, asyncio.Event())
    assert sockets(settings.kubelet_dir) == set()


async def test_a_machine_without_gpus_registers_none(
    settings: PluginSettings, client: KubeClient, api: StandInApi
) -> None:
    make_tree(settings.dev_root.parent, [])
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until(lambda: bool(kubelet.called_back))
        await until(api, lambda: api.notes(NODE_PATH).get(NODE_REGISTER) == "[]")


async def test_the_node_shows_what_its_gpus_have(settings: PluginSettings, client: KubeClient, api: StandInApi) -> None:
    async with running(settings, client):
        await until(api, lambda: "status" in api.objects[NODE_PATH])
    shown = api.objects[NODE_PATH]["status"]
    assert shown["capacity"] == shown["allocatable"] == {"amd.com/gpumem": "393216", "amd.com/gpucores": "2000"}


async def test_sixteen_gpus_in_a_hundred_replicas_fit_the_kubelets_call(
    settings: PluginSettings, client: KubeClient
) -> None:
    """The stand-in's channel has gRPC's usual limit of 4 MiB, which is the kubelet's too."""
    make_tree(settings.dev_root.parent, [MadeGpu(unique_id=0)] * 16)
    async with running(replace(settings, count=100), client), StandInKubelet.running(settings.kubelet_dir) as kubelet:
        await kubelet.until_healthy(1600)
        ids = kubelet.healthy
    async with running(replace(settings, count=100), client), StandInKubelet.running(settings.kubelet_dir) as kubelet:
        await kubelet.until_healthy(1600)
        assert kubelet.healthy == ids


def test_c12_the_list_of_a_large_machine_fits_a_message(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu(location_id=0x100 + 8 * number) for number in range(64)])
    snapshot = discover(tmp_path / "sys", tmp_path / "dev", Offer(count=1000))
    devices = replicas(snapshot.gpus)
    assert sum(device.ByteSize() + 4 for device in devices) < 4 * 1024**2
    assert len({device.ID for device in devices}) == 64_000
    assert max(len(device.ID) for device in devices) <= 63


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "count: 0: must be from 1 to 1000"),
        ({"count": 1001}, "count: 1001: must be from 1 to 1000"),
        ({"node_name": ""}, "node_name: must not be empty"),
        ({"poll_seconds": 0}, "poll_seconds: 0: must be greater than 0"),
        ({"pulse_seconds": 0}, "pulse_seconds: 0: must be greater than 0"),
        ({"metrics_port": 65536}, "metrics_port: 65536: must be from 0 to 65535"),
        ({"errors_tolerated": -1}, "errors_tolerated: -1: must be 0 or more"),
        ({"count_by_type": {"MI210": 1001}}, "count: MI210=1001: must be from 1 to 1000"),
    ],
)
def test_settings_that_cannot_work(settings: PluginSettings, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(settings, **change)  # type: ignore[arg-type]
