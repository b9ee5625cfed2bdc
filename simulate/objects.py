"""Objects of Kubernetes in a file, YAML or JSON: Lists taken apart, and of the shapes that the readers rely on."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Json = Mapping[str, Any]


class ObjectsError(ValueError):
    """A text has no such objects; the message says where and what would be right."""


def read_objects(text: str) -> Iterator[Json]:
    """Yield the objects of a text whose metadata, annotations, spec and containers have the types of the API.

    Raises:
        ObjectsError: it is neither YAML nor JSON, or a field has another type.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ObjectsError(f"neither YAML nor JSON: {error}") from error
    except RecursionError as error:
        raise ObjectsError("nested too deeply") from error
    for document in documents:
        if not isinstance(document, dict):
            raise ObjectsError(f"{str(document)[:80]!r}: must be an object such as kubectl prints")
        for item in _list(document, "items", "") if "items" in document else [document]:
            if not isinstance(item, dict):
                raise ObjectsError(f"items: {str(item)[:80]!r}: must be objects")
            _check(item)
            yield item


def _check(item: Json) -> None:
    metadata = _object(item, "metadata", "")
    for key, value in _object(metadata, "annotations", "metadata.").items():
        if not isinstance(value, str):
            raise ObjectsError(f"metadata.annotations[{key}]: {str(value)[:80]!r}: must be a string")
    spec = _object(item, "spec", "")
    for field in ("initContainers", "containers"):
        for container in _list(spec, field, "spec."):
            if not isinstance(container, dict):
                raise ObjectsError(f"spec.{field}: {str(container)[:80]!r}: must be objects")
            resources = _object(container, "resources", f"spec.{field}.")
            for kind in ("limits", "requests"):
                _object(resources, kind, f"spec.{field}.resources.")
    template = _object(spec, "template", "spec.")
    if template:
        _check(template)


def _object(parent: Json, field: str, path: str) -> Json:
    value = parent.get(field)
    if value is not None and not isinstance(value, dict):
        raise ObjectsError(f"{path}{field}: {str(value)[:80]!r}: must be an object")
    return value or {}


def _list(parent: Json, field: str, path: str) -> list[Any]:
    value = parent.get(field)
    if value is not None and not isinstance(value, list):
        raise ObjectsError(f"{path}{field}: {str(value)[:80]!r}: must be a list")
    return value or []
