"""Runs a program with or without the library, in an environment that holds nothing else."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
MIB: Final = 1 << 20
TIMEOUT_SECONDS: Final = 120
REGIONS: Final = Path(tempfile.mkdtemp(prefix="shim-regions-"))
atexit.register(shutil.rmtree, REGIONS, ignore_errors=True)


def new_region() -> Path:
    """Make a folder for the accounts of one container; processes of several tests would share those of this machine."""
    return Path(tempfile.mkdtemp(dir=REGIONS))


@dataclass(frozen=True)
class Outcome:
    """How a program ended and what it wrote."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its output as JSON objects, one per line; only of a program that succeeded."""
        assert self.code == 0, f"exit status {self.code}: {self.stdout}{self.stderr}"
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def line(self) -> dict[str, Any]:
        """The only line."""
        (line,) = self.lines
        return line


@dataclass(frozen=True)
class Runner:
    """Runs programs under one build of the library, or without it."""

    shim: Path | None

    def __call__(
        self, *command: str | Path, limit: str | None = None, env: Mapping[str, str | None] | None = None
    ) -> Outcome:
        """Run to the end; a variable that is None is not set."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment(limit=limit, env=env),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            cwd=ROOT,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def python(
        self, program: str, *arguments: str | Path, limit: str | None = None, env: Mapping[str, str] | None = None
    ) -> Outcome:
        """Run one of the Python programs in `programs`."""
        command = [sys.executable, "-m", f"tests.shim.programs.{program}", *arguments]
        return self(*command, limit=limit, env=env)

    def environment(self, *, limit: str | None, env: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """What the program finds in its environment."""
        wanted: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "LD_AUDIT": None if self.shim is None else str(self.shim),
            "HIP_DEVICE_MEMORY_LIMIT": limit,
            "AMVGPU_REGION": None if self.shim is None or limit is None else str(new_region()),
            **(env or {}),
        }
        return {name: value for name, value in wanted.items() if value is not None}
