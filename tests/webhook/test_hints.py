"""Warnings that only the cluster can know, fed by a watch of its nodes."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kube.client import KubeClient, UnreachableError
from protocol.devices import DeviceInfo, encode_register
from tests.webhook.https import PATIENCE, TlsContexts, running
from tests.webhook.makers import Object, gpu_container, plain_container, pod
from webhook.hints import ClusterHints, watch_nodes
from webhook.pod import Pod
from webhook.settings import WebhookSettings

LIMITS = "spec.containers[0].resources.limits"
NONE = "no node has registered an AMD GPU: the pod waits until one does"


def _node(name: str, *memories_mib: int) -> Object:
    gpus = [DeviceInfo(f"GPU-{n}", n, 10, mib, 304, "MI300X") for n, mib in enumerate(memories_mib)]
    return {"metadata": {"name": name, "annotations": {"hami.io/node-amd-register": encode_register(gpus)}}}


def _hints(*nodes: Object) -> ClusterHints:
    hints = ClusterHints()
    hints.replace(nodes)
    return hints


def _warnings(hints: ClusterHints, **limits: object) -> list[str]:
    return hints.warnings(Pod.of(pod(gpu_container(**limits))))  # type: ignore[arg-type]


def test_without_data_there_is_no_hint() -> None:
    assert _warnings(ClusterHints(), gpumem="999999") == []
    hints = ClusterHints()
    hints.put(_node("a", 5))
    hints.drop(_node("a", 5))
    assert _warnings(hints, gpumem="999999") == []


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [_node("a")],
        [{"metadata": {"name": "a"}}],
        [{"metadata": {"name": "a", "annotations": {"hami.io/node-amd-register": "Deleted_2026-01-01 00:00:00"}}}],
    ],
)
def test_no_node_has_registered(nodes: list[Object]) -> None:
    assert _warnings(_hints(*nodes), gpu="1") == [NONE]


def test_no_gpu_has_so_much_memory() -> None:
    hints = _hints(_node("a", 196608), _node("b", 65536, 65536), _node("c"))
    assert _warnings(hints, gpumem="196608") == []
    assert _warnings(hints, gpumem="200k") == [
        f"{LIMITS}[amd.com/gpumem]: no node has a GPU of that much memory: the largest has 196608 MiB"
    ]


def test_no_node_has_so_many_gpus() -> None:
    hints = _hints(_node("a", 196608), _node("b", 65536, 65536))
    assert _warnings(hints, gpu="2") == []
    assert _warnings(hints, gpu="3") == [f"{LIMITS}[amd.com/gpu]: no node has so many GPUs: the most is 2"]


def test_each_container_is_named() -> None:
    manifest = pod(plain_container(), gpu_container(gpumem="10"), init=[gpu_container(gpu="9", gpumem="10")])
    fields = [text.partition(": ")[0] for text in _hints(_node("a", 5)).warnings(Pod.of(manifest))]
    assert fields == [
        "spec.initContainers[0].resources.limits[amd.com/gpu]",
        "spec.initContainers[0].resources.limits[amd.com/gpumem]",
        "spec.containers[1].resources.limits[amd.com/gpumem]",
    ]


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/mutate/privileged", "/validate/privileged"])
async def test_hints_are_answered(tls: TlsContexts, path: str) -> None:
    async with running(tls, WebhookSettings(), _hints()) as server:
        response = await server.ask(path, pod(gpu_container(gpu="1")))
        assert response["allowed"] is True
        assert response["warnings"] == [NONE]
        assert "warnings" not in await server.ask(path, pod(plain_container()))


async def test_pods_of_another_scheduler_get_no_hints(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings(), _hints()) as server:
        response = await server.ask("/mutate", pod(gpu_container(gpu="1"), schedulerName="volcano"))
        assert NONE not in response["warnings"]


class Nodes(KubeClient):
    """An API server's nodes: each list and each change comes when the test gives it, and is waited for."""

    def __init__(self) -> None:
        super().__init__(None, timeout=1)
        self._lists: asyncio.Queue[list[Object]] = asyncio.Queue()
        self._changes: asyncio.Queue[Object | Exception] = asyncio.Queue()

    async def give_list(self, *nodes: Object) -> None:
        self._lists.put_nowait(list(nodes))
        await asyncio.wait_for(self._lists.join(), PATIENCE)

    async def give_change(self, kind: str, node: Object) -> None:
        self._changes.put_nowait({"type": kind, "object": node})
        await asyncio.wait_for(self._changes.join(), PATIENCE)

    def break_watch(self) -> None:
        self._changes.put_nowait(UnreachableError("gone"))

    async def list(self, path: str, *, field_selector: str = "") -> tuple[list[Object], str]:
        assert (path, field_selector) == ("/api/v1/nodes", "")
        return await self._lists.get(), "1"

    async def watch(self, path: str, *, resource_version: str, field_selector: str = "") -> AsyncGenerator[Any, None]:
        assert (path, resource_version, field_selector) == ("/api/v1/nodes", "1", "")
        self._lists.task_done()  # whoever watches has taken in the list
        while True:
            change = await self._changes.get()
            if isinstance(change, Exception):
                self._changes.task_done()
                raise change
            yield change
            self._changes.task_done()


async def test_nodes_are_watched() -> None:
    nodes, hints = Nodes(), ClusterHints()
    watching = asyncio.create_task(watch_nodes(nodes, hints))

    def found() -> list[str]:
        return _warnings(hints, gpu="2", gpumem="100")

    more = f"{LIMITS}[amd.com/gpumem]: no node has a GPU of that much memory: the largest has 60 MiB"
    two = f"{LIMITS}[amd.com/gpu]: no node has so many GPUs: the most is 1"
    try:
        assert not hints.known
        await nodes.give_list(_node("a", 60))
        assert found() == [two, more]
        await nodes.give_change("ADDED", _node("b", 50, 50))
        assert found() == [more]
        await nodes.give_change("MODIFIED", _node("b", 100, 100))
        assert found() == []
        await nodes.give_change("DELETED", _node("b", 100, 100))
        assert found() == [two, more]
        # A watch that breaks costs nothing that is known, and begins again with what there is then.
        nodes.break_watch()
        assert found() == [two, more]
        await nodes.give_list()
        assert found() == [NONE]
        assert hints.known
    finally:
        watching.cancel()
        await asyncio.wait({watching})
