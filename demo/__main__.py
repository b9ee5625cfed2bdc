"""`python -m demo`: see `amd-vgpu demo`."""

import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from demo import picture
from demo.standins import StandIns, prepare
from demo.story import Scenes
from embedded.product import running
from tests.shim.build import CompileError

# Unix sockets lie in the state folder, and their paths are limited to 107 bytes, so it does not follow a long TMPDIR.
_STATE_PARENT: Final = "/tmp"  # noqa: S108 - the folder has a name of its own and is closed to others
_PLAIN_WIDTH: Final = 80


def main() -> int:
    """Run the demonstration and return the exit status."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
    with tempfile.TemporaryDirectory(prefix="amd-vgpu-", dir=_STATE_PARENT) as folder:
        try:
            standins = prepare(Path(folder))
        except CompileError as error:
            print(f"amd-vgpu: the demonstration compiles a small HIP program: {error}", file=sys.stderr)
            return 1
        try:
            asyncio.run(_tell(standins, console))
        except KeyboardInterrupt:
            return 130
    return 0


async def _tell(standins: StandIns, console: Console) -> None:
    begin = time.monotonic()
    console.print("Starting a cluster of two nodes in this process ...")
    async with running(standins.setup) as cluster:
        console.print(f"It is up after {time.monotonic() - begin:.1f} s.")
        console.print("  real:      webhook, scheduler extender, device plugins, audit library")
        console.print("  stand-ins: API server, kube-scheduler, kubelets, GPUs, AMD's runtime")
        await Scenes(cluster, standins, console, picture.Palette(colours=console.is_terminal)).tell()


if __name__ == "__main__":
    sys.exit(main())
