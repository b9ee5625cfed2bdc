"""What of the embedded API server the contract suite cannot show on a real one."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embedded.apiserver.identity import ADMIN, User
from embedded.apiserver.quantities import canonical
from embedded.apiserver.resources import PODS, Target
from embedded.apiserver.selectors import anything
from embedded.apiserver.server import ApiServer, serving
from embedded.apiserver.store import Collection, Event, Store, Stored, TooOldError
from embedded.apiserver.watches import Watch, lines
from kube import paths
from kube.client import ExpiredError, Json, KubeClient
from tests.contract.api import Api, connected
from tests.contract.objects import binding, pod, secret
from tests.contract.test_watches import kinds
from tests.scheduler import virtual_time


async def remembering_three(server: ApiServer, api: Api) -> int:
    """Make five changes on a server that remembers three of each resource; returns the version before them."""
    before = server.store.version
    for number in range(5):
        await api.created(api.path("secrets"), secret(f"s-{number}"))
    return before


async def test_a_version_that_is_forgotten_is_gone() -> None:
    async with (
        serving(history=3) as server,
        connected(server.url, "default", is_real=False, token=server.token(ADMIN)) as api,
    ):
        before = await remembering_three(server, api)
        (event,) = await api.watch(api.path("secrets"), resourceVersion=str(before))
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {before} (")
        remembered = await api.watch(api.path("secrets"), resourceVersion=str(before + 2))
        assert kinds(remembered) == ["ADDED", "ADDED", "ADDED"]


async def test_the_products_client_lists_again_when_its_version_is_gone(tmp_path: Path) -> None:
    async with serving(history=3) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(kubeconfig) as client:
            for number in range(5):
                await client.create(paths.secrets("default"), secret(f"s-{number}"))
            with pytest.raises(ExpiredError):
                async for _ in client.watch(paths.secrets("default"), resource_version="2"):
                    pass


async def test_a_token_of_a_list_that_is_forgotten_is_gone() -> None:
    async with serving() as server, connected(server.url, "default", is_real=False, token=server.token(ADMIN)) as api:
        answer = await api.get(api.path("pods"), limit="1", **{"continue": "nobody's"})
        assert answer.refusal()[:2] == (410, "Expired")


async def test_who_asks_is_told_to_webhooks_by_their_token() -> None:
    async with serving() as server:
        account = User.service_account("amd-vgpu", "scheduler")
        token = server.token(account)
        async with connected(server.url, "default", is_real=False, token=token) as api:
            assert (await api.get(api.path("pods"))).status == 200
        assert account.info()["username"] == "system:serviceaccount:amd-vgpu:scheduler"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(16384, "16384"), ("16000", "16k"), (1000, "1k"), ("2000000", "2M"), ("0", "0"), ("100m", "100m"), (True, True)],
)
def test_quantities_come_back_in_their_shortest_spelling(value: object, expected: object) -> None:
    assert canonical(value) == expected


def stored(name: str, node: str, version: int) -> Stored:
    return Stored.of({"metadata": {"namespace": "n", "name": name}, "spec": {"nodeName": node}}, version)


def test_the_index_follows_every_change() -> None:
    collection = Collection(PODS, start=0, history=10)
    first, second = stored("a", "", 1), stored("a", "x", 2)
    collection.apply(("n", "a"), Event("ADDED", None, first))
    assert collection.all("", [("spec.nodeName", "")]) == [first]
    collection.apply(("n", "a"), Event("MODIFIED", first, second))
    assert collection.all("", [("spec.nodeName", "")]) == []
    assert collection.all("", [("spec.nodeName", "x")]) == [second]
    collection.apply(("n", "a"), Event("DELETED", second, stored("a", "x", 3)))
    assert collection.all("", [("spec.nodeName", "x")]) == []


def test_the_history_knows_what_it_has_forgotten() -> None:
    collection = Collection(PODS, start=0, history=2)
    for version in (1, 2, 3):
        collection.apply(("n", str(version)), Event("ADDED", None, stored(str(version), "", version)))
    assert [event.version for event in collection.after(1)] == [2, 3]
    with pytest.raises(TooOldError):
        collection.after(0)


async def test_a_binding_of_another_pod_of_the_name_is_refused() -> None:
    async with serving() as server, connected(server.url, "default", is_real=False, token=server.token(ADMIN)) as api:
        made: Json = await api.created(api.path("pods"), pod("a"))
        wrong = await api.post(api.path("pods", "a/binding"), binding("a", "x", uid="another"))
        assert wrong.refusal()[:2] == (409, "Conflict")
        right = await api.post(api.path("pods", "a/binding"), binding("a", "x", uid=made["metadata"]["uid"]))
        assert right.status == 201


def test_a_change_at_the_moment_of_a_bookmark_is_not_lost() -> None:
    async def story() -> list[bytes]:
        store = Store()
        since = store.put(PODS, {"metadata": {"namespace": "n", "name": "first"}}).version
        watch = Watch(Target(PODS), anything, since, bookmarks=True, seconds=2.0)
        # The first bookmark is due at once; the change comes after the watch has begun to wait for that moment.
        reading = asyncio.create_task(collect(lines(store, watch)))
        asyncio.get_running_loop().call_soon(store.put, PODS, {"metadata": {"namespace": "n", "name": "second"}})
        return await reading

    assert [json.loads(line)["type"] for line in virtual_time.run(story())] == ["BOOKMARK", "ADDED"]


async def collect(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in stream]


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": "x"},
        {"metadata": {"name": 7}},
        {"metadata": {"name": "a"}, "spec": "x"},
        {"metadata": {"name": "a"}, "spec": {"containers": "x"}},
        {"metadata": {"name": "a"}, "spec": {"containers": [7]}},
        {"metadata": {"name": "a"}, "spec": {"containers": [{"resources": {"limits": [1]}}]}},
        {"kind": [], "metadata": {"name": "a"}},
        [],
        "x",
        None,
    ],
)
async def test_bodies_of_the_wrong_shape_are_refused(body: object) -> None:
    async with serving() as server, connected(server.url, "default", is_real=False, token=server.token(ADMIN)) as api:
        answer = await api.post(api.path("pods"), json.dumps(body))
        assert answer.status in {400, 422}, answer
        await api.created(api.path("pods"), pod("there"))
        if isinstance(body, dict):
            answer = await api.patch(api.path("pods", "there"), body)
            assert answer.status in {200, 400, 409, 422}, answer


def test_a_store_counts_all_resources_together() -> None:
    store = Store()
    versions = [store.put(PODS, {"metadata": {"namespace": "n", "name": name}}).version for name in "ab"]
    assert versions[1] == versions[0] + 1
