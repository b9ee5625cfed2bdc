"""Events: each trouble once, never a flood, whatever the text holds."""

import asyncio
from typing import Any, cast

import pytest

from kube.client import KubeClient, KubeError
from protocol.pods import PodRef
from scheduler import events as module
from scheduler.events import About, Events

POD = About.pod(PodRef("space", "p", "uid-p"))


class Taker:
    """Stands in for the API server: takes what is created, or refuses it."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.refusing = False
        self.asked = asyncio.Semaphore(0)

    async def create(self, path: str, body: dict[str, Any]) -> None:
        self.asked.release()
        if self.refusing:
            raise KubeError("no", status=403)
        self.taken.append((path, body))


class World:
    def __init__(self) -> None:
        self.api = Taker()
        self.now = 0.0
        self.written: list[str] = []
        self.dropped = 0
        client = cast(KubeClient, self.api)
        self.events = Events(
            client, "pod-a", written=self.written.append, dropped=self._drop, monotonic=lambda: self.now
        )

    def _drop(self) -> None:
        self.dropped += 1

    async def write(self, count: int) -> None:
        """Run until so many were asked for."""
        running = asyncio.create_task(self.events.run())
        async with asyncio.timeout(5):
            for _ in range(count):
                await self.api.asked.acquire()
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "_LEAST_PAUSE", 0.0)
    return World()


async def test_an_event_says_what_of_whom_and_by_whom(world: World) -> None:
    world.events.note(POD, "GpuLost", "Accounting", "its GPU is gone")
    await world.write(1)
    ((path, body),) = world.api.taken
    assert path == "/apis/events.k8s.io/v1/namespaces/space/events"
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "space", "uid": "uid-p"}
    assert (body["reason"], body["action"], body["note"]) == ("GpuLost", "Accounting", "its GPU is gone")
    assert (body["reportingController"], body["reportingInstance"]) == ("amd-vgpu.io/scheduler", "pod-a")
    assert body["metadata"]["name"].startswith("p.")
    assert world.written == ["GpuLost"]


async def test_an_event_of_a_node_is_in_default_and_bears_its_name_as_the_kubelets_do(world: World) -> None:
    world.events.note(About.node("node-a"), "StaleLockReleased", "Unlocking", "done", "Normal")
    await world.write(1)
    ((path, body),) = world.api.taken
    assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"}
    assert body["type"] == "Normal"


async def test_a_broken_pod_does_not_flood(world: World) -> None:
    for number in range(1000):
        world.events.note(POD, "BindFailed", "Binding", f"failure {number}")
    world.events.note(POD, "GpuLost", "Accounting", "another reason is another Event")
    await world.write(2)
    assert [body["note"] for _, body in world.api.taken] == ["failure 0", "another reason is another Event"]


async def test_what_lasts_is_told_again_after_a_while(world: World) -> None:
    for now, count in ((0, 1), (module._AGAIN_SECONDS - 1, 1), (module._AGAIN_SECONDS, 2)):
        world.now = now
        world.events.note(POD, "GpuLost", "Accounting", "gone")
        await world.write(count - len(world.api.taken))
        assert len(world.api.taken) == count


async def test_too_many_are_dropped_and_counted_and_told_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITING", 2)
    world = World()
    for number in range(5):
        world.events.note(About.node(f"n{number}"), "GpuLost", "Accounting", "gone")
    assert world.dropped == 3
    await world.write(2)
    world.events.note(About.node("n4"), "GpuLost", "Accounting", "gone")
    await world.write(1)
    assert [body["regarding"]["name"] for _, body in world.api.taken] == ["n0", "n1", "n4"]


async def test_a_refusal_is_counted_and_the_next_is_written(world: World) -> None:
    world.api.refusing = True
    world.events.note(POD, "GpuLost", "Accounting", "gone")
    await world.write(1)
    world.api.refusing = False
    world.events.note(POD, "GpuChanged", "Accounting", "changed")
    await world.write(1)
    assert (world.dropped, world.written) == (1, ["GpuChanged"])


@pytest.mark.parametrize("text", ["line\nbreak \x1b[31m", "ä" * 2000, "x" * 5000])
async def test_a_hostile_text_stays_one_line_of_a_length_that_is_taken(world: World, text: str) -> None:
    world.events.note(POD, "BindFailed", "Binding", text)
    await world.write(1)
    note = world.api.taken[0][1]["note"]
    assert note.isprintable()
    assert 0 < len(note.encode()) <= 1024
