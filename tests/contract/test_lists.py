"""Lists: their form and order, selectors, pages."""

import pytest

from tests.contract.api import Api
from tests.contract.objects import binding, pod, secret


@pytest.fixture
async def three(api: Api, name: str) -> str:
    """Pods with labels, of which the second is on a node; returns a label that they alone have."""
    for suffix, labels in (("b", {"tier": "web", "new": "yes"}), ("a", {"tier": "data"}), ("c", {})):
        await api.created(api.path("pods"), pod(f"{name}-{suffix}", labels={"test": name, **labels}))
    await api.post(api.path("pods", f"{name}-a/binding"), binding(f"{name}-a", f"node-{name}"))
    return name


async def names(api: Api, **query: str) -> list[str]:
    answer = await api.get(api.path("pods"), **query)
    assert answer.status == 200, answer
    return [item["metadata"]["name"][-1] for item in answer.body["items"]]


async def test_a_list_is_sorted_and_its_items_say_no_kind(api: Api, three: str) -> None:
    answer = await api.get(api.path("pods"), labelSelector=f"test={three}")
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == [f"{three}-{suffix}" for suffix in "abc"]
    assert not any({"kind", "apiVersion"} & item.keys() for item in answer.body["items"])
    newest = max(int(item["metadata"]["resourceVersion"]) for item in answer.body["items"])
    assert int(answer.body["metadata"]["resourceVersion"]) >= newest


async def test_an_empty_list_is_a_list(api: Api) -> None:
    answer = await api.get(api.path("coordination.k8s.io/v1/leases"), labelSelector="none=1")
    assert (answer.body["kind"], answer.body["items"]) == ("LeaseList", [])


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=web", "b"),
        ("tier==web", "b"),
        ("tier!=web", "ac"),
        ("tier in (web, data)", "ab"),
        ("tier notin (web,data)", "c"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier,new=yes", "b"),
        ("tier in (web),!new", ""),
    ],
)
async def test_label_selectors(api: Api, three: str, selector: str, expected: str) -> None:
    assert await names(api, labelSelector=f"test={three},{selector}") == list(expected)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=node-{}", "a"),
        ("spec.nodeName!=node-{}", "bc"),
        ("spec.nodeName=", "bc"),
        ("metadata.name={}-c", "c"),
        ("metadata.name={}-c,spec.nodeName=node-{}", ""),
        ("status.phase=Pending,spec.schedulerName=nobody", "abc"),
    ],
)
async def test_field_selectors(api: Api, three: str, selector: str, expected: str) -> None:
    fields = selector.replace("{}", three)
    assert await names(api, labelSelector=f"test={three}", fieldSelector=fields) == list(expected)


async def test_a_cluster_wide_list_has_all_namespaces(api: Api, three: str) -> None:
    answer = await api.get("/api/v1/pods", fieldSelector=f"spec.nodeName=node-{three}")
    assert [item["metadata"]["namespace"] for item in answer.body["items"]] == [api.space]


async def test_selectors_that_cannot_be_read(api: Api) -> None:
    path = api.path("pods")
    answer = await api.get(path, fieldSelector="spec.foo=x")
    assert answer.refusal() == (400, "BadRequest", "field label not supported: spec.foo")
    answer = await api.get(path, fieldSelector="spec.foo")
    assert answer.refusal() == (400, "BadRequest", "invalid selector: 'spec.foo'; can't understand 'spec.foo'")
    answer = await api.get(path, labelSelector="a===b")
    assert answer.refusal()[:2] == (400, "BadRequest")
    assert "unable to parse requirement" in answer.body["message"]


async def test_pages_are_of_one_moment(api: Api, three: str) -> None:
    query = {"labelSelector": f"test={three}", "limit": "2"}
    first = (await api.get(api.path("pods"), **query)).body
    assert len(first["items"]) == 2
    await api.created(api.path("pods"), pod(f"{three}-d", labels={"test": three}))
    query["continue"] = first["metadata"]["continue"]
    second = (await api.get(api.path("pods"), **query)).body
    assert [item["metadata"]["name"][-1] for item in second["items"]] == ["c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]


async def test_a_page_says_how_much_is_left(api: Api, name: str) -> None:
    for number in range(3):
        await api.created(api.path("secrets"), secret(f"{name}-{number}"))
    answer = await api.get(api.path("secrets"), limit="1")
    everything = await api.get(api.path("secrets"))
    assert answer.body["metadata"]["remainingItemCount"] == len(everything.body["items"]) - 1
    assert "remainingItemCount" not in everything.body["metadata"]


async def test_a_list_knows_no_future(api: Api) -> None:
    refusal = (await api.get(api.path("secrets"), resourceVersion="99999999")).refusal()
    assert refusal[:2] == (504, "Timeout")
    assert refusal[2].startswith("Timeout: Too large resource version: 99999999, current: ")
