"""Child processes with a log, a readiness check and an end."""

import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.cluster.errors import ClusterError, tail

INTERVAL = 0.05
READY_TIMEOUT = 60.0
GRACE = 5.0
KILL_TIMEOUT = 5.0

Ready: TypeAlias = str | Callable[[], bool]


@dataclass
class Service:
    """One child and everything it started: they share a process group."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    grace: float

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def raise_if_ended(self) -> None:
        status = self.process.poll()
        if status is not None:
            raise ClusterError(f"{self.name} ended with status {status}\n{tail(self.log)}")

    def wait_ready(self, ready: Ready, timeout: float = READY_TIMEOUT) -> None:
        """Wait until the check succeeds; fail at once if the process ends."""
        check = ready if callable(ready) else _answers(ready)
        deadline = time.monotonic() + timeout
        while not check():
            self.raise_if_ended()
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name} is not ready after {timeout:.0f} s\n{tail(self.log)}")
            time.sleep(INTERVAL)
        self.raise_if_ended()

    def stop(self, grace: float | None = None) -> None:
        """End the whole group: SIGTERM, then SIGKILL for what is left after the grace time."""
        grace = self.grace if grace is None else grace
        if grace > 0:
            self._signal(signal.SIGTERM)
            self._wait_for_group(grace)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self._wait_for_group(KILL_TIMEOUT)

    def _wait_for_group(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._group_lives() and time.monotonic() < deadline:
            time.sleep(INTERVAL)

    def _group_lives(self) -> bool:
        # Reap the leader first: as a zombie it would keep the group.
        self.process.poll()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        # Orphans of the group may stay zombies for long: not every container's first process reaps them.
        return any(_is_live_member(entry, self.pid) for entry in Path("/proc").glob("[0-9]*"))

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Supervisor:
    """The children of one cluster, in the order of their start."""

    def __init__(self, logs: Path, join_file: Path) -> None:
        self.logs = logs
        self._join_file = join_file
        self._services: dict[str, Service] = {}

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        grace: float = GRACE,
    ) -> Service:
        """Start a child in the cluster's cgroup; its output goes to `<logs>/<name>.log`."""
        if name in self._services:
            raise ValueError(f"there is a process named {name} already")
        # The shell joins the cgroup and becomes the program, so that no child is ever outside.
        join: list[str | Path] = ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', self._join_file]
        log = self.logs / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*join, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        service = Service(name, process, log, grace)
        self._services[name] = service
        return service

    def check(self) -> None:
        """Raise ClusterError if a child has ended that nobody stopped."""
        for service in self._services.values():
            service.raise_if_ended()

    def stop(self, name: str, grace: float | None = None) -> None:
        self._services.pop(name).stop(grace)

    def stop_all(self) -> None:
        while self._services:
            _, service = self._services.popitem()
            service.stop()


def _is_live_member(entry: Path, group: int) -> bool:
    try:
        # The name in the second field may hold anything; state, parent and group follow its closing bracket.
        state, _, its_group = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(its_group) == group and state not in "ZX"


def _answers(url: str) -> Callable[[], bool]:
    """Return a check that succeeds when `url` answers with a success status, whoever signed its certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def check() -> bool:
        try:
            with opener.open(url, timeout=2):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    return check
