"""The plugin's sign of life: a Lease that changes for as long as it has GPUs to offer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.client import KubeClient
from plugin.discovery import Snapshot
from plugin.heartbeat import keep_beating
from plugin.inventory import Inventory
from protocol.heartbeat import lease_name
from tests.plugin.made_pods import NODE
from tests.plugin.standin_api import StandInApi, until

NODE_PATH = f"/api/v1/nodes/{NODE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/space/leases/{lease_name(NODE)}"


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugin.heartbeat._FIRST_DELAY", 0.01)


@asynccontextmanager
async def beating(client: KubeClient, inventory: Inventory) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_beating(client, "space", NODE, inventory, seconds=0.05))
    yield
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})


def renewed(api: StandInApi) -> str | None:
    return api.objects[LEASE]["spec"]["renewTime"] if LEASE in api.objects else None


async def test_b15_the_lease_is_made_for_the_node_and_changes(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    async with beating(client, inventory):
        await until(api, lambda: renewed(api) is not None)
        first = renewed(api)
        await until(api, lambda: renewed(api) != first)
    item = api.objects[LEASE]
    assert item["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-node"}
    ]
    assert item["spec"]["holderIdentity"] == NODE
    assert item["spec"]["leaseDurationSeconds"] == 90


async def test_a_renewal_is_one_write(client: KubeClient, api: StandInApi, inventory: Inventory) -> None:
    async with beating(client, inventory):
        await until(api, lambda: renewed(api) is not None)
        api.calls.clear()
        await until(api, lambda: len(api.calls) == 3)
    assert set(api.calls) == {("PATCH", LEASE)}


async def test_a_lease_that_went_with_its_node_is_made_for_the_new_one(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    async with beating(client, inventory):
        await until(api, lambda: renewed(api) is not None)
        api.put(NODE_PATH, {"metadata": {"name": NODE, "uid": "uid-second"}})
        del api.objects[LEASE]
        await until(api, lambda: renewed(api) is not None)
    assert api.objects[LEASE]["metadata"]["ownerReferences"][0]["uid"] == "uid-second"


async def test_the_api_servers_absence_only_delays_it(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    api.away = True
    async with beating(client, inventory):
        await until(api, lambda: len(api.calls) > 2)
        assert renewed(api) is None
        api.away = False
        await until(api, lambda: renewed(api) is not None)


async def test_a_node_without_gpus_writes_nothing_until_it_has_some(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    gpus = inventory.snapshot
    empty = Inventory(Snapshot(()))
    async with beating(client, empty):
        await asyncio.sleep(0.1)  # nothing happens: there is nothing to await
        assert api.calls == []
        empty.publish(gpus)
        await until(api, lambda: renewed(api) is not None)
