"""Label and field selectors."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from embedded.apiserver.errors import bad_request
from embedded.apiserver.resources import Resource

Json = Mapping[str, Any]
Labels = Mapping[str, str]
Selector = Callable[[Json], bool]

_KEY: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_TERMS: Final = re.compile(r",(?![^()]*\))")
_SET: Final = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL: Final = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_KEY}|)\s*")
_EXISTS: Final = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_FIELD: Final = re.compile(r"([^=!]+?)(==|=|!=)(.*)")


def anything(_item: Json) -> bool:
    """Select every object."""
    return True


def labels_of(item: Json) -> Labels:
    """Return an object's labels."""
    return (item.get("metadata") or {}).get("labels") or {}


def label_selector(text: str) -> Selector:
    """Return what a `labelSelector` query selects.

    Raises:
        ApiError: 400, it cannot be read.
    """
    if not text.strip():
        return anything
    terms = [_label_term(term) for term in _TERMS.split(text)]
    return lambda item: all(term(labels_of(item)) for term in terms)


def _label_term(term: str) -> Callable[[Labels], bool]:
    if match := _SET.fullmatch(term):
        key, operator, values = match.groups()
        return _requirement(key, "In" if operator == "in" else "NotIn", [value.strip() for value in values.split(",")])
    if match := _EQUAL.fullmatch(term):
        key, operator, value = match.groups()
        return _requirement(key, "NotIn" if operator == "!=" else "In", [value])
    if match := _EXISTS.fullmatch(term):
        return _requirement(match[2], "DoesNotExist" if match[1] else "Exists", [])
    raise bad_request(f"unable to parse requirement: {term!r}")


def _requirement(key: str, operator: str, values: list[str]) -> Callable[[Labels], bool]:
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: key not in labels or labels[key] not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
    raise bad_request(f"{operator!r} is not a valid label selector operator")


def object_selector(selector: Json | None) -> Callable[[Labels], bool]:
    """Return what a LabelSelector object selects; one that is empty or absent selects everything.

    Raises:
        ApiError: 400, it has an operator that there is not.
    """
    selector = selector or {}
    terms = [_requirement(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = selector.get("matchExpressions") or ()
    terms += [_requirement(one["key"], one["operator"], list(one.get("values") or ())) for one in expressions]
    return lambda labels: all(term(labels) for term in terms)


def field_terms(text: str, resource: Resource) -> list[tuple[str, bool, str]]:
    """Return the terms of a `fieldSelector` query: path, whether it must be equal, value.

    Raises:
        ApiError: 400, it cannot be read, or the resource has no such field to select by.
    """
    terms = []
    for term in filter(None, text.split(",")):
        match = _FIELD.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match.groups()
        if path not in {"metadata.name", "metadata.namespace", *resource.fields}:
            raise bad_request(f"field label not supported: {path}")
        terms.append((path, operator != "!=", value))
    return terms


def field_selector(terms: list[tuple[str, bool, str]]) -> Selector:
    """Return what terms of `field_terms` select."""
    if not terms:
        return anything
    return lambda item: all((field_value(item, path) == value) is equal for path, equal, value in terms)


def field_value(item: Json, path: str) -> str:
    """Return an object's field as text; the empty string when it is not set."""
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path == "spec.unschedulable" else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
