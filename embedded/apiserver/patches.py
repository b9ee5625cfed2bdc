"""Patches: JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

import json
from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException

from embedded.apiserver.errors import ApiError, bad_request, unprocessable, unsupported_media

Json = dict[str, Any]

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


def patched(content_type: str, body: bytes, item: Json) -> Json:
    """Return an object with a patch applied.

    Raises:
        ApiError: 415 for a type of patch that is not known here, 400, 422 or 500 for a patch that cannot be applied.
    """
    if content_type not in {MERGE_PATCH, JSON_PATCH}:
        raise unsupported_media()
    try:
        patch = json.loads(body)
    except ValueError as error:
        # The real API server takes this for its own fault.
        raise ApiError(500, "", "Invalid JSON Patch") from error
    if content_type == JSON_PATCH:
        return json_patched(item, patch)
    if not isinstance(patch, dict):
        raise bad_request("json: a merge patch must be an object")
    merged: Json = merge(item, patch)
    return merged


def json_patched(item: Json, patch: Any) -> Json:
    """Return an object with the operations of a JSON patch applied.

    Raises:
        ApiError: 400, it is no list of operations; 422, one of them does not fit.
    """
    if not isinstance(patch, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        result: Json = jsonpatch.JsonPatch(patch).apply(item)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError) as error:
        raise unprocessable() from error
    return result


def merge(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result
