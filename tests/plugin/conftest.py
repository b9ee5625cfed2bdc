import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from kube.client import KubeClient
from plugin.discovery import discover
from plugin.inventory import Inventory
from plugin.settings import PluginSettings
from tests.plugin.made_pods import NODE
from tests.plugin.standin_api import StandInApi
from tests.trees import MadeGpu, make_tree


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with two MI300X VFs."""
    root = tmp_path / "machine"
    make_tree(root, [MadeGpu(), MadeGpu(numa_node=1)])
    return root


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    """The kubelet's folder; not below tmp_path, which can be too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@pytest.fixture
def settings(tmp_path: Path, machine: Path, kubelet_dir: Path) -> PluginSettings:
    library = tmp_path / "image.so"
    library.write_bytes(b"\x7fELF, made")
    return PluginSettings(
        node_name=NODE,
        library=library,
        library_dir=tmp_path / "vgpu",
        run_dir=tmp_path / "run",
        cgroup_root=tmp_path / "cgroup",
        pod_resources=kubelet_dir / "pod-resources.sock",
        kubelet_dir=kubelet_dir,
        sysfs_root=machine / "sys",
        dev_root=machine / "dev",
        recovery_seconds=0,
        pulse_seconds=0.02,
        recheck_seconds=0.05,
        poll_seconds=0.02,
        grace_seconds=1,
    )


@pytest.fixture
def inventory(machine: Path) -> Inventory:
    return Inventory(discover(machine / "sys", machine / "dev"))


@pytest.fixture
def api() -> StandInApi:
    """A stand-in API server that has just the node."""
    stand_in = StandInApi()
    stand_in.put(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "uid": "uid-node"}})
    return stand_in


@pytest.fixture
async def client(api: StandInApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with TestServer(api.app()) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(kubeconfig_for(str(server.make_url("")))))
        async with KubeClient.connect(kubeconfig, timeout=2) as connected:
            yield connected


def kubeconfig_for(url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "made", "cluster": {"server": url}}],
        "users": [{"name": "plugin", "user": {"token": "made"}}],
        "contexts": [{"name": "made", "context": {"cluster": "made", "user": "plugin"}}],
        "current-context": "made",
    }
