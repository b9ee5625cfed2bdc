"""The kubelet stand-in: containers as processes, and pods that fail or end by themselves."""

import asyncio
import sys
from pathlib import Path

import pytest

from embedded.kubelet.runtime import ContainerSpec, IdleRuntime, ImageError, ProcessRuntime, inside
from kube import paths
from tests.embedded.conftest import IMAGE, World
from tests.embedded.test_product import create, in_phase, pod, said, state_of


@pytest.fixture
def runtime(tmp_path: Path) -> ProcessRuntime:
    return ProcessRuntime(tmp_path, {"python": (sys.executable,)})


def python(code: str, **mounts: str) -> ContainerSpec:
    return ContainerSpec("c", "python", (sys.executable, "-c", code), {"GREETING": "hello"}, mounts)


async def test_a_container_has_its_environment_alone_and_an_exit_status(runtime: ProcessRuntime) -> None:
    container = await runtime.start(python("import os; print(sorted(os.environ)); raise SystemExit(7)"))
    assert await container.wait() == 7
    assert "GREETING" in runtime.log("c").read_text()
    assert "HOME" not in runtime.log("c").read_text()


async def test_a_container_is_asked_to_end_and_then_made_to(runtime: ProcessRuntime) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    container = await runtime.start(python(stubborn))
    async with asyncio.timeout(10):
        while "up" not in runtime.log("c").read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    await container.stop(0.2)
    assert await container.wait() == 128 + 9


async def test_an_image_that_is_not_there(runtime: ProcessRuntime) -> None:
    with pytest.raises(ImageError, match="there is no image 'none' here, only python"):
        await runtime.start(ContainerSpec("c", "none", (), {}, {}))


async def test_mounts_are_found_below_the_containers_folder(runtime: ProcessRuntime, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    mounts = {"/usr/local/vgpu": str(outside), "/run/amd-vgpu/region": str(outside / "file")}
    container = await runtime.start(ContainerSpec("c", "python", (sys.executable, "-c", ""), {}, mounts))
    await container.wait()
    root = tmp_path / "c"
    env = {"A": "/usr/local/vgpu/file", "B": "/run/amd-vgpu", "C": "/etc/passwd", "D": "0:0-3", "E": "/", "F": ""}
    found = inside(root, env)
    assert found == {**env, "A": str(root / "usr/local/vgpu/file"), "B": str(root / "run/amd-vgpu")}
    assert (root / "run/amd-vgpu/region").samefile(outside / "file")
    assert not (root / "run/amd-vgpu/region").is_symlink()


async def test_an_idle_container_runs_until_it_is_stopped() -> None:
    container = await IdleRuntime().start(ContainerSpec("c", "any", (), {}, {}))
    await container.stop(30)
    assert await container.wait() == 0


async def test_an_init_container_runs_first_and_its_device_is_used_again(world: World) -> None:
    body = pod("staged", gpu=1, gpumem=2048, gpucores=10)
    init = {**body["spec"]["containers"][0], "name": "prepare", "command": [world.client, "report"]}
    body["spec"]["initContainers"] = [init]
    await create(world, body)
    item = await in_phase(world, "staged", "Running")
    (prepared,) = item["status"]["initContainerStatuses"]
    assert prepared["state"]["terminated"]["exitCode"] == 0
    assert (await said(world, "staged", "total", "prepare"))["total"] == 2048 * 1024**2
    await said(world, "staged", "ready")


async def test_a_container_that_fails_makes_its_pod_fail(world: World) -> None:
    body = pod("fails", gpu=1, gpumem=1024, gpucores=10)
    body["spec"]["containers"][0]["command"] = [sys.executable, "-c", "raise SystemExit(3)"]
    await create(world, body)
    item = await in_phase(world, "fails", "Failed")
    assert item["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_pod_that_nobody_placed_is_not_admitted(world: World) -> None:
    body = pod("astray", gpu=1, gpumem=1024, gpucores=10)
    await world.cluster.client.create(paths.pods("kube-system"), body)
    # Past the extender, as somebody may bind a pod who does not know it; the webhook does not look at this namespace.
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "astray"}, "target": target}
    await world.cluster.client.create(f"{paths.pod('kube-system', 'astray')}/binding", binding)
    item = await in_phase(world, "astray", "Failed", "kube-system")
    assert item["status"]["reason"] == "UnexpectedAdmissionError"
    assert "Allocate failed due to rpc error" in item["status"]["message"]


async def test_an_image_that_is_missing_is_said_in_the_status(world: World) -> None:
    body = pod("imageless", gpu=1, gpumem=1024, gpucores=10)
    body["spec"]["containers"][0]["image"] = "elsewhere"
    await create(world, body)
    item = await state_of(world, "imageless", lambda status: bool(status.get("message")))
    assert f"only {IMAGE}" in item["status"]["message"]
    assert item["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
