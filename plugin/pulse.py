"""A cheap sign of whether anything about the GPUs changed since the last look.

sysfs tells nobody of its changes, and reading all of it each second would cost more than the plugin may. So a few
files are read that change with everything that matters: KFD's count of topology changes and its list of nodes, the
device nodes, and for each chip the errors of its memory and the driver's count of RAS events. The other blocks' error
counts are left to the look itself: the driver asks the GPU's firmware for each of them.

Watching the device nodes with inotify instead would save nothing, as the rest has to be read all the same.
"""

import asyncio
import os
import threading
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Final

from plugin.devicefiles import whole_gpu
from plugin.discovery import Snapshot
from plugin.patience import first_of
from plugin.topology import TOPOLOGY

_PAGE: Final = 4096
"""No attribute is longer."""


class Pulse:
    """What is read each time, for the GPUs as they were last seen.

    Args:
        sysfs_root: normally `/sys`.
        dev_root: normally `/dev`.
        snapshot: the GPUs.
    """

    def __init__(self, sysfs_root: Path, dev_root: Path, snapshot: Snapshot) -> None:
        chips = sorted({whole_gpu(sysfs_root, gpu.info.pci_address) for gpu in snapshot.gpus})
        topology = sysfs_root / TOPOLOGY
        # Strings, as making paths of them anew would cost more than reading.
        self._folders = (str(topology / "nodes"), str(dev_root / "dri"))
        self._kfd = str(dev_root / "kfd")
        self._memory_errors = [str(chip / "ras/umc_err_count") for chip in chips]
        self._others = [str(topology / "generation_id"), *(str(chip / "ras/event_state") for chip in chips)]

    def take(self) -> Hashable:
        """Return a value that is another once something about the machine's GPUs is; it may take long."""
        return (
            tuple(_names(folder) for folder in self._folders),
            os.access(self._kfd, os.F_OK),
            # Uncorrectable errors are the first line. Others are corrected all the time.
            tuple(_content(path).partition(b"\n")[0] for path in self._memory_errors),
            tuple(_content(path) for path in self._others),
        )


async def until_other(pulse: Pulse, beat: Hashable, *, every: float, at_most: float) -> None:
    """Wait until the pulse is another than it was, or the time is over.

    Args:
        pulse: is taken again and again, by a thread of its own: it can take long while a driver resets a GPU, and a
            thread that sleeps by itself costs half of one that the event loop calls each time.
        beat: as it was.
        every: seconds between two.
        at_most: seconds until the time is over.
    """
    loop = asyncio.get_running_loop()
    changed, over = asyncio.Event(), threading.Event()

    def feel() -> None:
        while not over.wait(every):
            if pulse.take() != beat:
                with suppress(RuntimeError):  # the loop is closed, nobody waits any more
                    loop.call_soon_threadsafe(changed.set)
                return

    # A daemon: a driver that never answers must not keep the process from ending.
    threading.Thread(target=feel, name="pulse", daemon=True).start()
    try:
        await first_of(changed, seconds=at_most)
    finally:
        over.set()


def _content(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _PAGE)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _names(folder: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - as above
    except OSError:
        return ()
