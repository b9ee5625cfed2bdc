"""A pod that came past the scheduler never gets the share of the pod that holds the lock, nor the other way round."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kube.client import KubeClient
from plugin.allocate import Answer
from plugin.allocator import Allocator
from plugin.holder import RefusedError, RivalError
from plugin.inventory import Inventory
from plugin.ledger import Ledger
from plugin.podresources import KubeletShare
from plugin.settings import PluginSettings
from protocol.names import BIND_PHASE, NODE_LOCK
from tests.plugin.made_pods import NODE, Json, bound_pod, container, lock_for, path_of, pod
from tests.plugin.standin_api import StandInApi
from tests.plugin.standin_podresources import serving
from tests.plugin.waiting import reached

NODE_PATH = f"/api/v1/nodes/{NODE}"
STARTED = {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "cri://1"}]}
REFUSED = "the call may be for container 'main' of pod default/stranger, which came past the scheduler"


@pytest.fixture
def allocator(settings: PluginSettings, client: KubeClient, inventory: Inventory) -> Allocator:
    return Allocator(settings, client, inventory)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RivalError, "patience", 0)


@pytest.fixture
def holder(api: StandInApi, inventory: Inventory) -> Json:
    """The pod that the scheduler placed, and which holds the lock."""
    item = bound_pod("holder", [container("main", mem=7, cores=25)], inventory.snapshot)
    api.put(path_of(item), item)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(item)})
    return item


def stranger(gpus: int = 1, *, notes: Mapping[str, str] | None = None, status: Json | None = None) -> Json:
    """Return a pod that somebody bound by hand."""
    item = pod("stranger", {"nodeName": NODE, "containers": [container("main", gpus)]}, notes or {})
    return {**item, "status": status or item["status"]}


def limit(answer: Answer) -> str:
    return answer.env["HIP_DEVICE_MEMORY_LIMIT"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("notes", [{}, {BIND_PHASE: "success"}, {BIND_PHASE: "allocating"}])
async def test_a_call_that_may_be_for_either_is_refused_and_nobody_is_harmed(
    allocator: Allocator, api: StandInApi, holder: Json, notes: dict[str, str]
) -> None:
    other = stranger(notes=notes)
    api.put(path_of(other), other)
    with pytest.raises(RefusedError, match=REFUSED):
        await allocator.allocate(["x-0"])
    assert api.notes(path_of(holder))[BIND_PHASE] == "allocating"
    assert NODE_LOCK in api.notes(NODE_PATH)
    assert api.patches() == []


async def test_once_the_kubelet_has_failed_the_other_the_holder_is_served(
    allocator: Allocator, api: StandInApi, holder: Json, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet tells of the pod that it failed some time after it has asked for the next."""
    other = stranger()
    api.put(path_of(other), other)
    with caplog.at_level(logging.WARNING):
        waiting = asyncio.create_task(allocator.allocate(["x-0"]))
        await reached(lambda: f"pod default/holder waits: {REFUSED}" in caplog.text)
    api.put(path_of(other), {**other, "status": {"phase": "Failed"}})
    assert limit(await asyncio.wait_for(waiting, 10)) == "7m"
    assert api.notes(path_of(holder))[BIND_PHASE] == "success"


@pytest.mark.usefixtures("impatient", "holder")
@pytest.mark.parametrize(
    "other",
    [
        stranger(2),
        stranger(0),
        stranger(status={"phase": "Succeeded"}),
        stranger(status=STARTED),
        {**stranger(), "metadata": {**stranger()["metadata"], "deletionTimestamp": "2026-12-01T10:01:00Z"}},
    ],
    ids=["other number", "no GPU", "over", "runs", "being deleted"],
)
async def test_a_pod_for_which_the_call_cannot_be_is_no_rival(
    allocator: Allocator, api: StandInApi, other: Json
) -> None:
    api.put(path_of(other), other)
    assert limit(await allocator.allocate(["x-0"])) == "7m"


@pytest.mark.usefixtures("impatient", "holder")
@pytest.mark.parametrize(("holds", "served"), [("stranger", True), ("another", False)])
async def test_a_pod_that_has_its_devices_by_the_kubelets_account_is_no_rival(
    allocator: Allocator, settings: PluginSettings, api: StandInApi, holds: str, served: bool
) -> None:
    """Such as one that was served with --standalone before."""
    other = stranger()
    api.put(path_of(other), other)
    async with serving(settings.pod_resources) as kubelet:
        kubelet.shares = [KubeletShare("default", holds, "main", frozenset({"x-9"}))]
        if served:
            assert limit(await allocator.allocate(["x-0"])) == "7m"
        else:
            with pytest.raises(RefusedError, match=REFUSED):
                await allocator.allocate(["x-0"])


@pytest.mark.usefixtures("impatient")
async def test_pods_that_this_plugin_served_and_that_did_not_start_yet_are_no_rivals(
    allocator: Allocator, api: StandInApi, inventory: Inventory, holder: Json
) -> None:
    """Their images are being pulled."""
    await allocator.allocate(["x-0"])
    later: Any = bound_pod("later", [container("main", mem=8, cores=25)], inventory.snapshot, others=[holder])
    api.put(path_of(later), later)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(later)})
    assert limit(await allocator.allocate(["x-1"])) == "8m"


@pytest.mark.usefixtures("impatient")
async def test_a_holder_that_has_a_part_already_gets_the_rest(
    allocator: Allocator, api: StandInApi, inventory: Inventory
) -> None:
    """The kubelet admits one pod after the other, so the next call can be for no other."""
    item = bound_pod("two", [container("a", mem=1, cores=25), container("b", mem=2, cores=25)], inventory.snapshot)
    api.put(path_of(item), item)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(item)})
    assert limit(await allocator.allocate(["x-0"])) == "1m"
    other = stranger()
    api.put(path_of(other), other)
    assert limit(await allocator.allocate(["x-1"])) == "2m"


async def test_a_repeated_call_with_other_ids_gets_the_same_answer(
    allocator: Allocator, settings: PluginSettings, client: KubeClient, inventory: Inventory, api: StandInApi
) -> None:
    """A kubelet that was killed before it wrote down what it gave picks ids anew, at random."""
    item = bound_pod("two", [container("a", mem=1, cores=25), container("b", mem=2, cores=25)], inventory.snapshot)
    api.put(path_of(item), item)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(item)})
    first = [await allocator.allocate([device_id]) for device_id in ("x-0", "x-1")]
    restarted = Allocator(settings, client, inventory)
    async with serving(settings.pod_resources) as kubelet:
        assert await restarted.allocate(["x-7"]) == first[0]
        kubelet.shares = [KubeletShare("default", "two", "a", frozenset({"x-7"}))]
        assert await restarted.allocate(["x-8"]) == first[1]
        kubelet.shares.append(KubeletShare("default", "two", "b", frozenset({"x-8"})))
        with pytest.raises(RefusedError, match="nobody holds it"):
            await restarted.allocate(["x-9"])
    entry = Ledger(settings.run_dir).read().entries["uid-two"]
    assert entry.kubelet_ids == {"a": {"x-7"}, "b": {"x-8"}}, "as the kubelet has it now"


@pytest.mark.parametrize(
    "case", ["kubelet silent", "started", "stranger", "two pods", "lock of another", "other number"]
)
async def test_a_call_with_other_ids_is_no_repetition_unless_that_is_certain(
    allocator: Allocator, settings: PluginSettings, api: StandInApi, inventory: Inventory, holder: Json, case: str
) -> None:
    await allocator.allocate(["x-0"])
    ids = ["x-7"]
    other = bound_pod("other", [container("main", 2, mem=8, cores=25)], inventory.snapshot, others=[holder])
    match case:
        case "started":
            api.objects[path_of(holder)]["status"] = STARTED
        case "stranger":
            api.put(path_of(stranger()), stranger())
        case "two pods":
            other = bound_pod("other", [container("main", mem=8, cores=25)], inventory.snapshot, others=[holder])
            api.put(path_of(other), other)
            api.annotate(NODE_PATH, {NODE_LOCK: lock_for(other)})
            await allocator.allocate(["x-1"])
        case "lock of another":
            api.put(path_of(other), other)
            api.annotate(NODE_PATH, {NODE_LOCK: lock_for(other)})
        case "other number":
            ids = ["x-7", "x-8"]
    socket = settings.pod_resources if case != "kubelet silent" else settings.pod_resources.with_name("elsewhere.sock")
    async with serving(socket):
        with pytest.raises(RefusedError):
            await allocator.allocate(ids)


async def test_a_call_with_other_ids_is_a_repetition_when_nothing_speaks_against_it(
    allocator: Allocator, settings: PluginSettings, holder: Json
) -> None:
    """The control of the test before."""
    del holder
    first = await allocator.allocate(["x-0"])
    async with serving(settings.pod_resources):
        assert await allocator.allocate(["x-7"]) == first
