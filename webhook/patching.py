"""The JSON patch between a pod and its completed form.

The completed form shares with the original whatever it did not change, so the difference costs what the change does,
however big the pod is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.review import Patch


def patch_between(old: Any, new: Any) -> Patch:
    """Return the operations that make `new` out of `old`. Nothing may have been removed."""
    return list(_operations(old, new, ""))


def _operations(old: Any, new: Any, path: str) -> Iterator[dict[str, Any]]:
    if old is new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key, value in new.items():
            field = f"{path}/{_escaped(key)}"
            if key in old:
                yield from _operations(old[key], value, field)
            else:
                yield {"op": "add", "path": field, "value": value}
    elif isinstance(old, list) and isinstance(new, list):
        for index, value in enumerate(new):
            if index < len(old):
                yield from _operations(old[index], value, f"{path}/{index}")
            else:
                yield {"op": "add", "path": f"{path}/{index}", "value": value}
    elif old != new:
        yield {"op": "replace", "path": path, "value": new}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
