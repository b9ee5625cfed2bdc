"""Being told at once of sockets that come and go in a folder."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from asyncinotify import Inotify, Mask

log = logging.getLogger(__name__)

_SUFFIX: Final = ".sock"
_EVENTS: Final = Mask.CREATE | Mask.DELETE | Mask.MOVE


@asynccontextmanager
async def sockets_watched(folder: Path, changed: asyncio.Event) -> AsyncIterator[None]:
    """Set the event whenever a socket comes or goes, for the time of the block.

    Where that cannot be told, as when the machine has no inotify watches left, a warning says so and the event is never
    set: whoever waits for it must look now and then by itself.

    Args:
        folder: the sockets' folder.
        changed: is set.
    """
    with Inotify() as inotify:
        try:
            inotify.add_watch(folder, _EVENTS)
        except OSError as error:
            log.warning("%s cannot be watched, it is looked at every few seconds: %s", folder, error)
        telling = asyncio.create_task(_tell(inotify, changed))
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _tell(inotify: Inotify, changed: asyncio.Event) -> None:
    async for event in inotify:
        # The kubelet rewrites its checkpoint in the same folder with each container.
        if event.name is not None and event.name.suffix == _SUFFIX:
            changed.set()
