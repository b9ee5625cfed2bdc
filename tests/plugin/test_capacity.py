"""Capacity for the shares."""

from dataclasses import replace
from typing import Any

import pytest

from kube.client import KubeClient
from plugin.capacity import due_capacity, share_capacity
from plugin.inventory import Inventory
from plugin.register import write_register
from tests.plugin.made_pods import NODE
from tests.plugin.standin_api import StandInApi
from tests.protocol.makers import MI300X

SECOND = replace(MI300X, id="GPU-2", memory_mib=65536, count=4)
WANTED = {"amd.com/gpumem": "262144", "amd.com/gpucores": "1400"}


def node(version: str | None, capacity: dict[str, str] | None = None) -> dict[str, Any]:
    info = {} if version is None else {"nodeInfo": {"kubeletVersion": version}}
    return {"metadata": {"name": "node-a"}, "status": {**info, "capacity": capacity or {"cpu": "64"}}}


def test_it_never_binds_before_the_scheduler_does() -> None:
    assert share_capacity([MI300X, SECOND]) == WANTED
    assert share_capacity([]) == {"amd.com/gpumem": "0", "amd.com/gpucores": "0"}
    # A small GPU in as many rounded-down shares as it has slots: their percentages add up to more than 100.
    small = replace(MI300X, cu_count=38, xcc_count=1)
    share = next(percent for percent in range(100, 0, -1) if small.cus_for(percent) * small.count <= small.cu_count)
    assert share * small.count <= int(share_capacity([small])["amd.com/gpucores"])


@pytest.mark.parametrize("version", ["v1.20.2", "v1.30.9-gke.100", "v1.35.4", "v2.0.0", None, "", "unknown"])
def test_kubernetes_124255_whatever_the_kubelet_the_node_has_it(version: str | None) -> None:
    assert due_capacity(node(version), [MI300X, SECOND]) == WANTED


def test_a_node_without_gpus_is_left_alone() -> None:
    assert due_capacity(node("v1.20.2"), []) == {}


def test_what_is_there_is_kept_right_and_not_written_again() -> None:
    assert due_capacity(node("v1.20.2", WANTED), [MI300X, SECOND]) == {}
    assert due_capacity(node("v1.20.2", {**WANTED, "amd.com/gpucores": "1400m"}), [SECOND, MI300X]).keys() == {
        "amd.com/gpucores"
    }
    assert due_capacity(node("v1.20.2", {**WANTED, "amd.com/gpucores": "1.4k"}), [MI300X, SECOND]) == {}
    assert due_capacity(node("v1.31.0", WANTED), [MI300X]) == {"amd.com/gpumem": "196608", "amd.com/gpucores": "1000"}
    assert due_capacity(node("v1.31.0", WANTED), []) == {"amd.com/gpumem": "0", "amd.com/gpucores": "0"}


async def test_it_is_written_before_the_gpus_are_offered(
    client: KubeClient, api: StandInApi, inventory: Inventory
) -> None:
    path = f"/api/v1/nodes/{NODE}"
    old = node("v1.20.2")
    old["metadata"] = api.objects[path]["metadata"]
    api.put(path, old)
    await write_register(client, NODE, inventory.snapshot.devices)
    assert api.patches() == [f"{path}/status", path]
    wanted = share_capacity(inventory.snapshot.devices)
    for kind in ("capacity", "allocatable"):
        assert wanted.items() <= api.objects[path]["status"][kind].items()
