"""The ledger kept by a watch, with a made cgroup tree and stand-ins for the API server and the kubelet."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedded.apiserver.patches import merge
from kube.client import KubeClient
from plugin.allocator import Allocator
from plugin.holder import RefusedError
from plugin.inventory import Inventory
from plugin.ledger import Ledger
from plugin.nodepods import NodePods
from plugin.podfolders import pod_folder, region_path
from plugin.podresources import KubeletShare
from plugin.settings import PluginSettings
from plugin.upkeep import Upkeep
from protocol.names import BIND_PHASE, CU_ALLOCATED, NODE_LOCK, NODE_SURVIVORS
from protocol.survivors import decode_survivors
from tests.plugin.made_pods import NODE, bound_pod, container, lock_for, path_of, with_notes
from tests.plugin.standin_api import StandInApi, until
from tests.plugin.standin_podresources import serving
from tests.plugin.waiting import reached
from tests.trees import MadeGpu, make_tree

Json = dict[str, Any]

NODE_PATH = f"/api/v1/nodes/{NODE}"
GPU = "GPU-8e1bb56457addd1b"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with one GPU, which all pods share."""
    make_tree(tmp_path / "machine", [MadeGpu()])
    return tmp_path / "machine"


class MadeCgroups:
    """A cgroup v2 tree as the kubelet makes it, of which a test says who has processes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True)
        (root / "cgroup.controllers").write_text("pids\n")

    def has(self, uid: str, *, populated: bool) -> None:
        folder = self._root / "kubepods.slice" / f"kubepods-pod{uid.replace('-', '_')}.slice"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.events").write_text(f"populated {populated:d}\nfrozen 0\n")


@pytest.fixture
def cgroups(settings: PluginSettings) -> MadeCgroups:
    return MadeCgroups(settings.cgroup_root)


@pytest.fixture
def ledger(settings: PluginSettings) -> Ledger:
    return Ledger(settings.run_dir)


@pytest.fixture
def allocator(settings: PluginSettings, client: KubeClient, inventory: Inventory) -> Allocator:
    return Allocator(settings, client, inventory)


Serve = Callable[..., Coroutine[Any, Any, Json]]


@pytest.fixture
def serve(api: StandInApi, allocator: Allocator, inventory: Inventory) -> Serve:
    """Bind a pod, let it hold the lock, and serve its container."""

    async def served(name: str, *others: Json, cores: int = 25, ids: tuple[str, ...] = ("x-1",)) -> Json:
        pod = bound_pod(name, [container("main", mem=1000, cores=cores)], inventory.snapshot, others=others)
        api.put(path_of(pod), pod)
        api.annotate(NODE_PATH, {NODE_LOCK: lock_for(pod)})
        await allocator.allocate(list(ids))
        return api.objects[path_of(pod)]

    return served


@asynccontextmanager
async def kept(settings: PluginSettings, client: KubeClient) -> AsyncIterator[None]:
    task = asyncio.create_task(Upkeep(settings, client, NodePods()).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_entry_and_an_account_are_there_before_the_answer(
    settings: PluginSettings, api: StandInApi, serve: Serve, ledger: Ledger
) -> None:
    seen = []
    api.before_patch.append(lambda _: seen.append(ledger.read().entries["uid-one"]))
    await serve("one")
    (entry,) = seen
    assert (entry.pod.name, entry.parts[GPU].memory_mib, entry.parts[GPU].cus) == ("one", 1000, tuple(range(76)))
    assert entry.kubelet_ids == {"main": {"x-1"}}
    assert region_path(settings.run_dir, "uid-one", "main").stat().st_mode & 0o777 == 0o666


async def test_a_folder_that_cannot_be_made_is_a_refusal_that_names_it(
    settings: PluginSettings, serve: Serve, api: StandInApi
) -> None:
    settings.run_dir.write_text("a file")
    with pytest.raises(RefusedError, match=f"pod default/one: the plugin's own files on the node: {settings.run_dir}"):
        await serve("one")
    assert api.notes("/api/v1/namespaces/default/pods/one")[BIND_PHASE] == "failed"


@pytest.mark.parametrize("end", ["deleted", "finished"])
async def test_a_pod_that_ends_leaves_nothing_on_the_node(
    settings: PluginSettings, client: KubeClient, api: StandInApi, serve: Serve, cgroups: MadeCgroups, end: str
) -> None:
    pod = await serve("one")
    other = await serve("two", pod, cores=10)
    cgroups.has("uid-one", populated=False)
    async with kept(settings, client):
        if end == "deleted":
            api.delete(path_of(pod))
        else:
            api.put(path_of(pod), merge(pod, {"status": {"phase": "Succeeded"}}))
        await reached(lambda: not pod_folder(settings.run_dir, "uid-one").exists())
    assert pod_folder(settings.run_dir, other["metadata"]["uid"]).exists()
    assert NODE_SURVIVORS not in api.notes(NODE_PATH)


async def test_c_a_force_deleted_pod_keeps_its_cus_until_its_processes_are_gone(
    settings: PluginSettings, client: KubeClient, api: StandInApi, serve: Serve, cgroups: MadeCgroups
) -> None:
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    async with kept(settings, client):
        api.delete(path_of(pod))
        await until(api, lambda: NODE_SURVIVORS in api.notes(NODE_PATH))
        (survivor,) = decode_survivors(api.notes(NODE_PATH)[NODE_SURVIVORS])
        assert (survivor.pod.name, survivor.pod.uid) == ("one", "uid-one")
        assert survivor.parts is not None
        assert survivor.parts[GPU].cus == tuple(range(76))
        cgroups.has("uid-one", populated=False)
        await until(api, lambda: NODE_SURVIVORS not in api.notes(NODE_PATH))
        await reached(lambda: not pod_folder(settings.run_dir, "uid-one").exists())


async def test_a_claim_on_what_is_still_held_waits_and_is_served_when_it_is_free(
    api: StandInApi, serve: Serve, cgroups: MadeCgroups, caplog: pytest.LogCaptureFixture
) -> None:
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    api.delete(path_of(pod))
    waiting = asyncio.create_task(serve("two"))
    with caplog.at_level(logging.WARNING):
        await reached(lambda: "pod default/two waits: CU 0 of GPU" in caplog.text)
    assert not waiting.done()
    cgroups.has("uid-one", populated=False)
    assert (await asyncio.wait_for(waiting, 10))["metadata"]["annotations"][BIND_PHASE] == "success"


async def test_a_claim_on_what_stays_held_is_refused_in_words(
    api: StandInApi, serve: Serve, cgroups: MadeCgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugin.holder.StillHeldError.patience", 0.02)
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    api.delete(path_of(pod))
    with pytest.raises(
        RefusedError, match=r"pod default/two: CU 0 of GPU .* by processes of pod default/one \(uid uid-one\), which is"
    ):
        await serve("two")
    assert api.notes("/api/v1/namespaces/default/pods/two")[BIND_PHASE] == "failed"
    assert NODE_LOCK not in api.notes(NODE_PATH)


async def test_other_cus_of_the_gpu_are_given_at_once(api: StandInApi, serve: Serve, cgroups: MadeCgroups) -> None:
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    api.delete(path_of(pod))
    two = await asyncio.wait_for(serve("two", pod), 3)
    assert two["metadata"]["annotations"][CU_ALLOCATED] == f'{{"{GPU}":"76-151"}}'


async def test_hamis_pods_are_given_cus_that_no_survivor_holds(
    api: StandInApi, allocator: Allocator, inventory: Inventory, serve: Serve, cgroups: MadeCgroups
) -> None:
    gone = await serve("one")
    cgroups.has("uid-one", populated=True)
    api.delete(path_of(gone))
    pod = bound_pod("hami", [container("main", mem=1000, cores=25)], inventory.snapshot)
    pod = merge(pod, {"metadata": {"annotations": {CU_ALLOCATED: None}}})
    api.put(path_of(pod), pod)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(pod)})
    answer = await asyncio.wait_for(allocator.allocate(["x-7"]), 3)
    assert answer.env["HSA_CU_MASK"] == "0:76-151"


async def test_a_finished_pod_whose_processes_are_left_holds_too(
    settings: PluginSettings, client: KubeClient, api: StandInApi, serve: Serve, cgroups: MadeCgroups
) -> None:
    """An evicted pod is Failed for the API server before its processes are gone."""
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    async with kept(settings, client):
        api.put(path_of(pod), merge(pod, {"status": {"phase": "Failed"}}))
        await until(api, lambda: NODE_SURVIVORS in api.notes(NODE_PATH))


async def test_the_kubelet_is_believed_where_cgroups_tell_nothing(
    settings: PluginSettings, client: KubeClient, api: StandInApi, serve: Serve
) -> None:
    async with serving(settings.pod_resources) as kubelet, kept(settings, client):
        pod = await serve("one")
        kubelet.shares = [KubeletShare("default", "one", "main", frozenset({"x-1"}))]
        api.delete(path_of(pod))
        await until(api, lambda: NODE_SURVIVORS in api.notes(NODE_PATH))
        kubelet.shares = []
        await until(api, lambda: NODE_SURVIVORS not in api.notes(NODE_PATH))


@pytest.mark.parametrize("damage", ["removed", "half", "other"])
async def test_a_damaged_ledger_is_written_again_from_the_pods(
    settings: PluginSettings,
    client: KubeClient,
    serve: Serve,
    ledger: Ledger,
    cgroups: MadeCgroups,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await serve("one")
    cgroups.has("uid-one", populated=True)
    before = ledger.read().entries["uid-one"]
    file = pod_folder(settings.run_dir, "uid-one") / "held.json"
    match damage:
        case "removed":
            ledger.forget("uid-one")
        case "half":
            file.write_bytes(file.read_bytes()[:30])
        case _:
            file.write_text("{}")
    async with serving(settings.pod_resources) as kubelet, kept(settings, client):
        kubelet.shares = [KubeletShare("default", "one", "main", frozenset({"x-1"}))]
        await reached(lambda: "no readable entry of pod default/one: written again" in caplog.text)
    assert ledger.read().entries["uid-one"] == before
    assert "was never answered for" not in caplog.text


async def test_a_survivor_of_whom_nobody_knows_what_it_holds_closes_the_node(
    settings: PluginSettings,
    client: KubeClient,
    api: StandInApi,
    serve: Serve,
    cgroups: MadeCgroups,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plugin.holder.StillHeldError.patience", 0.02)
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    (pod_folder(settings.run_dir, "uid-one") / "held.json").write_text("garbage")
    api.delete(path_of(pod))
    async with kept(settings, client):
        await until(api, lambda: NODE_SURVIVORS in api.notes(NODE_PATH))
    (survivor,) = decode_survivors(api.notes(NODE_PATH)[NODE_SURVIVORS])
    assert survivor.parts is None
    with pytest.raises(RefusedError, match="an unknown part of the GPUs is held by processes"):
        await serve("two", cores=3)


async def test_a_pod_that_the_watch_does_not_show_yet_keeps_its_entry(
    settings: PluginSettings, client: KubeClient, api: StandInApi, serve: Serve, ledger: Ledger
) -> None:
    """Served, not started, and not seen by the watch: the API server is asked before anything is removed."""
    upkeep = Upkeep(settings, client, NodePods())
    await serve("one")
    assert await upkeep.look()
    assert "uid-one" in ledger.read().entries
    api.delete("/api/v1/namespaces/default/pods/one")
    assert not await upkeep.look()
    assert "uid-one" not in ledger.read().entries


async def test_a_node_object_that_was_made_anew_is_told_again(
    settings: PluginSettings, client: KubeClient, api: StandInApi, serve: Serve, cgroups: MadeCgroups
) -> None:
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    async with kept(settings, client):
        api.delete(path_of(pod))
        await until(api, lambda: NODE_SURVIVORS in api.notes(NODE_PATH))
        api.annotate(NODE_PATH, {NODE_SURVIVORS: None})
        await until(api, lambda: NODE_SURVIVORS in api.notes(NODE_PATH))


async def test_c8_a_share_in_the_wrong_hands_is_told_once(
    settings: PluginSettings,
    client: KubeClient,
    api: StandInApi,
    inventory: Inventory,
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(settings.pod_resources) as kubelet, kept(settings, client):
        await serve("one")
        foreign = bound_pod("foreign", [container("main", mem=1, cores=10)], inventory.snapshot)
        kubelet.shares = [
            KubeletShare("default", "foreign", "main", frozenset({"x-1"})),
            KubeletShare("default", "ended-long-ago", "main", frozenset({"x-9"})),
        ]
        api.put(path_of(foreign), foreign)
        await reached(lambda: "devices that were meant for default/one/main" in caplog.text)
        api.annotate(path_of(foreign), {"example.com/touched": "1"})
        lists = api.calls.count(("GET", "/api/v1/pods"))
        await reached(lambda: api.calls.count(("GET", "/api/v1/pods")) >= lists)
    assert caplog.text.count("were meant for") == 1
    assert "ended-long-ago" not in caplog.text


async def test_memory_that_is_still_held_is_not_given_twice(
    api: StandInApi,
    allocator: Allocator,
    inventory: Inventory,
    cgroups: MadeCgroups,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plugin.holder.StillHeldError.patience", 0.02)
    one, two = (
        bound_pod(name, [container("main", mem=120000, cores=25)], inventory.snapshot) for name in ("one", "two")
    )
    api.put(path_of(one), one)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(one)})
    await allocator.allocate(["x-1"])
    cgroups.has("uid-one", populated=True)
    api.delete(path_of(one))

    api.put(path_of(two), with_notes(two, amd_cu_allocated=f'{{"{GPU}":"76-151"}}'))
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(two)})
    with pytest.raises(RefusedError, match=r"120000 MiB of GPU .* are held by processes of pod default/one"):
        await allocator.allocate(["x-2"])


async def test_whole_gpus_without_a_scheduler_are_not_given_while_processes_are_left(
    settings: PluginSettings,
    client: KubeClient,
    api: StandInApi,
    inventory: Inventory,
    serve: Serve,
    cgroups: MadeCgroups,
) -> None:
    pod = await serve("one")
    cgroups.has("uid-one", populated=True)
    api.delete(path_of(pod))
    alone = Allocator(replace(settings, standalone=True), client, inventory)
    with pytest.raises(RefusedError, match=f"standalone: GPU '{GPU}' is held by processes of pod default/one"):
        await alone.allocate([f"{GPU}-3"])
    cgroups.has("uid-one", populated=False)
    assert (await alone.allocate([f"{GPU}-3"])).env["ROCR_VISIBLE_DEVICES"] == GPU
