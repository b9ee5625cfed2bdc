"""Processes of one container, each led by a test, and how to make away with them."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.shim.running import Runner, new_region


class Tenant:
    """One process; see programs/tenant.c for what it understands."""

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.expect("ready")

    def ask(self, command: str) -> str:
        """One command and its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        return self.listen()

    def listen(self) -> str:
        """The next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def expect(self, line: str) -> None:
        """Wait for this line."""
        heard = self.listen()
        assert heard == line, heard

    def malloc(self, size: int, device: int = 0) -> int | None:
        """The number of the piece, or None when it is refused."""
        code, number = map(int, self.ask(f"malloc {device} {size}").split())
        assert code in {0, 2}
        return number if code == 0 else None

    def free(self, number: int) -> None:
        """Give the piece back."""
        assert self.ask(f"free {number}") == "0"

    def left(self, device: int = 0) -> int:
        """Free bytes."""
        return int(self.ask(f"info {device}").split()[0])

    def kill(self) -> None:
        """SIGKILL, and wait for its death, but leave it as a zombie."""
        self.process.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """Let it end by itself, or bury it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


class Container:
    """The processes that share one folder."""

    def __init__(self, run: Runner, program: Path, limit: str) -> None:
        self.run = run
        self.program = program
        self.limit = limit
        self.region = new_region()
        self.tenants: list[Tenant] = []

    @property
    def file(self) -> Path:
        """The shared file."""
        return self.region / "region"

    def start(self, *before: str | Path, env: Mapping[str, str | None] | None = None) -> Tenant:
        """One more process, by way of another command if need be."""
        own: dict[str, str | None] = {"AMVGPU_REGION": str(self.region), "STANDIN_HIP_DEVICES": "2", **(env or {})}
        tenant = Tenant([*before, self.program], self.run.environment(limit=self.limit, env=own))
        self.tenants.append(tenant)
        return tenant


@contextmanager
def container(run: Runner, program: Path, limit: str) -> Iterator[Container]:
    """Open one, and end all of its processes."""
    made = Container(run, program, limit)
    try:
        yield made
    finally:
        for tenant in made.tenants:
            if tenant.process.poll() is None:
                tenant.process.send_signal(signal.SIGKILL)
            tenant.end()
