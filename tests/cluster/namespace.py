"""The node's own mount and PID namespace: when its first process dies, all its processes and mounts are gone."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.process import GRACE, Service, Supervisor

NAME = "node-namespace"
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")

# Places that the node's daemons insist on. Overlays keep what they create there inside the state folder.
OVERLAID = ("/var/lib", "/var/log", "/run")

# What the kubelet and the CNI plugins set when they find other values; they find these and leave the host's alone.
SYSCTLS: Mapping[str, str] = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "net/ipv4/ip_forward": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


class NodeNamespace:
    """Starts the namespace, and processes in it."""

    def __init__(self, state: Path, supervisor: Supervisor, env: Mapping[str, str]) -> None:
        self._state = state
        self._supervisor = supervisor
        self._env = env
        self._first = 0

    def start(self, binds: Mapping[Path, str]) -> None:
        """Make the namespace; each folder of the state folder in `binds` appears at its usual place too."""
        folder = self._state / "namespace"
        folder.mkdir()
        ready = folder / "ready"
        script = folder / "init.sh"
        script.write_text("\n".join([*self._mounts(folder, binds), *_be_first_process(ready)]))
        service = self._supervisor.start(NAME, [*UNSHARE, "/bin/sh", script], env=self._env, grace=0)
        service.wait_ready(ready.exists)
        self._first = _only_child(service)

    def run(self, name: str, argv: Sequence[str | Path], grace: float = GRACE) -> Service:
        """Start a process in the namespace."""
        enter = ["nsenter", f"--target={self._first}", "--mount", "--pid", "--"]
        return self._supervisor.start(name, [*enter, *argv], env=self._env, grace=grace)

    def _mounts(self, folder: Path, binds: Mapping[Path, str]) -> list[str]:
        lines = ["set -e"]
        for place in OVERLAID:
            upper, work = (folder / kind / place.strip("/").replace("/", "-") for kind in ("upper", "work"))
            upper.mkdir(parents=True)
            work.mkdir(parents=True)
            lines.append(f"mount -t overlay overlay -o lowerdir={place},upperdir={upper},workdir={work} {place}")
        for source, place in binds.items():
            lines += [f"mkdir -p {place}", f"mount --bind {source} {place}"]
        for name, value in SYSCTLS.items():
            file = folder / name.replace("/", ".")
            file.write_text(f"{value}\n")
            lines.append(f"[ ! -e /proc/sys/{name} ] || mount --bind {file} /proc/sys/{name}")
        # The kubelet wants its mounts to reach containers; from the host the namespace stays cut off.
        lines.append("mount --make-rshared /")
        return lines


def _be_first_process(ready: Path) -> list[str]:
    # Orphans are handed to the first process, and one that ignores SIGCHLD need not reap them.
    return [f": > {ready}", "exec env --ignore-signal=CHLD sleep infinity"]


def _only_child(service: Service, timeout: float = 5.0) -> int:
    deadline = time.monotonic() + timeout
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children")
    while time.monotonic() < deadline:
        service.raise_if_ended()
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.01)
    raise ClusterError("unshare has no child")
