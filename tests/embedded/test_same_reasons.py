"""A simulation refuses for the same reasons as the product's services do."""

import asyncio
import json
from typing import Any

from embedded.watching import until
from kube import paths
from kube.client import Json, KubeError
from protocol.pods import node_name
from scheduler.request import Policies
from simulate.engine import Simulation
from simulate.load import read_pods
from simulate.nodes import read_nodes
from simulate.report import fits_nowhere
from tests.embedded.conftest import World
from tests.embedded.test_product import SECONDS, SPACE, create, in_phase, pod

FITTING: dict[str, dict[str, Any]] = {
    "first": {"gpu": 1, "gpumem": 100_000, "gpucores": 60},
    "second": {"gpu": 2, "gpumem": 20_000, "gpucores": 50},
}
WAITING: dict[str, dict[str, Any]] = {
    "memory": {"gpu": 1, "gpumem": 99_000, "gpucores": 10},
    "cores": {"gpu": 1, "gpumem": 4_000, "gpucores": 60},
    "huge": {"gpu": 1, "gpumem": 300_000},
    "many": {"gpu": 3, "gpumem": 1, "gpucores": 1},
    "whole": {"gpu": 1},
}
SENSELESS: dict[str, dict[str, Any]] = {
    "percent": {"gpu": 1, "gpucores": 101},
    "bytes": {"gpu": 1, "gpumem": "16Gi"},
}


def unschedulable(item: Json | None) -> str:
    conditions = (item or {}).get("status", {}).get("conditions") or ()
    return next((str(one["message"]) for one in conditions if one.get("reason") == "Unschedulable"), "")


async def said_by_the_services(world: World) -> tuple[dict[str, str], dict[str, str]]:
    """Return where pods went, and why others did not."""
    placed = {}
    for name, limits in FITTING.items():
        await create(world, pod(name, **limits))
        placed[name] = node_name(await in_phase(world, name, "Running"))
    messages = {}
    for name, limits in WAITING.items():
        await create(world, pod(name, **limits))
        async with asyncio.timeout(SECONDS):
            item = await until(world.cluster.client, paths.pods(SPACE), name, lambda one: bool(unschedulable(one)))
        messages[name] = unschedulable(item)
    for name, limits in SENSELESS.items():
        try:
            await create(world, pod(name, **limits))
        except KubeError as error:
            messages[name] = str(error)
    return placed, messages


async def test_a_simulation_and_the_services_say_the_same(world: World) -> None:
    registered, _ = await world.cluster.client.list(paths.NODES)
    placed, messages = await said_by_the_services(world)
    manifests = [pod(name, **limits) for name, limits in (FITTING | WAITING | SENSELESS).items()]
    simulated = Simulation(read_nodes(json.dumps({"items": registered})), Policies()).run(
        read_pods(json.dumps({"items": manifests}), is_trace=False)
    )
    assert {one.pod.partition("/")[2]: one.node for one in simulated.placed} == placed
    refused = {one.pod.partition("/")[2]: one for one in simulated.refused}
    assert refused.keys() == messages.keys() == {**WAITING, **SENSELESS}.keys()
    for name in WAITING:
        assert fits_nowhere(refused[name]) == messages[name]
    for name in SENSELESS:
        assert refused[name].message in messages[name]
