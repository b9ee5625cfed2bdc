"""Nodes whose device plugin is silent: told by their Leases, whatever the clocks of the machines say."""

import time
from typing import Any, Literal

import pytest

from kube.client import KubeClient
from kube.listwatch import Change, Snapshot
from protocol.devices import encode_register
from protocol.heartbeat import RENEW_SECONDS, STALE_SECONDS, lease_name, node_of
from protocol.names import NODE_REGISTER
from scheduler.app import Extender
from scheduler.binder import Binder
from scheduler.heartbeats import Heartbeats
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import FilterArgs
from tests.protocol.makers import MI300X, container, pod_spec

Kind = Literal["ADDED", "MODIFIED", "DELETED"]


def lease(name: str, renewed: str = "1970-01-01T00:00:00.000000Z") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"renewTime": renewed}}


class Watch:
    """Brings events in time that the test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.beats = Heartbeats(lambda: self.now)
        self._renewals = 0

    def snapshot(self, *leases: dict[str, Any]) -> None:
        self.beats.see(Snapshot(leases))

    def beat(self, node: str, kind: Kind = "MODIFIED") -> None:
        self._renewals += 1
        self.beats.see(Change(kind, lease(lease_name(node), str(self._renewals))))

    def heard_for(self, seconds: float) -> None:
        """Let time pass in which the active extender renews its own Lease, as it does all the time."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.beats.see(Change("MODIFIED", lease("amd-vgpu-extender", str(self.now))))


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_lease_is_of_one_node_by_its_name() -> None:
    assert node_of(lease_name("node-a.example")) == "node-a.example"
    assert node_of("amd-vgpu-extender") is None


def test_a_plugin_may_miss_two_renewals() -> None:
    assert 3 * RENEW_SECONDS <= STALE_SECONDS


def test_a_node_without_lease_is_taken_to_live(watch: Watch) -> None:
    watch.snapshot(lease("amd-vgpu-extender"))
    watch.heard_for(1000)
    assert watch.beats.silence("of-hami") is None
    assert watch.beats.refusal("of-hami") is None
    assert watch.beats.count() == 0


def test_b15_a_plugin_that_renews_is_not_silent(watch: Watch) -> None:
    watch.snapshot(lease(lease_name("a")))
    for _ in range(20):
        watch.heard_for(RENEW_SECONDS)
        watch.beat("a")
        assert not watch.beats.is_silent("a")


@pytest.mark.parametrize(
    ("seconds", "words"), [(95, "90 s"), (200, "3 min"), (700, "10 min"), (4000, "1 h"), (90_000, "1 day")]
)
def test_b15_a_silent_plugin_is_said_in_steps(watch: Watch, seconds: float, words: str) -> None:
    watch.snapshot(lease(lease_name("a")))
    watch.heard_for(STALE_SECONDS)
    assert watch.beats.refusal("a") is None
    watch.heard_for(seconds - STALE_SECONDS)
    refusal = watch.beats.refusal("a")
    assert refusal is not None
    assert refusal.reason == f"the device plugin on this node has been silent for more than {words}"
    assert refusal.permanent, "no other pod's end helps"
    assert watch.beats.silent_count() == 1


def test_one_beat_is_enough_to_be_back(watch: Watch) -> None:
    watch.snapshot(lease(lease_name("a")))
    watch.heard_for(STALE_SECONDS + 100)
    watch.beat("a")
    assert not watch.beats.is_silent("a")
    assert watch.beats.silence("a") == 0


def test_a_write_that_does_not_renew_is_no_beat(watch: Watch) -> None:
    watch.snapshot(lease(lease_name("a")))
    watch.heard_for(STALE_SECONDS + 1)
    watch.beats.see(Change("MODIFIED", lease(lease_name("a"))))
    assert watch.beats.is_silent("a")


def test_a_restart_takes_every_node_as_fresh(watch: Watch) -> None:
    watch.snapshot(lease(lease_name("a"), "1970-01-01T00:00:00.000000Z"))
    assert watch.beats.silence("a") == 0


def test_nobody_ages_while_nothing_is_heard(watch: Watch) -> None:
    watch.snapshot(lease(lease_name("a")))
    watch.now += 10_000  # the watch hangs
    assert watch.beats.silence("a") == 0
    watch.snapshot(lease(lease_name("a")))
    assert watch.beats.silence("a") == 5, "and afterwards the plugin has time to find the API server too"


def test_a_lost_watch_does_not_make_a_silent_node_fresh(watch: Watch) -> None:
    watch.snapshot(lease(lease_name("a")))
    watch.heard_for(STALE_SECONDS + 1)
    watch.snapshot(lease(lease_name("a")))
    assert watch.beats.is_silent("a")


@pytest.mark.parametrize("way", ["event", "snapshot"])
def test_a_lease_that_is_gone_leaves_a_node_without_one(watch: Watch, way: str) -> None:
    watch.snapshot(lease(lease_name("a")))
    watch.heard_for(STALE_SECONDS + 1)
    if way == "event":
        watch.beat("a", "DELETED")
    else:
        watch.snapshot()
    assert watch.beats.refusal("a") is None


async def test_b15_a_silent_node_is_not_offered(watch: Watch) -> None:
    state = ClusterState()
    register = {NODE_REGISTER: encode_register([MI300X])}
    state.see_nodes(Snapshot(tuple({"metadata": {"name": name, "annotations": register}} for name in "ab")))
    state.see_pods(Snapshot(()))
    state.see_quotas(Snapshot(()))
    unused = KubeClient(None, timeout=1)
    binder = Binder(unused, state, NodeLocks(unused, state), policies=Policies(), wait_seconds=1)
    extender = Extender.of(state, binder, Policies(), time.monotonic, heartbeats=watch.beats)
    watch.snapshot(lease(lease_name("a")), lease(lease_name("b")))
    watch.heard_for(STALE_SECONDS)
    watch.beat("b")
    watch.heard_for(5)
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": pod_spec(container(gpu=1))}
    answer = await extender.filter(FilterArgs(pod, ("a", "b"), None))
    assert answer["NodeNames"] == ["b"]
    words = "the device plugin on this node has been silent for more than 90 s"
    assert answer["FailedAndUnresolvableNodes"] == {"a": words}
