"""What a bind proves its choice with: the watch, once it shows what the bind itself wrote, else a list."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import cast

from kube import paths
from kube.client import Json, KubeClient
from kube.listwatch import Change, Snapshot
from protocol.allocation import decode_cus
from protocol.devices import encode_register
from protocol.names import BIND_PHASE, CU_ALLOCATED, NODE_LOCK, NODE_REGISTER, PHASE_SUCCESS
from protocol.pods import annotations, node_name
from scheduler.binder import Binder
from scheduler.nodelock import NodeLocks
from scheduler.request import Policies
from scheduler.state import ClusterState
from scheduler.wire import BindArgs
from tests.protocol.makers import MI300X, container, pod_spec
from tests.scheduler.standin_api import StandInApi, now
from tests.scheduler.virtual_time import run

NODE = paths.node("node-a")
SPEC = pod_spec(container(gpu=1, gpumem=64, gpucores=25))


class Api(StandInApi):
    """Counts the lists of pods; its watches are `lag` seconds late."""

    def __init__(self, *pods: str, lag: float = 0.1) -> None:
        super().__init__(random.Random(5), lambda _: None)  # noqa: S311 - to be repeated
        self.lag = lag
        self.lists = 0
        self.put(NODE, {"metadata": {"name": "node-a", "annotations": {NODE_REGISTER: encode_register([MI300X])}}})
        for name in pods:
            metadata = {"namespace": "default", "name": name, "uid": name, "creationTimestamp": now().isoformat()}
            self.put(
                paths.pod("default", name),
                {"metadata": metadata, "spec": SPEC},
            )

    async def list(self, path: str, *, field_selector: str = "") -> tuple[list[Json], str]:
        self.lists += path == paths.PODS and bool(field_selector)
        return await super().list(path, field_selector=field_selector)

    async def watch(self, path: str, *, resource_version: str, field_selector: str = "") -> AsyncGenerator[Json, None]:
        async for event in super().watch(path, resource_version=resource_version, field_selector=field_selector):
            yield event

    async def _lag(self) -> None:
        await asyncio.sleep(self.lag)

    async def _gap(self) -> None:
        await asyncio.sleep(0.01)

    def cus(self, name: str) -> set[int]:
        found = self.objects[paths.pod("default", name)]
        assert node_name(found) == "node-a"
        return set(decode_cus(annotations(found)[CU_ALLOCATED])[MI300X.id])

    async def serve(self, name: str) -> None:
        """Do what the device plugin does after Allocate."""
        await self.patch(paths.pod("default", name), {"metadata": {"annotations": {BIND_PHASE: PHASE_SUCCESS}}})
        await self.patch(NODE, {"metadata": {"annotations": {NODE_LOCK: None}}})


async def bind_one_after_the_other(api: Api, *pods: str) -> None:
    client, state = cast("KubeClient", api), ClusterState()
    binder = Binder(client, state, NodeLocks(client, state, now), policies=Policies(), wait_seconds=20)
    watching = asyncio.create_task(state.run(client))
    await state.wait_until(lambda: state.is_synced)
    for name in pods:
        await binder.bind(BindArgs("default", name, name, "node-a"), lambda _: None)
        await api.serve(name)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


def test_b9_no_list_of_all_pods_is_asked_for_while_the_watch_is_well() -> None:
    async def scenario() -> Api:
        api = Api("p", "q", "r")
        await bind_one_after_the_other(api, "p", "q", "r")
        return api

    api = run(scenario())
    assert api.lists == 0
    assert len(api.cus("p") | api.cus("q") | api.cus("r")) == 3 * 76


def test_what_was_chosen_from_an_old_view_is_chosen_again() -> None:
    """The watch lags by a second, so the first choice for `q` is what `p` has."""

    async def scenario() -> Api:
        api = Api("p", "q", lag=1.0)
        await bind_one_after_the_other(api, "p", "q")
        return api

    api = run(scenario())
    assert api.lists == 0
    assert not api.cus("p") & api.cus("q")
    told = [
        item
        for _, kind, path, item in api.log
        if path == paths.pod("default", "q") and CU_ALLOCATED in annotations(item)
    ]
    first, last = ({*decode_cus(annotations(item)[CU_ALLOCATED])[MI300X.id]} for item in (told[0], told[-1]))
    assert first == api.cus("p")
    assert last == api.cus("q")


def test_a_watch_that_is_too_late_is_not_waited_for() -> None:
    async def scenario() -> Api:
        api = Api("p", "q", lag=60.0)
        await bind_one_after_the_other(api, "p", "q")
        return api

    api = run(scenario())
    assert api.lists > 0
    assert not api.cus("p") & api.cus("q")


def test_a_record_that_changed_nothing_proves_nothing() -> None:
    """An earlier bind recorded just what this one records: the record is older than the lock."""

    class Unchanged(Api):
        async def patch(self, path: str, body: Json) -> Json:
            if path == paths.pod("default", "p") and CU_ALLOCATED in body["metadata"].get("annotations", {}):
                return self.objects[path]
            return await super().patch(path, body)

    async def scenario() -> Api:
        api = Unchanged("p")
        await bind_one_after_the_other(api, "p")
        return api

    assert run(scenario()).lists == 1


def test_how_far_the_watch_has_come() -> None:
    def pod(version: str) -> Json:
        return {"metadata": {"namespace": "default", "name": "p", "uid": "p", "resourceVersion": version}}

    state = ClusterState()
    assert not state.shows_pods_since(pod("5")), "nothing was read yet"
    state.see_pods(Snapshot((), "5"))
    assert state.shows_pods_since(pod("5"))
    assert not state.shows_pods_since(pod("6"))
    state.see_pods(Change("MODIFIED", pod("10")))
    assert state.shows_pods_since(pod("9")), "versions are numbers, not texts"
    state.see_pods(Change("DELETED", pod("7")))
    assert state.shows_pods_since(pod("10")), "old servers tell of a deletion with the version before it"
    state.see_pods(Snapshot((), "8"))
    assert not state.shows_pods_since(pod("10")), "another API server that is behind"
    for odd in ("", "x", "-1", "٣"):
        assert not state.shows_pods_since(pod(odd)), odd
