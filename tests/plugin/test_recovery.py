"""A GPU that flaps is ill at once, and well only after a quiet time."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from plugin.ailment import Ailment, Cause
from plugin.discovery import Gpu, Snapshot, discover
from plugin.inventory import Inventory
from plugin.metrics import Metrics
from plugin.recovery import Recovery
from plugin.settings import PluginSettings
from plugin.watching import keep_looking, look
from tests.trees.changes import bring_device_node, take_device_node

ERRORS = Ailment(Cause.ERRORS, "umc 1")
GONE = Ailment(Cause.GONE, "KFD does not list it any more")


@pytest.fixture
def well(machine: Path) -> Snapshot:
    return discover(machine / "sys", machine / "dev")


def with_ailment(snapshot: Snapshot, ailment: Ailment | None) -> Snapshot:
    """Return the machine with its second GPU in this state."""
    first, second = snapshot.gpus
    return replace(snapshot, gpus=(first, ill(second, ailment)))


def ill(gpu: Gpu, ailment: Ailment | None) -> Gpu:
    return replace(gpu, info=replace(gpu.info, healthy=ailment is None), ailment=ailment)


def played(well: Snapshot, *seen: tuple[float, Ailment | None]) -> list[Ailment | None]:
    """Return how the second GPU is shown at these times, when this is seen of it."""
    times = iter([now for now, _ in seen])
    recovery = Recovery(30, clock=lambda: next(times))
    before, shown = well, []
    for _, ailment in seen:
        before = recovery.hold_back(before, with_ailment(well, ailment))
        assert before.gpus[0] == well.gpus[0], "the others are shown as they are"
        assert before.gpus[1].info.healthy == (before.gpus[1].ailment is None)
        shown.append(before.gpus[1].ailment)
    return shown


def test_ill_at_once_and_well_after_the_quiet_time(well: Snapshot) -> None:
    seen = [(0, None), (1, ERRORS), (5, None), (34.9, None), (35, None), (36, None)]
    assert played(well, *seen) == [None, ERRORS, ERRORS, ERRORS, None, None]


def test_each_relapse_begins_the_quiet_time_anew(well: Snapshot) -> None:
    seen = [(1, ERRORS), (5, None), (30, ERRORS), (31, None), (60, None), (61, None)]
    assert played(well, *seen) == [ERRORS, ERRORS, ERRORS, ERRORS, ERRORS, None]


def test_another_illness_meanwhile_is_shown(well: Snapshot) -> None:
    assert played(well, (1, ERRORS), (5, None), (6, GONE), (7, None)) == [ERRORS, ERRORS, GONE, GONE]


def test_a_gpu_that_is_well_when_first_seen_is_well(well: Snapshot) -> None:
    assert Recovery(30).hold_back(Snapshot(), well) == well


def test_when_to_look_again(well: Snapshot) -> None:
    now = 100.0
    recovery = Recovery(30, clock=lambda: now)
    assert recovery.due_in() is None
    shown = recovery.hold_back(with_ailment(well, ERRORS), well)
    now = 110.0
    assert recovery.due_in() == 20
    now = 130.0
    assert recovery.hold_back(shown, well) == well
    assert recovery.due_in() is None


async def test_a_gpu_that_flaps_stays_out_and_one_that_is_quiet_comes_back_without_a_sign(
    settings: PluginSettings, machine: Path
) -> None:
    """Nothing about the machine changes when the quiet time ends: the plugin has to look by itself."""
    inventory = Inventory(await look(settings))
    watched = replace(settings, rescan_seconds=1000, recovery_seconds=0.4)
    task = asyncio.create_task(keep_looking(watched, inventory, Metrics()))
    try:
        async with asyncio.timeout(10):
            take_device_node(machine, "dri/renderD136")
            await inventory.replaced.wait()
            assert not inventory.snapshot.gpus[1].info.healthy
            loop = asyncio.get_running_loop()
            bring_device_node(machine, "dri/renderD136")
            begin, replaced = loop.time(), inventory.replaced
            await replaced.wait()
            assert inventory.snapshot.gpus[1].info.healthy
            assert loop.time() - begin >= 0.3, "not at once"
    finally:
        task.cancel()
