"""Clean up after a cluster, however its owner ends.

The owner holds the other end of this process's standard input. When that closes, because the owner is done
or because it was killed, everything that belongs to the cluster is killed and removed. There is one way of
cleaning up, so the way for crashes is the one that every run uses.
"""

import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.cluster.cgroups import Branch
from tests.cluster.errors import ClusterError

CHECKOUT = Path(__file__).resolve().parents[2]
TIMEOUT = 30.0


class Janitor:
    """The owner's handle of the process that cleans up."""

    def __init__(self, state: Path, branch: Branch) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.janitor", str(state), branch.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=CHECKOUT,
            # Neither Ctrl-C nor the end of the owner's terminal may reach it.
            start_new_session=True,
            text=True,
        )

    def finish(self) -> None:
        """Have everything removed now; raise ClusterError if something stays. Once is enough."""
        if self._process.returncode is not None:
            return
        _, complaint = self._process.communicate(timeout=4 * TIMEOUT)
        if self._process.returncode:
            raise ClusterError(f"the cluster left something behind:\n{complaint}")


def clean(state: Path, branch: Branch) -> list[str]:
    """Kill the branch's processes, remove it and the state folder; return what is left."""
    if not branch.kill(TIMEOUT):
        return [f"process {pid}" for pid in sorted(branch.processes())]
    left = [f"cgroup {folder}" for folder in branch.remove(TIMEOUT)]
    shutil.rmtree(state, ignore_errors=True)
    return left + ([f"folder {state}"] if state.exists() else [])


def main(state: str, name: str) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    left = clean(Path(state), Branch(name))
    with suppress(BrokenPipeError):
        sys.stderr.write("".join(f"{item}\n" for item in left))
        sys.stderr.flush()
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
