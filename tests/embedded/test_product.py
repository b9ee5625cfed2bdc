"""The way of a pod through the product's real services, on the stand-ins."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from embedded.watching import until
from kube import paths
from kube.client import Json, KubeError
from protocol.allocation import decode_cus
from protocol.names import BIND_PHASE, CU_ALLOCATED, NODE_LOCK, PHASE_SUCCESS
from protocol.pods import annotations, node_name
from tests.embedded.conftest import IMAGE, World

SPACE = "default"
SECONDS = 20.0


def pod(name: str, containers: int = 1, **limits: Any) -> Json:
    resources = {"limits": {f"amd.com/{key}": value for key, value in limits.items()}}
    bodies = [{"name": f"main-{number}", "image": IMAGE, "resources": resources} for number in range(containers)]
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": bodies}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def create(world: World, body: Json) -> Json:
    return await world.cluster.client.create(paths.pods(SPACE), body)


async def in_phase(world: World, name: str, phase: str, namespace: str = SPACE) -> Json:
    return await state_of(world, name, lambda status: status["phase"] == phase, namespace)


async def state_of(world: World, name: str, fits: Callable[[Json], bool], namespace: str = SPACE) -> Json:
    """Return a pod as soon as its status fits."""
    async with asyncio.timeout(SECONDS):
        found = await until(
            world.cluster.client, paths.pods(namespace), name, lambda item: item is not None and fits(item["status"])
        )
    assert found is not None
    return found


async def said(world: World, name: str, key: str, container: str = "main-0") -> dict[str, Any]:
    """Return the line of a container's log that has a key, once it is there."""
    log = world.runtime.log(f"{SPACE}_{name}_{container}")
    async with asyncio.timeout(SECONDS):
        while True:
            for line in log.read_text().splitlines() if log.exists() else ():
                if key in (found := json.loads(line)):
                    return dict(found)
            await asyncio.sleep(0.02)


def cus(item: Json) -> set[int]:
    (ids,) = decode_cus(annotations(item)[CU_ALLOCATED]).values()
    return set(ids)


async def test_three_pods_share_a_gpu(world: World) -> None:
    shares = {"large": (49152, 25, 76), "medium": (24576, 12, 36), "small": (25000, 12, 36)}
    for name, (memory, cores, _) in shares.items():
        await create(world, pod(name, gpu=1, gpumem=memory, gpucores=cores))
    held: set[int] = set()
    for name, (memory, _, count) in shares.items():
        item = await in_phase(world, name, "Running")
        assert node_name(item) == "node-a", "the only GPU with so much memory"
        assert annotations(item)[BIND_PHASE] == PHASE_SUCCESS
        assert len(cus(item)) == count
        assert not held & cus(item)
        held |= cus(item)
        device = await said(world, name, "total")
        assert device["total"] == memory * 1024**2, "what the audit library lets HIP say"
        assert (await said(world, name, "env"))["env"]["HSA_CU_MASK"].startswith("0:")
    node = await world.cluster.client.get(paths.node("node-a"))
    assert NODE_LOCK not in annotations(node)


async def test_containers_of_one_pod_have_accounts_of_their_own(world: World) -> None:
    await create(world, pod("pair", containers=2, gpu=1, gpumem=4096, gpucores=10))
    await in_phase(world, "pair", "Running")
    for container in ("main-0", "main-1"):
        # Each takes all of its limit, which one account for both would not allow.
        await said(world, "pair", "ready", container)


async def test_what_makes_no_sense_is_refused_in_words(world: World) -> None:
    with pytest.raises(KubeError) as refused:
        await create(world, pod("refused", gpu=1, gpumem="16Gi", gpucores=150))
    words = str(refused.value)
    assert 'admission webhook "mutate.amd-vgpu.io" denied the request' in words
    assert "spec.containers[0].resources.limits[amd.com/gpucores]" in words
    assert "for 16Gi write 16384" in words


async def test_a_pod_waits_for_room_and_is_told_why(world: World) -> None:
    await create(world, pod("first", gpu=1, gpumem=100_000, gpucores=60))
    await in_phase(world, "first", "Running")
    await create(world, pod("second", gpu=1, gpumem=90_000, gpucores=60))

    def is_told(item: Json | None) -> bool:
        conditions = (item or {}).get("status", {}).get("conditions") or ()
        return any("GPU compute units: 122 free, 182 asked" in one.get("message", "") for one in conditions)

    async with asyncio.timeout(SECONDS):
        waiting = await until(world.cluster.client, paths.pods(SPACE), "second", is_told)
    assert waiting is not None
    (condition,) = waiting["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert condition["message"].startswith("0/2 nodes are available: ")
    await world.cluster.client.delete(paths.pod(SPACE, "first"))
    assert node_name(await in_phase(world, "second", "Running")) == "node-a"


async def test_a_deleted_pods_processes_end(world: World) -> None:
    await create(world, pod("short", gpu=1, gpumem=1024, gpucores=10))
    await in_phase(world, "short", "Running")
    await said(world, "short", "ready")
    await world.cluster.client.delete(paths.pod(SPACE, "short"))
    async with asyncio.timeout(SECONDS):
        await until(world.cluster.client, paths.pods(SPACE), "short", lambda item: item is None)


async def test_two_gpus_for_one_container(world: World) -> None:
    await create(world, pod("wide", gpu=2, gpumem=8192, gpucores=50))
    item = await in_phase(world, "wide", "Running")
    assert node_name(item) == "node-b"
    env = (await said(world, "wide", "env"))["env"]
    assert len(env["ROCR_VISIBLE_DEVICES"].split(",")) == 2
    assert env["HIP_VISIBLE_DEVICES"] == "0,1"
