"""However a cluster ends, nothing of it is left on the machine; other clusters may run at the same time."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.cgroups import hierarchies
from tests.cluster.cluster import Cluster
from tests.cluster.images import BUSYBOX_IMAGE
from tests.cluster.janitor import CHECKOUT
from tests.cluster.namespace import SYSCTLS

BOUND = 30.0

# Folders that a node's daemons make where nobody keeps them from it.
USUAL_PLACES = (
    "/etc/cni", "/opt/cni", "/opt/containerd", "/run/containerd", "/run/kubernetes", "/run/netns",
    "/usr/libexec/kubernetes", "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/containers",
    "/var/log/pods",
)  # fmt: skip

# Tells where its cluster is once a pod runs, then waits to be killed.
OWNER = """
import json, signal
from tests.cluster.cluster import Cluster
from tests.cluster.test_leftovers import footprint
cluster = Cluster()
cluster.start()
print(json.dumps(footprint(cluster)), flush=True)
signal.pause()
"""


def footprint(cluster: Cluster) -> dict[str, str]:
    """Run a pod; return the names by which everything of this cluster can be found."""
    cluster.kubectl("run", "pod", f"--image={BUSYBOX_IMAGE}", "--restart=Never", "--", "sleep", "1000")
    pod = cluster.wait_for_pod("default", "pod")
    assert pod is not None
    route = subprocess.run(["ip", "route", "get", pod["status"]["podIP"]], capture_output=True, text=True, check=True)
    link = re.search(r"dev (\S+)", route.stdout)
    assert link is not None
    return {"state": str(cluster.state), "cgroup": cluster.cgroup, "link": link[1]}


def traces(names: dict[str, str]) -> dict[str, list[str]]:
    """What there is of a cluster."""
    folders = [Path("/sys/class/net") / names["link"], *(root / names["cgroup"] for root in hierarchies())]
    found = {
        "processes": [entry.name for entry in Path("/proc").glob("[0-9]*") if _mentions(entry, names["state"])],
        "state": [names["state"]] if Path(names["state"]).exists() else [],
        "links and cgroups": [str(folder) for folder in folders if folder.exists()],
    }
    return {kind: items for kind, items in found.items() if items}


def _mentions(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def machine() -> dict[str, object]:
    """What no cluster may change, not even while it runs."""
    settings = [Path("/proc/sys", name) for name in SYSCTLS]
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "places": [place for place in USUAL_PLACES if Path(place).exists()],
        "settings": {str(file): file.read_text() for file in settings if file.exists()},
    }


def traces_in_the_end(names: dict[str, str]) -> dict[str, list[str]]:
    """Give the kernel, which takes down a dead namespace's interfaces in the background, some time."""
    deadline = time.monotonic() + BOUND
    while (left := traces(names)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.mark.usefixtures("cluster")
def test_nothing_is_left_after_the_end() -> None:
    before = machine()
    with Cluster() as cluster:
        names = footprint(cluster)
        cluster.start_process("stubborn", ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], grace=0.2)
        assert traces(names).keys() == {"processes", "state", "links and cgroups"}
        assert machine() == before
    assert traces_in_the_end(names) == {}
    assert machine() == before


@pytest.mark.usefixtures("cluster")
def test_nothing_is_left_after_the_owner_was_killed() -> None:
    before = machine()
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as owner:
        assert owner.stdout is not None
        names = json.loads(owner.stdout.readline())
        assert "processes" in traces(names)
        owner.send_signal(signal.SIGKILL)
    assert traces_in_the_end(names) == {}
    assert machine() == before


def test_nothing_is_left_after_a_failed_start(cluster: Cluster) -> None:
    broken = Cluster(apiserver_args=["--no-such-flag"])
    with pytest.raises(Exception, match=r"kube-apiserver ended with status(?s:.*)no-such-flag"):
        broken.start()
    assert broken.state != cluster.state
    assert not broken.state.exists()
