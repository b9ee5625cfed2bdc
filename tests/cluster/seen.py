"""What the HIP program in a container saw, from its log."""

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError

MIB = 1024**2


@dataclass
class Seen:
    """One program's report.

    Attributes:
        env: its whole environment.
        dri: names in /dev/dri.
        kfd: whether there is a /dev/kfd.
        devices: what HIP reports of each GPU, bytes.
        steps: for each GPU, the error code of each try to allocate or free.
        ready: whether it now holds all of its memory.
    """

    env: dict[str, str] = field(default_factory=dict)
    dri: list[str] = field(default_factory=list)
    kfd: bool = False
    devices: list[dict[str, int]] = field(default_factory=list)
    steps: list[dict[str, int]] = field(default_factory=list)
    ready: bool = False

    def read(self, line: dict[str, Any]) -> None:
        """Take in one line of the program."""
        if "step" in line:
            while len(self.steps) <= line["device"]:
                self.steps.append({})
            self.steps[line["device"]][line["step"]] = line["code"]
        elif "device" in line:
            self.devices.append({key: value for key, value in line.items() if key != "device"})
        else:
            for key, value in line.items():
                setattr(self, key, value)


def follow(cluster: Cluster, namespace: str, pod: str, container: str, timeout: float = 30) -> Seen:
    """Read a container's log until the program holds its memory, or ends."""
    seen = Seen()
    for line in _lines(cluster, namespace, pod, container, timeout):
        try:
            seen.read(json.loads(line))
        except ValueError as error:
            raise ClusterError(f"container {container} of pod {pod} says: {line}") from error
        if seen.ready:
            return seen
    if not seen.env:
        raise ClusterError(f"container {container} of pod {pod} said nothing within {timeout:.0f} s")
    return seen


def _lines(cluster: Cluster, namespace: str, pod: str, container: str, timeout: float) -> Iterator[str]:
    command = ["kubectl", f"--kubeconfig={cluster.kubeconfig}", "logs", "--follow", f"--namespace={namespace}", pod]
    with subprocess.Popen([*command, f"--container={container}"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        try:
            yield from process.stdout
        finally:
            timer.cancel()
            process.kill()
