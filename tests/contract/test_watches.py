"""Watches: which events, in which order, from where, and how a stream ends."""

from typing import Any

import pytest

from tests.contract.api import Api
from tests.contract.objects import binding, pod, secret

Json = dict[str, Any]


def kinds(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def versions(events: list[Json]) -> list[int]:
    return [int(event["object"]["metadata"]["resourceVersion"]) for event in events]


async def story(api: Api, name: str) -> str:
    """Create a pod, change its label there and back, delete it; returns the version before."""
    before = (await api.get(api.path("pods"), limit="1")).body["metadata"]["resourceVersion"]
    await api.created(api.path("pods"), pod(name, labels={name: "x"}))
    for value in "yx":
        await api.patch(api.path("pods", name), {"metadata": {"labels": {name: value}}})
    await api.delete(api.path("pods", name))
    return str(before)


async def test_every_change_comes_once_and_in_order(api: Api, name: str) -> None:
    since = await story(api, name)
    events = await api.watch(api.path("pods"), resourceVersion=since, fieldSelector=f"metadata.name={name}")
    # A deletion without grace first marks the pod, then takes it away.
    assert kinds(events) == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert versions(events) == sorted(set(versions(events)))
    assert min(versions(events)) > int(since)
    assert all((event["object"]["kind"], event["object"]["apiVersion"]) == ("Pod", "v1") for event in events)
    assert [event["object"]["metadata"]["labels"][name] for event in events] == list("xyxxx")


async def test_what_a_selector_loses_is_deleted_to_its_watch(api: Api, name: str) -> None:
    since = await story(api, name)
    events = await api.watch(api.path("pods"), resourceVersion=since, labelSelector=f"{name}=x")
    assert kinds(events) == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    lost = events[1]["object"]["metadata"]
    assert lost["labels"] == {name: "x"}, "as it was last selected"
    assert versions(events) == sorted(set(versions(events))), "but with the version of the change"


async def test_a_bound_pod_comes_to_its_nodes_watch(api: Api, name: str) -> None:
    made = await api.created(api.path("pods"), pod(name))
    await api.post(api.path("pods", f"{name}/binding"), binding(name, name))
    since = made["metadata"]["resourceVersion"]
    events = await api.watch("/api/v1/pods", resourceVersion=since, fieldSelector=f"spec.nodeName={name}")
    assert kinds(events) == ["ADDED"]


@pytest.mark.parametrize("since", [{}, {"resourceVersion": "0"}])
async def test_a_watch_from_anywhere_begins_with_what_is_there(api: Api, name: str, since: dict[str, str]) -> None:
    await api.created(api.path("pods"), pod(name))
    query = {"fieldSelector": f"metadata.name={name}", **since}
    async with api.watching(api.path("pods"), 30, **query) as events:
        assert (await anext(events))["type"] == "ADDED"
        await api.patch(api.path("pods", name), {"metadata": {"annotations": {"a": "1"}}})
        changed = await anext(events)
        assert (changed["type"], changed["object"]["metadata"]["annotations"]) == ("MODIFIED", {"a": "1"})


async def test_a_watch_goes_on_where_a_list_ends(api: Api, name: str) -> None:
    await api.created(api.path("secrets"), secret(name))
    selector = {"fieldSelector": f"metadata.name={name}"}
    since = (await api.get(api.path("secrets"), **selector)).body["metadata"]["resourceVersion"]
    async with api.watching(api.path("secrets"), 30, **{"resourceVersion": since, **selector}) as events:
        await api.patch(api.path("secrets", name), {"metadata": {"annotations": {"a": "1"}}})
        assert (await anext(events))["type"] == "MODIFIED"
        await api.delete(api.path("secrets", name))
        gone = await anext(events)
        assert (gone["type"], gone["object"]["metadata"]["annotations"]) == ("DELETED", {"a": "1"})


async def test_what_changes_nothing_is_no_event(api: Api, name: str) -> None:
    made = await api.created(api.path("secrets"), secret(name, a="1"))
    await api.patch(api.path("secrets", name), {"metadata": {"annotations": {"a": "1"}}})
    since = made["metadata"]["resourceVersion"]
    assert await api.watch(api.path("secrets"), resourceVersion=since, fieldSelector=f"metadata.name={name}") == []


async def test_a_bookmark_comes_before_the_end(api: Api, name: str) -> None:
    collection = api.path("secrets")
    since = (await api.created(collection, secret(name)))["metadata"]["resourceVersion"]
    query = {"resourceVersion": since, "allowWatchBookmarks": "true", "fieldSelector": f"metadata.name={name}"}
    async with api.watching(collection, 6, **query) as events:
        # The real server sends none where nothing at all has happened.
        other = await api.created(collection, secret(f"{name}-2"))
        mark = [event async for event in events][-1]
    assert (mark["type"], mark["object"]["kind"], mark["object"]["apiVersion"]) == ("BOOKMARK", "Secret", "v1")
    assert versions([mark])[0] >= int(other["metadata"]["resourceVersion"])


async def test_a_version_that_is_no_number(api: Api) -> None:
    answer = await api.get(api.path("secrets"), watch="1", resourceVersion="abc")
    assert answer.refusal()[:2] == (500, "")
    assert answer.body["message"].startswith('resourceVersion: Invalid value: "abc"')
