"""Capacity for the shares, where a kubelet needs it."""

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


@pytest.mark.parametrize(
    ("version", "due"),
    [
        ("v1.20.2", True),
        ("v1.30.14", True),
        ("v1.30.9-gke.100", True),
        ("v1.31.0", False),
        ("v1.36.2+k3s1", False),
        ("v2.0.0", False),
        (None, False),
        ("", False),
        ("unknown", False),
    ],
)
def test_kubernetes_124255_kubelets_before_1_31_need_it(version: str | None, due: bool) -> None:
    assert due_capacity(node(version), [MI300X, SECOND]) == (WANTED if due else {})


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
    status = f"{path}/status"
    api.put(status, old)
    await write_register(client, NODE, inventory.snapshot.devices)
    assert api.patches() == [status, path]
    wanted = share_capacity(inventory.snapshot.devices)
    for kind in ("capacity", "allocatable"):
        assert wanted.items() <= api.objects[status]["status"][kind].items()


def test_on_request_every_kubelet_shows_it() -> None:
    assert due_capacity(node("v1.33.1"), [MI300X, SECOND]) == {}
    assert due_capacity(node("v1.33.1"), [MI300X, SECOND], always=True) == WANTED
    assert due_capacity(node("v1.33.1", WANTED), [MI300X, SECOND], always=True) == {}
