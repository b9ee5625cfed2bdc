"""Merge patches and JSON patches, and their preconditions."""

from typing import Any

import pytest

from tests.contract.api import JSON_PATCH, MERGE_PATCH, Api
from tests.contract.objects import pod, secret

Json = dict[str, Any]


@pytest.fixture
async def path(api: Api, name: str) -> str:
    """A secret with two annotations."""
    await api.created(api.path("secrets"), secret(name, a="1", b="2"))
    return api.path("secrets", name)


async def test_a_merge_patch_adds_changes_and_removes(api: Api, path: str) -> None:
    answer = await api.patch(path, {"metadata": {"annotations": {"a": None, "b": "3", "c": "4"}}})
    assert answer.status == 200
    assert answer.body["metadata"]["annotations"] == {"b": "3", "c": "4"}
    assert (await api.get(path)).body == answer.body


async def test_a_patch_that_changes_nothing_makes_no_version(api: Api, path: str) -> None:
    before = (await api.get(path)).body
    answer = await api.patch(path, {"metadata": {"annotations": {"a": "1"}}})
    assert answer.body["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_resource_version_in_a_patch_is_a_precondition(api: Api, path: str, name: str) -> None:
    version = (await api.get(path)).body["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version, "annotations": {"a": "2"}}}
    assert (await api.patch(path, body)).status == 200
    again = await api.patch(path, body)
    assert again.refusal()[:2] == (409, "Conflict")
    assert f'Operation cannot be fulfilled on secrets "{name}": the object has been modified' in again.body["message"]


async def test_a_uid_in_a_patch_is_a_precondition(api: Api, path: str) -> None:
    answer = await api.patch(path, {"metadata": {"uid": "another", "annotations": {"a": "2"}}})
    assert answer.refusal()[:2] == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "another": field is immutable' in answer.body["message"]
    uid = (await api.get(path)).body["metadata"]["uid"]
    assert (await api.patch(path, {"metadata": {"uid": uid, "annotations": {"a": "2"}}})).status == 200


async def test_json_patch_operations_are_applied_in_order(api: Api, path: str) -> None:
    operations = [
        {"op": "test", "path": "/metadata/annotations/a", "value": "1"},
        {"op": "add", "path": "/metadata/annotations/x~1y", "value": "5"},
        {"op": "remove", "path": "/metadata/annotations/b"},
    ]
    answer = await api.patch(path, operations, JSON_PATCH)
    assert answer.body["metadata"]["annotations"] == {"a": "1", "x/y": "5"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/annotations/a", "value": "2"},
        {"op": "remove", "path": "/metadata/annotations/none"},
        {"op": "remove", "path": "/metadata/none/none"},
    ],
)
async def test_a_json_patch_that_does_not_fit_is_refused_whole(api: Api, path: str, operation: Json) -> None:
    first = {"op": "add", "path": "/metadata/annotations/new", "value": "1"}
    answer = await api.patch(path, [first, operation], JSON_PATCH)
    words = "the server rejected our request due to an error in our request"
    assert answer.refusal() == (422, "Invalid", words)
    assert "new" not in (await api.get(path)).body["metadata"]["annotations"]


async def test_bodies_that_are_no_patches(api: Api, path: str) -> None:
    assert (await api.patch(path, "{nope", MERGE_PATCH)).refusal() == (500, "", "Invalid JSON Patch")
    assert (await api.patch(path, {"op": "remove"}, JSON_PATCH)).refusal()[:2] == (400, "BadRequest")
    answer = await api.patch(path, {}, "application/json")
    assert answer.refusal() == (415, "UnsupportedMediaType", "415: Unsupported Media Type")
    assert (await api.patch(api.path("secrets", "none"), {})).refusal()[2] == 'secrets "none" not found'


async def test_null_in_a_patch_of_what_is_not_there_is_nothing(api: Api, name: str) -> None:
    await api.created(api.path("pods"), pod(name))
    answer = await api.patch(api.path("pods", name), {"metadata": {"annotations": {"none": None}}})
    assert not answer.body["metadata"].get("annotations")
