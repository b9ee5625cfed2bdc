import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from kube.client import KubeClient
from plugin.capacity import share_capacity
from plugin.discovery import Snapshot
from plugin.inventory import Inventory
from plugin.register import keep_registered
from protocol.devices import decode_register, encode_register
from protocol.names import NODE_REGISTER
from tests.plugin.made_pods import NODE
from tests.plugin.standin_api import StandInApi, until

NODE_PATH = f"/api/v1/nodes/{NODE}"


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugin.register._FIRST_DELAY", 0.01)


@asynccontextmanager
async def running(client: KubeClient, inventory: Inventory, recheck: float = 60) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_registered(client, NODE, inventory, recheck_seconds=recheck))
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def registered(api: StandInApi) -> str | None:
    return api.notes(NODE_PATH).get(NODE_REGISTER)


async def test_the_gpus_are_written_once(client: KubeClient, api: StandInApi, inventory: Inventory) -> None:
    async with running(client, inventory, recheck=0.01):
        await until(api, lambda: len(api.calls) > 5)
    assert decode_register(registered(api) or "") == inventory.snapshot.devices
    assert api.patches() == [f"{NODE_PATH}/status", NODE_PATH]


async def test_what_is_right_already_is_not_written(client: KubeClient, api: StandInApi, inventory: Inventory) -> None:
    right = {"capacity": share_capacity(inventory.snapshot.devices)}
    api.put(NODE_PATH, {**api.objects[NODE_PATH], "status": right})
    api.annotate(NODE_PATH, {NODE_REGISTER: encode_register(inventory.snapshot.devices)})
    async with running(client, inventory, recheck=0.01):
        await until(api, lambda: len(api.calls) > 2)
    assert api.patches() == []


async def test_a_change_is_written_at_once(client: KubeClient, api: StandInApi, inventory: Inventory) -> None:
    async with running(client, inventory):
        await until(api, lambda: registered(api) is not None)
        gpu = inventory.snapshot.gpus[0]
        sick = replace(gpu, info=replace(gpu.info, healthy=False))
        inventory.publish(Snapshot((sick,)))
        await until(api, lambda: decode_register(registered(api) or "") == (sick.info,))


async def test_an_annotation_that_somebody_removed_comes_back(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    async with running(client, inventory, recheck=0.02):
        await until(api, lambda: registered(api) is not None)
        api.annotate(NODE_PATH, {NODE_REGISTER: None})
        await until(api, lambda: registered(api) is not None)


@pytest.mark.parametrize("status", [500, 503, 403, 409])
async def test_an_api_server_that_refuses_only_delays(
    client: KubeClient, api: StandInApi, inventory: Inventory, status: int
) -> None:
    api.refusing = status
    async with running(client, inventory):
        await until(api, lambda: len(api.calls) > 2)
        api.refusing = 0
        await until(api, lambda: registered(api) is not None)


async def test_a_node_that_is_not_there_yet_only_delays(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    node = api.objects.pop(NODE_PATH)
    async with running(client, inventory):
        await until(api, lambda: len(api.calls) > 1)
        api.put(NODE_PATH, node)
        await until(api, lambda: registered(api) is not None)
