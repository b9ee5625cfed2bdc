"""A Binding whose outcome is unknown, and one that arrives when nobody waits for it any more."""

import asyncio
import random
from typing import Any, cast

import pytest

from kube import paths
from kube.client import Json, KubeClient, KubeError, UnreachableError
from protocol.devices import encode_register
from protocol.names import CU_ALLOCATED, NODE_LOCK, NODE_REGISTER
from protocol.pods import annotations, node_name
from scheduler.binder import Binder, BindError
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import BindArgs
from tests.protocol.makers import MI300X, container, pod_spec
from tests.scheduler.standin_api import StandInApi, now
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
