"""Objects of files: what has another shape than the API's is told with its field, never by a traceback."""

import json

import pytest

from simulate.objects import ObjectsError, read_objects


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"items": [1]}, "items: '1': must be objects"),
        ({"items": "abc"}, "items: 'abc': must be a list"),
        ({"metadata": []}, r"metadata: '\[\]': must be an object"),
        ({"metadata": {"annotations": {"a": 5}}}, r"metadata.annotations\[a\]: '5': must be a string"),
        ({"spec": {"containers": 5}}, "spec.containers: '5': must be a list"),
        ({"spec": {"initContainers": ["x"]}}, "spec.initContainers: 'x': must be objects"),
        ({"spec": {"containers": [{"resources": {"limits": 1}}]}}, "spec.containers.resources.limits: '1': must be an"),
        ({"spec": {"template": {"spec": {"containers": {"a": 1}}}}}, "spec.containers: .* must be a list"),
        (7, "'7': must be an object such as kubectl prints"),
    ],
)
def test_another_shape_is_told(item: object, words: str) -> None:
    with pytest.raises(ObjectsError, match=words):
        list(read_objects(json.dumps(item)))


@pytest.mark.parametrize(("text", "words"), [("[[[", "neither YAML nor JSON"), ("[" * 100_000, "nested too deeply")])
def test_what_cannot_be_read_is_told(text: str, words: str) -> None:
    with pytest.raises(ObjectsError, match=words):
        list(read_objects(text))


def test_lists_are_taken_apart_and_empty_fields_left_out() -> None:
    text = '{"items": null}\n---\n{"items": [{"kind": "Pod", "spec": null}]}\n---\nkind: Node\n'
    assert [item["kind"] for item in read_objects(text)] == ["Pod", "Node"]
