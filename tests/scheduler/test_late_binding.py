"""A Binding whose outcome is unknown, and one that arrives when nobody waits for it any more."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kube import paths
from kube.client import Json, KubeClient, KubeError, UnreachableError
from protocol.devices import encode_register
from protocol.names import ASSIGNED_NODE, BIND_PHASE, BIND_TIME, CU_ALLOCATED, NODE_LOCK, NODE_REGISTER
from protocol.pods import annotations, node_name, read_holding
from scheduler.binder import Binder, BindError
from scheduler.earlier import bound_soon
from scheduler.leader import Leadership
from scheduler.nodelock import UNBOUND_GRACE, NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import BindArgs
from tests.protocol.makers import MI300X, container, pod_spec
from tests.scheduler.standin_api import EPOCH, StandInApi, now
from tests.scheduler.virtual_time import run

POD, NODE = paths.pod("default", "p"), paths.node("node-a")
ARGS = BindArgs("default", "p", "u", "node-a")
EARLIER = '{"GPU-8e1bb56457addd1b":"200-275"}'


class Api(StandInApi):
    """Takes its time; `failing` is what it says to a Binding, `arrives` lets one to that node in before a record."""

    def __init__(self, *, failing: KubeError | None = None, arrives: str = "") -> None:
        super().__init__(random.Random(3), lambda _: None)  # noqa: S311 - to be repeated
        self.failing = failing
        self.arrives = arrives
        self.put(NODE, {"metadata": {"name": "node-a", "annotations": {NODE_REGISTER: encode_register([MI300X])}}})
        metadata = {"namespace": "default", "name": "p", "uid": "u", "creationTimestamp": now().isoformat()}
        self.put(POD, {"metadata": metadata, "spec": pod_spec(container(gpu=1, gpucores=25))})

    async def create(self, path: str, body: Json) -> Json:
        if self.failing is not None:
            raise self.failing
        return await super().create(path, body)

    async def patch(self, path: str, body: Json) -> Json:
        if self.arrives and path == POD:
            node, self.arrives = self.arrives, ""
            pod = self.objects[POD]
            metadata = {**pod["metadata"], "annotations": {CU_ALLOCATED: EARLIER}}
            self.put(POD, {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}})
        return await super().patch(path, body)

    async def _gap(self) -> None:
        await asyncio.sleep(0.01)


def bind(**wrong: Any) -> tuple[Api, str]:
    async def scenario() -> tuple[Api, str]:
        api = Api(**wrong)
        client = cast(KubeClient, api)
        state = ClusterState()
        binder = Binder(client, state, NodeLocks(client, state, now), policies=Policies(), wait_seconds=20)
        try:
            await binder.bind(ARGS, lambda _: None)
        except BindError as error:
            return api, str(error)
        return api, ""

    return run(scenario())


@pytest.mark.parametrize(
    "error", [UnreachableError("no answer"), KubeError("etcdserver: request timed out", status=500)]
)
def test_what_may_yet_be_bound_keeps_what_it_was_given_and_its_lock(error: KubeError) -> None:
    api, words = bind(failing=error)
    assert words == str(error)
    assert CU_ALLOCATED in annotations(api.objects[POD])
    assert annotations(api.objects[NODE])[NODE_LOCK].endswith(",default,p")


def test_a_binding_that_was_refused_leaves_no_trace() -> None:
    api, words = bind(failing=KubeError("forbidden", status=403))
    assert words == "forbidden"
    assert annotations(api.objects[POD]) == {}
    assert NODE_LOCK not in annotations(api.objects[NODE])


def test_a_pod_that_an_earlier_bind_bound_meanwhile_keeps_what_that_one_chose() -> None:
    api, words = bind(arrives="node-a")
    assert words == ""
    assert node_name(api.objects[POD]) == "node-a"
    assert annotations(api.objects[POD])[CU_ALLOCATED] == EARLIER


def test_a_pod_that_was_bound_elsewhere_meanwhile_keeps_what_it_has_there() -> None:
    api, words = bind(arrives="node-b")
    assert words == "pod default/p is bound to node node-b already"
    assert annotations(api.objects[POD])[CU_ALLOCATED] == EARLIER
    assert NODE_LOCK not in annotations(api.objects[NODE])


class Twice(Api):
    """A pod that is tried twice, on an API server before 1.23: a Binding works whatever has become of the pod."""

    def __init__(self) -> None:
        super().__init__()
        self._before_1_23 = True
        self.put(POD, {**self.objects[POD], "spec": pod_spec(container(gpu=1, gpucores=25, gpumem=1024))})
        register = {NODE_REGISTER: encode_register([MI300X])}
        self.put(paths.node("node-b"), {"metadata": {"name": "node-b", "annotations": register}})

    def binder(self, *, active: bool = True) -> Binder:
        client, state = cast(KubeClient, self), ClusterState()
        leadership = cast("Leadership", SimpleNamespace(held=active, holder="another"))
        locks = NodeLocks(client, state, now)
        return Binder(client, state, locks, policies=Policies(), wait_seconds=20, leadership=leadership)

    async def first(self) -> None:
        """Begin a bind to node-a whose Binding does not arrive as yet."""
        self.failing = UnreachableError("no answer")
        with pytest.raises(BindError):
            await self.binder().bind(ARGS, lambda _: None)
        self.failing = None

    async def late(self) -> Json:
        """Let it arrive, and return the pod."""
        body = {"metadata": {"uid": "u"}, "target": {"name": "node-a"}}
        await self.create(f"{POD}/binding", body)
        return self.objects[POD]


def test_a_second_bind_that_fails_leaves_what_the_first_one_may_yet_need() -> None:
    async def scenario() -> tuple[Twice, Json, str]:
        api = Twice()
        await api.first()
        lock = annotations(api.objects[NODE])[NODE_LOCK]
        with pytest.raises(BindError, match="not active"):
            await api.binder(active=False).bind(ARGS, lambda _: None)
        return api, await api.late(), lock

    api, pod, lock = run(scenario())
    assert read_holding(pod) is not None
    assert annotations(api.objects[NODE])[NODE_LOCK] == lock, "Allocate finds its pod, and the lock is as old as it was"


def test_a_pod_that_may_yet_be_bound_goes_to_no_other_node() -> None:
    async def scenario() -> tuple[Twice, Json]:
        api = Twice()
        await api.first()
        with pytest.raises(BindError, match=r"default/p may yet be bound to node node-a, .* 30 s after that began"):
            await api.binder().bind(replace(ARGS, node="node-b"), lambda _: None)
        return api, await api.late()

    api, pod = run(scenario())
    assert annotations(pod)[ASSIGNED_NODE] == node_name(pod) == "node-a"
    assert NODE_LOCK not in annotations(api.objects[paths.node("node-b")])


def test_after_a_while_it_goes_elsewhere() -> None:
    async def scenario() -> Twice:
        api = Twice()
        await api.first()
        await asyncio.sleep(UNBOUND_GRACE.total_seconds())
        await api.binder().bind(replace(ARGS, node="node-b"), lambda _: None)
        return api

    pod = run(scenario()).objects[POD]
    assert annotations(pod)[ASSIGNED_NODE] == node_name(pod) == "node-b"


def test_the_choice_of_a_second_bind_holds_before_it_is_proved() -> None:
    """The first one's Binding may make it count at any moment: it must not be made from an old view."""

    async def scenario() -> list[str]:
        api = Twice()
        recorded: list[str] = []
        await api.first()
        neighbour = {"namespace": "default", "name": "q", "uid": "q", "annotations": annotations(api.objects[POD])}
        spec = {**api.objects[POD]["spec"], "nodeName": "node-a"}
        api.put(paths.pod("default", "q"), {"metadata": neighbour, "spec": spec})
        patch = api.patch

        async def remembering(path: str, body: Json) -> Json:
            notes = body["metadata"]["annotations"]
            if CU_ALLOCATED in notes:
                recorded.append(notes[CU_ALLOCATED])
            return await patch(path, body)

        api.patch = remembering  # type: ignore[method-assign]
        await api.binder().bind(ARGS, lambda _: None)
        return recorded

    assert run(scenario()) == [f'{{"{MI300X.id}":"76-151"}}']


@pytest.mark.parametrize(
    ("changed", "node"),
    [
        ({}, "node-a"),
        ({BIND_TIME: "0"}, ""),
        ({BIND_TIME: str(int(EPOCH.timestamp()) + 3600)}, ""),
        ({BIND_TIME: "9" * 5000}, ""),
        ({BIND_TIME: "nan"}, ""),
        ({BIND_PHASE: "success"}, ""),
    ],
)
def test_only_a_bind_of_just_now_keeps_a_pod_to_its_node(changed: dict[str, str], node: str) -> None:
    notes = {ASSIGNED_NODE: "node-a", BIND_PHASE: "allocating", BIND_TIME: str(int(EPOCH.timestamp()))}
    assert bound_soon({"metadata": {"annotations": {**notes, **changed}}}, EPOCH) == node


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("node-a", "pod default/first, bound to it at 2026-01-01T00:00:00Z, still waits for its GPUs; tried again"),
        ("", "pod default/first is being bound to it since 2026-01-01T00:00:00Z; tried again"),
    ],
)
def test_who_stands_in_the_way_is_said_in_words(bound: str, words: str) -> None:
    async def scenario() -> str:
        api, state = Api(), ClusterState()
        client = cast(KubeClient, api)
        first = {"namespace": "default", "name": "first", "uid": "f", "creationTimestamp": EPOCH.isoformat()}
        spec = {**api.objects[POD]["spec"], "nodeName": bound}
        api.put(paths.pod("default", "first"), {"metadata": first, "spec": spec})
        node = api.objects[NODE]
        lock = {**node["metadata"]["annotations"], NODE_LOCK: "2026-01-01T00:00:00Z,default,first"}
        api.put(NODE, {**node, "metadata": {**node["metadata"], "annotations": lock}})
        watching = asyncio.create_task(state.run(client))
        binder = Binder(client, state, NodeLocks(client, state, now), policies=Policies(), wait_seconds=5)
        with pytest.raises(BindError) as refused:
            await binder.bind(ARGS, lambda _: None)
        watching.cancel()
        return str(refused.value)

    message = run(scenario())
    assert message.startswith("node node-a was not free within 5 s: ")
    assert words in message
    assert ("`kubectl -n default describe pod first`" in message) is bool(bound)
