"""The product's client over HTTP and without a network: the same answers, the same errors."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from embedded.apiserver.direct import DirectClient
from embedded.apiserver.identity import ADMIN
from embedded.apiserver.server import serving
from kube import paths
from kube.client import ConflictError, ExpiredError, KubeClient, KubeError, NotFoundError
from tests.contract.objects import binding, pod, secret

SECRETS = paths.secrets("default")
HISTORY = 4


@pytest.fixture(params=["http", "direct"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with serving(history=HISTORY) as server:
        if request.param == "direct":
            yield DirectClient(server.core, ADMIN)
            return
        async with KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig")) as connected:
            yield connected


async def test_objects_come_and_go(client: KubeClient) -> None:
    made = await client.create(SECRETS, secret("a", k="1"))
    assert await client.get(f"{SECRETS}/a") == made
    assert (made["kind"], made["apiVersion"]) == ("Secret", "v1")
    changed = await client.patch(f"{SECRETS}/a", {"metadata": {"annotations": {"k": "2"}}})
    assert changed["metadata"]["annotations"] == {"k": "2"}
    replaced = await client.replace(f"{SECRETS}/a", {**changed, "data": {"y": "eA=="}})
    assert replaced["data"] == {"y": "eA=="}
    await client.delete(f"{SECRETS}/a")
    with pytest.raises(NotFoundError):
        await client.get(f"{SECRETS}/a")


async def test_errors_are_told_apart(client: KubeClient) -> None:
    made = await client.create(SECRETS, secret("a"))
    with pytest.raises(ConflictError, match="already exists"):
        await client.create(SECRETS, secret("a"))
    await client.patch(f"{SECRETS}/a", {"metadata": {"annotations": {"k": "2"}}})
    with pytest.raises(ConflictError, match="the object has been modified"):
        await client.replace(f"{SECRETS}/a", made)
    with pytest.raises(NotFoundError):
        await client.get("/api/v1/frobs")
    with pytest.raises(KubeError) as refused:
        await client.create(SECRETS, {**secret("B_")})
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


async def test_lists_are_whole_whatever_the_size_of_a_page(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.client._PAGE_SIZE", 2)
    for number in range(5):
        await client.create(SECRETS, secret(f"s-{number}"))
    items, version = await client.list(SECRETS)
    assert not any("kind" in item for item in items)
    assert [item["metadata"]["name"] for item in items] == [f"s-{number}" for number in range(5)]
    assert version == items[-1]["metadata"]["resourceVersion"]
    (one,), _ = await client.list(SECRETS, field_selector="metadata.name=s-3")
    assert one["metadata"]["name"] == "s-3"


async def test_watches_go_on_from_a_version_and_end_when_it_is_forgotten(client: KubeClient) -> None:
    first = await client.create(SECRETS, secret("s"))
    version = first["metadata"]["resourceVersion"]
    async with aclosing(client.watch(SECRETS, resource_version=version)) as events:
        await client.patch(f"{SECRETS}/s", {"metadata": {"annotations": {"k": "1"}}})
        event = await anext(events)
        assert (event["type"], event["object"]["metadata"]["annotations"]) == ("MODIFIED", {"k": "1"})
    for number in range(HISTORY + 1):
        await client.create(SECRETS, secret(f"s-{number}"))
    with pytest.raises(ExpiredError, match="too old resource version"):
        async with aclosing(client.watch(SECRETS, resource_version=version)) as events:
            await anext(events)


async def test_pods_are_bound_and_deleted_without_grace(client: KubeClient) -> None:
    await client.create(paths.pods("default"), pod("p"))
    await client.create(f"{paths.pod('default', 'p')}/binding", binding("p", "n"))
    with pytest.raises(ConflictError, match="is already assigned"):
        await client.create(f"{paths.pod('default', 'p')}/binding", binding("p", "n"))
    await client.delete(f"{paths.pod('default', 'p')}?gracePeriodSeconds=0")
    with pytest.raises(NotFoundError):
        await client.get(paths.pod("default", "p"))


async def test_a_dry_run_stores_nothing(client: KubeClient) -> None:
    await client.create(f"{SECRETS}?dryRun=All", secret("a"))
    with pytest.raises(NotFoundError):
        await client.get(f"{SECRETS}/a")
