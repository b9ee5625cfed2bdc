"""One line on the terminal that says what is being done and for how long."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.errors import ClusterError, tail


@contextmanager
def step(title: str) -> Iterator[None]:
    """Show `title` with a running clock until the block ends; off a terminal, one line at start and end."""
    begun = time.monotonic()
    finished = threading.Event()
    live = sys.stderr.isatty()

    def show(prefix: str, suffix: str) -> None:
        sys.stderr.write(f"{prefix}{title} ... {suffix}")
        sys.stderr.flush()

    def tick() -> None:
        while not finished.wait(1):
            show("\r", f"{time.monotonic() - begun:.0f} s")

    clock = threading.Thread(target=tick, daemon=True)
    show("", "" if live else "\n")
    if live:
        clock.start()
    outcome = "failed"
    try:
        yield
        outcome = "done"
    finally:
        finished.set()
        if live:
            clock.join()
        show("\r" if live else "", f"{outcome}, {time.monotonic() - begun:.1f} s\n")


def run_logged(
    argv: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Run a command whose output goes to the end of `log`; a failure shows the log's tail."""
    with log.open("ab") as out:
        out.write(f"+ {' '.join(argv)}\n".encode())
        out.flush()
        done = subprocess.run(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env, cwd=cwd, check=False)
    if done.returncode:
        raise ClusterError(f"{argv[0]} ended with status {done.returncode}\n{tail(log)}")
