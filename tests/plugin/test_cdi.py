import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube.client import KubeClient
from plugin.allocator import Allocator
from plugin.cdi import SPEC_FILE, CdiError, by_cdi_name, cdi_spec, write_spec
from plugin.inventory import Inventory
from plugin.settings import PluginSettings
from protocol.names import NODE_LOCK
from tests.plugin.made_pods import NODE, bound_pod, container, lock_for, path_of
from tests.plugin.standin_api import StandInApi
from tests.plugin.standin_kubelet import StandInKubelet
from tests.plugin.test_lifecycle import running
from tests.plugin.waiting import reached
from tests.trees import MadeGpu, make_tree

FIRST, SECOND = "GPU-8e1bb56457addd1b", "GPU-8e1bb56457addd1c"


def spec_in(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / SPEC_FILE).read_text())
    return content


def names(folder: Path) -> list[str]:
    return [device["name"] for device in spec_in(folder)["devices"]]


def test_the_spec(inventory: Inventory, machine: Path) -> None:
    dev = machine / "dev"

    def node(path: str) -> dict[str, Any]:
        host = str(dev / path.removeprefix("/dev/"))
        return {"deviceNodes": [{"path": path, "hostPath": host, "permissions": "rw"}]}

    assert cdi_spec(inventory.snapshot.gpus, dev) == {
        "cdiVersion": "0.5.0",
        "kind": "amd-vgpu.io/gpu",
        "devices": [
            {"name": FIRST, "containerEdits": node("/dev/dri/renderD128")},
            {"name": SECOND, "containerEdits": node("/dev/dri/renderD136")},
        ],
        "containerEdits": node("/dev/kfd"),
    }


def test_names_are_those_that_the_specification_allows(inventory: Inventory) -> None:
    """SPEC.md: vendor and class begin with a letter, a device with a letter or digit, and none ends with a sign."""
    spec = cdi_spec(inventory.snapshot.gpus, Path("/dev"))
    vendor, _, kind = spec["kind"].partition("/")
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", vendor)
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", kind)
    partition = replace(inventory.snapshot.gpus[0].info, id="PCI-0000-05-00.3-CPX")
    gpus = [*inventory.snapshot.gpus, replace(inventory.snapshot.gpus[0], info=partition)]
    for device in cdi_spec(gpus, Path("/dev"))["devices"]:
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"])


def test_it_is_written_once_and_goes_with_the_last_gpu(inventory: Inventory, tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    gpus = inventory.snapshot.gpus
    write_spec(folder, gpus, Path("/dev"))
    before = (folder / SPEC_FILE).stat()
    assert before.st_mode & 0o777 == 0o644
    write_spec(folder, gpus, Path("/dev"))
    assert (folder / SPEC_FILE).stat().st_ino == before.st_ino
    write_spec(folder, gpus[1:], Path("/dev"))
    assert names(folder) == [SECOND]
    write_spec(folder, [], Path("/dev"))
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(inventory: Inventory, tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("a file")
    with pytest.raises(CdiError, match=rf"{tmp_path}/cdi/amd-vgpu.io-gpu.json: File exists"):
        write_spec(tmp_path / "cdi", inventory.snapshot.gpus, Path("/dev"))


@pytest.mark.parametrize("cdi", [True, False])
async def test_a_container_gets_its_gpus_by_name_or_by_node(
    settings: PluginSettings, client: KubeClient, api: StandInApi, inventory: Inventory, tmp_path: Path, cdi: bool
) -> None:
    pod = bound_pod("one", [container("main", 2)], inventory.snapshot)
    api.put(path_of(pod), pod)
    api.annotate(f"/api/v1/nodes/{NODE}", {NODE_LOCK: lock_for(pod)})
    settings = replace(settings, cdi_dir=tmp_path if cdi else None)
    answer = await Allocator(settings, client, inventory).allocate(["x-0", "x-1"])
    assert len(answer.devices) == (0 if cdi else 3)
    assert answer.cdi_devices == ((f"amd-vgpu.io/gpu={FIRST}", f"amd-vgpu.io/gpu={SECOND}") if cdi else ())
    assert answer.env["ROCR_VISIBLE_DEVICES"] == f"{FIRST},{SECOND}"
    assert by_cdi_name(answer, []).mounts == answer.mounts


async def test_the_kubelet_gets_the_names_and_the_spec_follows_the_gpus(
    settings: PluginSettings, client: KubeClient, api: StandInApi, inventory: Inventory, tmp_path: Path
) -> None:
    settings = replace(settings, cdi_dir=tmp_path / "cdi")
    pod = bound_pod("one", [container("main")], inventory.snapshot)
    api.put(path_of(pod), pod)
    api.annotate(f"/api/v1/nodes/{NODE}", {NODE_LOCK: lock_for(pod)})
    async with StandInKubelet.running(settings.kubelet_dir) as kubelet, running(settings, client):
        await kubelet.until_healthy(20)
        assert names(tmp_path / "cdi") == [FIRST, SECOND]
        answer = await kubelet.allocate("x-0")
        assert [device.name for device in answer.cdi_devices] == [f"amd-vgpu.io/gpu={FIRST}"]
        assert not answer.devices
        make_tree(settings.dev_root.parent, [MadeGpu(), MadeGpu(numa_node=1), MadeGpu()])
        await reached(lambda: len(names(tmp_path / "cdi")) == 3)
    assert len(names(tmp_path / "cdi")) == 3, "containers that start again are made from it"
