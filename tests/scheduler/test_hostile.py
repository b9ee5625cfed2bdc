"""Whatever stands in the annotations of a node or a pod: it stops that node at most, and never the extender."""

import asyncio
import json
import time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.client import KubeClient
from kube.listwatch import Snapshot
from protocol.devices import encode_register
from protocol.names import (
    ASSIGNED_NODE,
    BIND_PHASE,
    BIND_TIME,
    CU_ALLOCATED,
    DEVICES_ALLOCATED,
    NODE_LOCK,
    NODE_REGISTER,
    NODE_SURVIVORS,
)
from protocol.selection import GPU_POLICY, LISTS, NODE_POLICY
from scheduler.app import Extender
from scheduler.binder import Binder
from scheduler.events import Events
from scheduler.leader import Alone
from scheduler.metrics import Metrics
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.watchman import Watchman
from scheduler.wire import FilterArgs
from tests.protocol.makers import MI300X, container, pod, pod_spec

NUMBERS = st.sampled_from([0, 1, -1, 7, 1024, 2**31 - 1, 2**31, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf")])
WORDS = st.sampled_from(
    [
        "",
        MI300X.id,
        "0-75",
        "0-1023",
        "5-2",
        "\ud800",
        "\u0000",
        "\u0661",
        "a" * 300,
        ",",
        ";",
        ":",
        "-1",
        "NaN",
        "allocating",
    ]
)
LEAVES = st.one_of(NUMBERS, WORDS, st.none(), st.booleans())
FIELDS = st.sampled_from(
    ["id", "index", "count", "devmem", "devcore", "type", "numa", "health", "custominfo", "numXcc", "wgp",
     "namespace", "name", "uid", "gpus", "mem", "cus"]
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(FIELDS, inner, max_size=8)),
    max_leaves=12,
)
GPU = st.fixed_dictionaries({"id": st.just("GPU-x")}, optional=dict.fromkeys(("devmem", "devcore", "type"), VALUES))
PART = st.fixed_dictionaries({"mem": NUMBERS, "cus": WORDS})
SURVIVOR = st.fixed_dictionaries(
    {
        "namespace": st.just("a"),
        "name": st.just("b"),
        "uid": st.just("c"),
        "gpus": st.fixed_dictionaries({MI300X.id: PART}),
    }
)
TEXTS = st.one_of(
    WORDS,
    st.text(max_size=20),
    st.builds(json.dumps, VALUES),
    st.builds(json.dumps, st.lists(GPU, max_size=3)),
    st.builds(json.dumps, st.lists(SURVIVOR, max_size=2)),
)
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "2026-01-01"])
LOCKS = st.one_of(TEXTS, st.builds("{},default,tenant".format, TIMES))
SHARES = st.one_of(TEXTS, st.builds("{},x,{},{}:;".format, WORDS, NUMBERS, NUMBERS))


async def look_at(node_notes: dict[str, str], pod_notes: dict[str, str]) -> dict[str, Any]:
    """Have every part of the extender look at a node and a pod of these annotations; return the answer of a filter."""
    state, metrics, client = ClusterState(), Metrics(), cast(KubeClient, None)
    good = {NODE_REGISTER: encode_register([MI300X])}
    nodes = [("good", good), ("node-a", {**good, **node_notes})]
    state.see_nodes(Snapshot(tuple({"metadata": {"name": name, "annotations": notes}} for name, notes in nodes)))
    spec = pod_spec(container(gpu=1, gpumem=64, gpucores=25))
    tenant = pod("tenant", spec, pod_notes)
    tenant["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    state.see_pods(Snapshot((tenant,)))
    state.see_quotas(Snapshot(()))
    locks = NodeLocks(client, state)
    binder = Binder(client, state, locks, policies=Policies(), wait_seconds=1)
    extender = Extender.of(state, binder, Policies(), time.monotonic, metrics=metrics)
    await Watchman(state, Events(client, "pod-a"), metrics, Alone()).look()
    asked = pod("asked", spec, pod_notes, node="")
    answer = await extender.filter(FilterArgs(asked, ("good", "node-a"), None))
    extender.prioritize(FilterArgs(asked, ("good", "node-a"), None))
    for name in state.locked_nodes():
        locks.seems_stale(name)
    metrics.render().decode()
    json.dumps(answer).encode()
    return answer


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={NODE_REGISTER: TEXTS, NODE_SURVIVORS: TEXTS, NODE_LOCK: LOCKS}),
    st.fixed_dictionaries({}, optional={DEVICES_ALLOCATED: SHARES, CU_ALLOCATED: TEXTS, BIND_PHASE: TEXTS}),
)
def test_no_annotation_stops_the_extender(node_notes: dict[str, str], pod_notes: dict[str, str]) -> None:
    answer = asyncio.run(look_at(node_notes, pod_notes))
    assert "good" in answer["NodeNames"]


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*LISTS, GPU_POLICY, NODE_POLICY, ASSIGNED_NODE, BIND_TIME, BIND_PHASE]), TEXTS, max_size=6
    )
)
def test_no_wish_of_a_pod_stops_the_extender(notes: dict[str, str]) -> None:
    answer = asyncio.run(look_at({}, notes))
    assert answer["Error"] == ""


@pytest.mark.parametrize("memory", [2**31, 10**400])
def test_more_memory_than_can_be_is_no_survivors(memory: int) -> None:
    part = {MI300X.id: {"mem": memory, "cus": "0-7"}}
    text = json.dumps([{"namespace": "a", "name": "b", "uid": "c", "gpus": part}])
    answer = asyncio.run(look_at({NODE_SURVIVORS: text}, {}))
    assert answer["NodeNames"] == ["good"], "nobody knows what is held there"
