"""Watching the GPUs: look again when their pulse changes, and now and then without a sign."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from plugin.discovery import Snapshot, discover
from plugin.health import carry_over, changes
from plugin.inventory import Inventory
from plugin.metrics import Metrics
from plugin.pulse import Pulse, until_other
from plugin.recovery import Recovery
from plugin.settings import PluginSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE_SECONDS: Final = 10
"""After so long a driver that does not answer is spoken of."""


async def look(settings: PluginSettings) -> Snapshot:
    """Return the machine's GPUs as they are now."""
    return await _in_thread(lambda: discover(settings.sysfs_root, settings.dev_root, settings.offer))


async def keep_looking(settings: PluginSettings, inventory: Inventory, metrics: Metrics) -> None:
    """Keep the inventory equal to the machine, for ever.

    Args:
        settings: of the plugin.
        inventory: is told of each change.
        metrics: are told of each change of a GPU's health.
    """
    recovery = Recovery(settings.recovery_seconds)
    while True:
        before = inventory.snapshot
        pulse = Pulse(settings.sysfs_root, settings.dev_root, before)
        beat = await _in_thread(pulse.take)
        take_over(inventory, await look(settings), metrics, recovery)
        if inventory.snapshot is before:
            at_most = min(settings.rescan_seconds, recovery.due_in() or settings.rescan_seconds)
            await until_other(pulse, beat, every=settings.pulse_seconds, at_most=at_most)
        else:
            # What changed may have come after the pulse, and be undone before the next one: look once more.
            await asyncio.sleep(settings.pulse_seconds)


def take_over(inventory: Inventory, seen: Snapshot, metrics: Metrics, recovery: Recovery) -> None:
    """Make what was seen the inventory's snapshot, and log and count what is different."""
    before = inventory.snapshot
    now = recovery.hold_back(before, carry_over(before, seen))
    for change in changes(before, now):
        log.log(logging.WARNING if change.gpu.ailment else logging.INFO, "%s", change)
        metrics.changed(change)
    for reason in now.left_out:
        if reason not in before.left_out:
            log.warning("left out: %s", reason)
    metrics.seen(now)
    inventory.publish(now)


async def _in_thread(read: Callable[[], T]) -> T:
    """Read in a thread: it can take long while a driver resets a GPU, and calls must be answered meanwhile."""
    reading = asyncio.ensure_future(asyncio.to_thread(read))
    done, _ = await asyncio.wait([reading], timeout=_PATIENCE_SECONDS)
    if not done:
        log.warning("sysfs has not answered for %d s: is the driver resetting a GPU?", _PATIENCE_SECONDS)
    return await reading
