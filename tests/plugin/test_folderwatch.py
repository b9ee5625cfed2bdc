import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from plugin.folderwatch import sockets_watched


class CountingEvent(asyncio.Event):
    """Counts how often it was set."""

    times = 0

    def set(self) -> None:
        self.times += 1
        super().set()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


def comes(socket: Path) -> None:
    socket.touch()


def goes(socket: Path) -> None:
    socket.unlink()


def is_moved_here(socket: Path) -> None:
    other = socket.with_name("other")
    other.touch()
    other.rename(socket)


def checkpoint_is_written(folder: Path) -> None:
    new = folder / ".kubelet_internal_checkpoint1"
    new.touch()
    new.rename(folder / "kubelet_internal_checkpoint")


@pytest.mark.parametrize("changes", [[comes], [comes, goes], [is_moved_here]])
async def test_sockets_that_come_and_go_are_told(socket: Path, changes: list[Callable[[Path], None]]) -> None:
    changed = asyncio.Event()
    async with sockets_watched(socket.parent, changed):
        for change in changes:
            changed.clear()
            change(socket)
            async with asyncio.timeout(5):
                await changed.wait()


async def test_the_kubelets_checkpoint_is_nobodys_business(socket: Path) -> None:
    """It is written in the same folder with each container."""
    changed = CountingEvent()
    async with sockets_watched(socket.parent, changed):
        checkpoint_is_written(socket.parent)
        comes(socket)  # events come in order: when this one is there, those before have been
        async with asyncio.timeout(5):
            await changed.wait()
    assert changed.times == 1


async def test_after_the_block_nothing_is_told(socket: Path) -> None:
    changed = CountingEvent()
    async with sockets_watched(socket.parent, changed):
        pass
    later = asyncio.Event()
    async with sockets_watched(socket.parent, later):
        comes(socket)
        async with asyncio.timeout(5):
            await later.wait()
    assert changed.times == 0


async def test_a_folder_that_cannot_be_watched_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sockets_watched(tmp_path / "none", asyncio.Event()):
        assert "cannot be watched" in caplog.text
