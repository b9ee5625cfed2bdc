"""Types of the fields that the rules read, so that no rule has to doubt them.

The API server sends nothing else; whoever does gets told which field is wrong.
"""

from collections.abc import Iterator
from typing import Any, Final

from protocol.faults import Fault

_TEXT: Final = str
_OBJECTS: Final[list[Any]] = [{}]
_RESOURCES: Final[dict[str, Any]] = {"limits": {}, "requests": {}}
_CONTAINER: Final[dict[str, Any]] = {
    "name": _TEXT,
    "restartPolicy": _TEXT,
    "resources": _RESOURCES,
    "securityContext": {},
    "env": [{"name": _TEXT, "value": _TEXT}],
    "envFrom": _OBJECTS,
    "volumeMounts": [{"name": _TEXT, "mountPath": _TEXT, "subPath": _TEXT, "subPathExpr": _TEXT}],
}
_POD: Final[dict[str, Any]] = {
    "metadata": {"name": _TEXT, "generateName": _TEXT},
    "spec": {
        "schedulerName": _TEXT,
        "nodeName": _TEXT,
        "volumes": [{"name": _TEXT}],
        "initContainers": [_CONTAINER],
        "containers": [_CONTAINER],
        "ephemeralContainers": [_CONTAINER],
    },
}


def shape_faults(pod: object, prefix: str = "") -> list[Fault]:
    """Return a fault for every field of a pod that has another type than it must; null is always right."""
    faults = [] if _fits(pod, _POD) else list(_misfits(pod, _POD, prefix))
    if not faults and isinstance(pod, dict):
        notes = (pod.get("metadata") or {}).get("annotations")
        faults.extend(_annotation_misfits(notes, f"{prefix}metadata.annotations"))
    return faults


def _fits(value: object, shape: Any) -> bool:
    """Return whether there is no misfit, which is quicker than to look for them with their paths."""
    if value is None:
        return True
    if shape is _TEXT:
        return isinstance(value, str)
    if isinstance(shape, list):
        return isinstance(value, list) and all(item is not None and _fits(item, shape[0]) for item in value)
    return isinstance(value, dict) and all(_fits(value[key], inner) for key, inner in shape.items() if key in value)


def _misfits(value: object, shape: Any, path: str) -> Iterator[Fault]:
    if value is None:
        return
    if shape is _TEXT:
        if not isinstance(value, str):
            yield _fault(path, value, "a string")
    elif isinstance(shape, dict):
        yield from _object_misfits(value, shape, path)
    else:
        yield from _list_misfits(value, shape[0], path)


def _object_misfits(value: object, shape: dict[str, Any], path: str) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield _fault(path, value, "an object")
        return
    for key, inner in shape.items():
        if key in value:
            yield from _misfits(value[key], inner, _joined(path, key))


def _list_misfits(value: object, shape: dict[str, Any], path: str) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield _fault(path, value, "a list")
        return
    for index, item in enumerate(value):
        yield from _object_misfits(item, shape, f"{path}[{index}]")


def _annotation_misfits(notes: object, path: str) -> Iterator[Fault]:
    if notes is None:
        return
    if not isinstance(notes, dict):
        yield _fault(path, notes, "an object")
        return
    for key, value in notes.items():
        if not isinstance(value, str):
            yield _fault(f"{path}[{key}]", value, "a string")


def _joined(path: str, key: str) -> str:
    # A prefix such as `spec.template.` ends with its dot already.
    return f"{path}{key}" if not path or path.endswith(".") else f"{path}.{key}"


def _fault(path: str, value: object, expected: str) -> Fault:
    return Fault(path.rstrip(".") or "object", value, f"must be {expected}")
