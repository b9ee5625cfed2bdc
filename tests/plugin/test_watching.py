"""Health, from the made machine through the plugin to the kubelet's socket, the node and the metrics."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from kube.client import KubeClient
from plugin.ailment import Cause
from plugin.discovery import Snapshot
from plugin.inventory import Inventory
from plugin.lifecycle import run
from plugin.metrics import Metrics, PortError
from plugin.pulse import Pulse
from plugin.settings import PluginSettings
from plugin.watching import keep_looking, look
from protocol.devices import decode_register
from protocol.names import NODE_REGISTER
from tests.plugin.made_pods import NODE
from tests.plugin.standin_api import StandInApi, until
from tests.plugin.standin_kubelet import StandInKubelet
from tests.trees import MadeGpu, make_tree, partitions
from tests.trees.changes import (
    bring_device_node,
    load_driver,
    report_errors,
    take_device_node,
    unload_driver,
)

NODE_PATH = f"/api/v1/nodes/{NODE}"
HEALTHY = {"umc": 0, "gfx": 0}
FIRST, SECOND = "GPU-8e1bb56457addd1b", "GPU-8e1bb56457addd1c"
CHANGE = re.compile(r'amd_vgpu_plugin_gpu_health_changes_total\{cause="(.+)",gpu="(.+)",to="(.+)"\} (.+)')

Change = Callable[[Path], None]


@pytest.fixture
def root(settings: PluginSettings) -> Path:
    root = settings.dev_root.parent
    make_tree(root, [MadeGpu("MI300X", uncorrectable=HEALTHY), MadeGpu("MI300X", uncorrectable=HEALTHY)])
    return root


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@asynccontextmanager
async def plugin_and_kubelet(settings: PluginSettings, client: KubeClient) -> AsyncIterator[StandInKubelet]:
    stop = asyncio.Event()
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet:
        task = asyncio.create_task(run(settings, client, stop))
        try:
            yield kubelet
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)


def gpus(device_ids: set[str]) -> set[str]:
    """The GPUs of which all ten replicas are there."""
    names = [device_id.rpartition("-")[0] for device_id in device_ids]
    assert {names.count(name) for name in names} <= {10}, "the replicas of a GPU are healthy or not as one"
    return set(names)


def registered(api: StandInApi) -> dict[str, bool]:
    return {device.id: device.healthy for device in decode_register(api.notes(NODE_PATH).get(NODE_REGISTER, "[]"))}


async def scraped(port: int) -> str:
    def get() -> str:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(get)


def device_node_gone(root: Path) -> None:
    take_device_node(root, "dri/renderD136")


def device_node_back(root: Path) -> None:
    bring_device_node(root, "dri/renderD136")


def memory_error(root: Path) -> None:
    report_errors(root, "0000:15:00.0", "umc", 1)


def driver_loaded_anew(root: Path) -> None:
    report_errors(root, "0000:15:00.0", "umc", 0)


@pytest.mark.parametrize(
    ("harm", "cure", "left", "cause"),
    [
        (device_node_gone, device_node_back, {FIRST}, Cause.NODE_MISSING),
        (memory_error, driver_loaded_anew, {FIRST}, Cause.ERRORS),
        (unload_driver, load_driver, set(), Cause.GONE),
    ],
)
async def test_c13_a_fault_reaches_everybody_and_goes_away_again(
    settings: PluginSettings,
    client: KubeClient,
    api: StandInApi,
    root: Path,
    port: int,
    caplog: pytest.LogCaptureFixture,
    harm: Change,
    cure: Change,
    left: set[str],
    cause: Cause,
) -> None:
    caplog.set_level("INFO")
    async with plugin_and_kubelet(replace(settings, metrics_port=port), client) as kubelet:
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST, SECOND})
        await until(api, lambda: registered(api) == {FIRST: True, SECOND: True})
        harm(root)
        await kubelet.until(lambda: gpus(kubelet.healthy) == left)
        assert gpus(set(kubelet.devices)) == {FIRST, SECOND}, "its pods still hold it"
        await until(api, lambda: registered(api) == {FIRST: FIRST in left, SECOND: False})
        assert f"GPU {SECOND} is unhealthy, {cause.value}: " in caplog.text
        text = await scraped(port)
        assert f'amd_vgpu_plugin_gpu_healthy{{gpu="{SECOND}",product="AMD Instinct MI300X OAM"}} 0.0' in text
        cure(root)
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST, SECOND})
        await until(api, lambda: registered(api) == {FIRST: True, SECOND: True})
        assert f"GPU {SECOND} is healthy again, {cause.value} is over" in caplog.text
        counted = {
            (of, to): float(number) for of, gpu, to, number in CHANGE.findall(await scraped(port)) if gpu == SECOND
        }
        assert counted[cause.value, "unhealthy"] == 1
        assert counted[cause.value, "healthy"] == 1
    assert {path for path in api.patches() if "/pods/" in path} == set(), "running pods are untouched"


async def test_partitions_changed_under_running_pods(
    settings: PluginSettings, client: KubeClient, api: StandInApi, root: Path
) -> None:
    """The old devices are unhealthy, so that nobody new comes; the new ones are there."""
    parts = {f"PCI-0000-05-00.{part}-CPX" for part in range(8)}
    other = MadeGpu("MI300X", unique_id=0x8E1BB56457ADDD1C, location_id=0x1500, render_minor=136)
    async with plugin_and_kubelet(settings, client) as kubelet:
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST, SECOND})
        make_tree(root, [*partitions("MI300X CPX", 8, unique_id=0x8E1BB56457ADDD1B), other])
        await kubelet.until(lambda: gpus(kubelet.healthy) == {SECOND, *parts})
        assert gpus(set(kubelet.devices)) == {FIRST, SECOND, *parts}
        await until(api, lambda: registered(api) == {FIRST: False, SECOND: True, **dict.fromkeys(parts, True)})
    assert {path for path in api.patches() if "/pods/" in path} == set(), "running pods are untouched"


@pytest.mark.parametrize("harm", [device_node_gone, memory_error, unload_driver])
async def test_the_kubelet_knows_within_two_seconds(
    settings: PluginSettings, client: KubeClient, root: Path, harm: Change
) -> None:
    usual = PluginSettings(node_name="-", library=settings.library)
    as_shipped = replace(settings, pulse_seconds=usual.pulse_seconds, rescan_seconds=usual.rescan_seconds)
    async with plugin_and_kubelet(as_shipped, client) as kubelet:
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST, SECOND})
        begin = time.monotonic()
        harm(root)
        await kubelet.until(lambda: SECOND not in gpus(kubelet.healthy))
        assert time.monotonic() - begin < 2


async def test_errors_of_other_blocks_are_seen_without_a_sign(
    settings: PluginSettings, client: KubeClient, root: Path
) -> None:
    """The pulse does not ask for them; older drivers do not count RAS events."""
    async with plugin_and_kubelet(replace(settings, rescan_seconds=0.2), client) as kubelet:
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST, SECOND})
        report_errors(root, "0000:15:00.0", "gfx", 1)
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST})


async def test_a_ras_event_is_a_sign(settings: PluginSettings, client: KubeClient, root: Path) -> None:
    state = root / "sys/bus/pci/devices/0000:15:00.0/ras/event_state"
    state.write_text("current seqno: 0\nFatal Error: count:0, last_seqno:0\n")
    async with plugin_and_kubelet(replace(settings, rescan_seconds=1000), client) as kubelet:
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST, SECOND})
        report_errors(root, "0000:15:00.0", "gfx", 1)
        state.write_text("current seqno: 1\nFatal Error: count:1, last_seqno:1\n")
        await kubelet.until(lambda: gpus(kubelet.healthy) == {FIRST})


async def test_a_machine_that_does_not_change_is_looked_at_seldom(
    settings: PluginSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = beats = 0
    enough, loop = asyncio.Event(), asyncio.get_running_loop()

    async def look(_: PluginSettings) -> Snapshot:
        nonlocal looks
        looks += 1
        return Snapshot()

    def beat(_: Pulse) -> str:
        nonlocal beats
        beats += 1
        if beats > 20:
            loop.call_soon_threadsafe(enough.set)
        return "the same"

    monkeypatch.setattr("plugin.watching.look", look)
    monkeypatch.setattr(Pulse, "take", beat)
    quick = replace(settings, pulse_seconds=0.001, rescan_seconds=1000)
    task = asyncio.create_task(keep_looking(quick, Inventory(Snapshot()), Metrics()))
    await asyncio.wait_for(enough.wait(), 10)
    task.cancel()
    assert looks == 1


async def test_a_change_that_only_the_look_saw_is_looked_at_again(
    settings: PluginSettings, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came after the pulse, and was undone before the next one, which is the same therefore."""
    inventory = Inventory(await look(settings))
    looks = 0

    async def look_at_a_glitch(settings: PluginSettings) -> Snapshot:
        nonlocal looks
        looks += 1
        if looks > 1:
            return await look(settings)
        device_node_gone(root)
        seen = await look(settings)
        device_node_back(root)
        return seen

    monkeypatch.setattr("plugin.watching.look", look_at_a_glitch)
    task = asyncio.create_task(keep_looking(replace(settings, rescan_seconds=1000), inventory, Metrics()))
    try:
        async with asyncio.timeout(10):
            await inventory.replaced.wait()
            assert not inventory.snapshot.gpus[1].info.healthy
            await inventory.replaced.wait()
            assert inventory.snapshot.gpus[1].info.healthy
    finally:
        task.cancel()


async def test_a_driver_that_does_not_answer_is_spoken_of_and_waited_for(
    settings: PluginSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, said = threading.Event(), asyncio.Event()

    def slow(*_: object) -> Snapshot:
        assert answers.wait(10)
        return Snapshot()

    monkeypatch.setattr("plugin.watching.discover", slow)
    monkeypatch.setattr("plugin.watching._PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr("plugin.watching.log.warning", lambda *_: said.set())
    looking = asyncio.create_task(look(settings))
    async with asyncio.timeout(10):
        await said.wait()
    assert not looking.done(), "the loop goes on meanwhile"
    answers.set()
    assert await looking == Snapshot()


async def test_a_port_that_is_taken_is_said(settings: PluginSettings, client: KubeClient) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=f"metrics_port: {port}: Address already in use"):
            await run(replace(settings, metrics_port=port), client, asyncio.Event())
