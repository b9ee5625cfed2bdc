"""Running containers: as processes with their environment and, as far as that goes without root, their mounts."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class ImageError(Exception):
    """There is no such image."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What a container is started from.

    Attributes:
        name: tells its log and its folder from others', such as `default_train_main`.
        image: its image.
        command: what to run instead of the image's own command, empty for that.
        env: its environment.
        mounts: paths of the host by their paths in the container.
    """

    name: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    mounts: Mapping[str, str]


class Container(Protocol):
    """A container that was started."""

    async def wait(self) -> int:
        """Return its exit status when it has ended."""

    async def stop(self, grace_seconds: float) -> None:
        """End it, the hard way after the grace time."""


class Runtime(Protocol):
    """What starts containers."""

    async def start(self, spec: ContainerSpec) -> Container:
        """Start a container.

        Raises:
            ImageError: its image does not exist.
        """


class IdleContainer:
    """A container without a process: it runs until it is stopped."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def wait(self) -> int:
        """Return when it was stopped."""
        await self._stopped.wait()
        return 0

    async def stop(self, grace_seconds: float) -> None:
        """End it at once."""
        del grace_seconds
        self._stopped.set()


class IdleRuntime:
    """Starts containers that do nothing, whatever their image: for clusters of thousands of nodes."""

    async def start(self, spec: ContainerSpec) -> Container:
        """Start one."""
        del spec
        return IdleContainer()


class ProcessContainer:
    """A container that is a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def wait(self) -> int:
        """Return the exit status, 128 and the signal's number for one that a signal ended."""
        status = await self._process.wait()
        return 128 - status if status < 0 else status

    async def stop(self, grace_seconds: float) -> None:
        """End the group: SIGTERM, then SIGKILL."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            pass
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class ProcessRuntime:
    """Runs containers as processes of the caller, on the host's files.

    Args:
        state: folder for the containers' folders and logs, `<name>.log`.
        images: the command of each image there is.
    """

    def __init__(self, state: Path, images: Mapping[str, Sequence[str]]) -> None:
        self._state = state
        self._images = images

    def log(self, name: str) -> Path:
        """Return where the output of a container goes."""
        return self._state / f"{name}.log"

    async def start(self, spec: ContainerSpec) -> Container:
        """Start one."""
        if spec.image not in self._images:
            raise ImageError(f"there is no image {spec.image!r} here, only {', '.join(sorted(self._images))}")
        root = self._state / spec.name
        await asyncio.to_thread(_mount, root, spec.mounts)
        with self.log(spec.name).open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(spec.command or self._images[spec.image]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=inside(root, spec.env),
                start_new_session=True,
            )
        return ProcessContainer(process)


def inside(root: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which paths that exist below a container's folder mean what is there."""
    return {name: _found(root, value) for name, value in env.items()}


def _found(root: Path, value: str) -> str:
    path = root / value.lstrip("/")
    return str(path) if value.startswith("/") and value.strip("/") and path.exists() else value


def _mount(root: Path, mounts: Mapping[str, str]) -> None:
    """Show the host's files and folders below a container's folder: by links, as mounting needs root."""
    for inner, outer in mounts.items():
        path = root / inner.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if Path(outer).is_dir():
            path.symlink_to(outer)
        else:
            # The audit library does not follow symbolic links to its account.
            path.hardlink_to(outer)
