"""The watched cluster: what it keeps is what a recount of all objects gives, after any sequence of events."""

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kube.listwatch import Change, Snapshot
from protocol.demand import read_demand
from protocol.devices import encode_register
from protocol.names import NODE_LOCK, NODE_REGISTER, NODE_SURVIVORS
from protocol.placement import Placement, place
from protocol.pods import PodRef
from protocol.policy import Policy
from protocol.survivors import Part, Survivor, encode_survivors
from protocol.usage import node_usage
from scheduler.quota import read_quota
from scheduler.state import ClusterState, devices_of
from tests.protocol.makers import MI300X, container, pod, pod_spec

SMALL = replace(MI300X, id="GPU-1", memory_mib=1024)
NODES = ("node-a", "node-b")
NAMES = st.sampled_from(["p", "q", "r", "s"])


def node(name: str, register: str | None, **annotations: str) -> dict[str, Any]:
    notes = {**annotations, **({} if register is None else {NODE_REGISTER: register})}
    return {"metadata": {"name": name, "annotations": notes}, "status": {"images": ["large"]}}


def allocated(name: str, node_name: str, phase: str) -> dict[str, Any]:
    spec = pod_spec(container(gpu=1, gpucores=10, gpumem=64))
    placement = place(read_demand(spec), node_usage([MI300X], ())[0].values(), Policy.BINPACK)
    assert isinstance(placement, Placement)
    return pod(name, spec, placement.annotations(), node=node_name, phase=phase)


def quota(name: str, hard: str | None) -> dict[str, Any]:
    limits = {"pods": "3", **({} if hard is None else {"limits.amd.com/gpumem": hard})}
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"hard": limits}}


class WatchedCluster(RuleBasedStateMachine):
    """Events as a watch brings them, snapshots after lost watches included."""

    @initialize()
    def begin(self) -> None:
        self.state = ClusterState()
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.quotas: dict[str, dict[str, Any]] = {}
        self.state.see_nodes(Snapshot(()))
        self.state.see_pods(Snapshot(()))

    @rule(
        name=st.sampled_from(NODES),
        register=st.sampled_from([None, "x", encode_register([MI300X]), encode_register([SMALL])]),
        locked=st.booleans(),
    )
    def node_changes(self, name: str, register: str | None, *, locked: bool) -> None:
        kind = "MODIFIED" if name in self.nodes else "ADDED"
        self.nodes[name] = node(name, register, **({NODE_LOCK: "held"} if locked else {}))
        self.state.see_nodes(Change(kind, self.nodes[name]))  # type: ignore[arg-type]

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        gone = self.nodes.pop(name, None)
        if gone is not None:
            self.state.see_nodes(Change("DELETED", gone))

    @rule(name=NAMES, on=st.sampled_from([*NODES, ""]), phase=st.sampled_from(["Pending", "Running", "Failed"]))
    def pod_changes(self, name: str, on: str, phase: str) -> None:
        kind = "MODIFIED" if name in self.pods else "ADDED"
        self.pods[name] = allocated(name, on, phase)
        self.state.see_pods(Change(kind, self.pods[name]))  # type: ignore[arg-type]

    @rule(name=NAMES)
    def pod_goes(self, name: str) -> None:
        gone = self.pods.pop(name, None)
        if gone is not None:
            self.state.see_pods(Change("DELETED", gone))

    @rule(lost=st.sets(NAMES))
    def watch_is_lost(self, lost: set[str]) -> None:
        for name in lost:
            self.pods.pop(name, None)  # their DELETED events never come
        self.state.see_pods(Snapshot(tuple(self.pods.values())))
        self.state.see_nodes(Snapshot(tuple(self.nodes.values())))

    @rule(name=st.sampled_from(["gpu", "other"]), hard=st.sampled_from([None, "0", "64"]))
    def quota_changes(self, name: str, hard: str | None) -> None:
        kind = "MODIFIED" if name in self.quotas else "ADDED"
        self.quotas[name] = quota(name, hard)
        self.state.see_quotas(Change(kind, self.quotas[name]))  # type: ignore[arg-type]

    @rule(name=st.sampled_from(["gpu", "other"]), lost=st.booleans())
    def quota_goes(self, name: str, lost: bool) -> None:
        gone = self.quotas.pop(name, None)
        if lost:
            self.state.see_quotas(Snapshot(tuple(self.quotas.values())))
        elif gone is not None:
            self.state.see_quotas(Change("DELETED", gone))

    @invariant()
    def a_namespace_has_its_pods_and_quotas(self) -> None:
        there = {item["metadata"]["uid"]: item for item in self.pods.values() if item["spec"]["nodeName"]}
        assert self.state.pods_of("default") == there
        assert not self.state.pods_of("other")
        limits = {name: found for name, item in self.quotas.items() if (found := read_quota(item))}
        assert {found.name: found for found in self.state.quotas("default")} == limits

    @invariant()
    def locks_are_those_of_the_nodes(self) -> None:
        locked = [name for name, item in self.nodes.items() if NODE_LOCK in item["metadata"]["annotations"]]
        assert self.state.locked_nodes() == sorted(locked)

    @invariant()
    def usage_is_a_recount(self) -> None:
        for name in NODES:
            here = [item for item in self.pods.values() if item["spec"]["nodeName"] == name]
            assert self.state.usages(name) == node_usage(devices_of(self.nodes.get(name)), here)[0]


TestWatchedCluster = WatchedCluster.TestCase
TestWatchedCluster.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_it_is_synced_when_all_kinds_were_read() -> None:
    state = ClusterState()
    for see in (state.see_pods, state.see_nodes, state.see_quotas):
        assert not state.is_synced
        see(Snapshot(()))
    assert state.is_synced


def test_a_node_is_kept_without_what_nobody_reads() -> None:
    state = ClusterState()
    state.see_nodes(Change("ADDED", node("node-a", None, **{NODE_LOCK: "held"})))
    assert state.node("node-a") == {"metadata": {"name": "node-a", "annotations": {NODE_LOCK: "held"}}}


def test_a_pod_is_found_by_its_name_on_its_node() -> None:
    state = ClusterState()
    state.see_pods(Change("ADDED", allocated("p", "node-a", "Running")))
    assert state.find_pod("default", "p", "node-a") is not None
    assert state.find_pod("default", "p", "node-b") is None
    assert state.find_pod("other", "p", "node-a") is None


async def test_waiting_ends_with_the_change_that_was_waited_for() -> None:
    state = ClusterState()
    waiting = asyncio.create_task(state.wait_until(lambda: True))
    async with asyncio.timeout(5):
        await waiting


def test_what_processes_of_ended_pods_hold_is_taken_until_the_node_says_otherwise() -> None:
    state = ClusterState()
    survivor = Survivor(PodRef("ml", "train", "uid-gone"), {MI300X.id: Part(1024, tuple(range(76)))})
    held = node("node-a", encode_register([MI300X]), **{NODE_SURVIVORS: encode_survivors([survivor])})
    state.see_nodes(Snapshot((held,)))
    usage = state.usages("node-a")[MI300X.id]
    assert (usage.memory_mib, usage.cus) == (1024, set(range(76)))
    state.see_nodes(Change("MODIFIED", node("node-a", encode_register([MI300X]))))
    assert not state.usages("node-a")[MI300X.id].cus


def test_survivors_that_cannot_be_read_close_the_node() -> None:
    state = ClusterState()
    state.see_nodes(Snapshot((node("node-a", encode_register([MI300X]), **{NODE_SURVIVORS: "[{}]"}),)))
    assert state.usages("node-a")[MI300X.id].blocked
