"""AdmissionReview `admission.k8s.io/v1`, in and out."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self

from protocol.pods import Json

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

LARGE_BODY: Final = 256 * 1024
"""Bytes from which on a body is worth a thread."""
MAX_ELEMENTS: Final = 500_000
"""Of lists and objects in a body. No object of 3 MiB has as many, while small ones by the million fill the memory."""
TOO_DEEP: Final = "the body is nested too deeply"

Patch = Sequence[Mapping[str, Any]]

# The API server cuts longer ones, and drops all of them when together they are too long.
_WARNING_LENGTH: Final = 255
_MARKS: Final = (b"amd.com/", b"hami.io/")
_ESCAPES: Final = (b"\\u00", b"\\/")
_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 422: "Invalid"}


class ReviewError(ValueError):
    """The body is no AdmissionReview of version v1; the text says why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Group, version and kind of an object; the core group is the empty string."""

    group: str
    version: str
    name: str


@dataclass(frozen=True, slots=True)
class User:
    """Who makes the request."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Review:
    """What the API server asks.

    Attributes:
        uid: of the request, not of the object.
        kind: of the object.
        sub_resource: such as `ephemeralcontainers`; empty for the object itself.
        operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
        namespace: of the request. The object's own may still be empty: controllers leave it to the URL.
        object: the object as it would be stored, None for a deletion.
        old_object: the object as it is stored, None for a creation.
        dry_run: whether nothing will be stored.
        user: who makes the request.
    """

    uid: str
    kind: Kind
    sub_resource: str
    operation: str
    namespace: str
    object: Json | None
    old_object: Json | None
    dry_run: bool
    user: User

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read a request's body.

        Raises:
            ReviewError: it is no AdmissionReview v1, or lacks what every request has.
        """
        if body.count(b",") > MAX_ELEMENTS:
            raise ReviewError(f"the body has more than {MAX_ELEMENTS} elements")
        request = _request(_decode(body))
        operation = _text(request, "operation", required=True)
        new = _mapping(request, "object")
        if operation == CREATE and new is None:
            raise ReviewError("request.object is missing")
        return cls(
            uid=_text(request, "uid", required=True),
            kind=_kind(request),
            sub_resource=_text(request, "subResource"),
            operation=operation,
            namespace=_text(request, "namespace"),
            object=new,
            old_object=_mapping(request, "oldObject"),
            dry_run=request.get("dryRun") is True,
            user=_user(request),
        )

    @property
    def name(self) -> str:
        """The object's name for people: controllers send only `generateName`, and some send neither."""
        metadata = (self.object or self.old_object or {}).get("metadata")
        if not isinstance(metadata, dict):
            return self.uid
        generated = metadata.get("generateName")
        return str(metadata.get("name") or (f"{generated}*" if generated else self.uid))


def may_concern(body: bytes) -> bool:
    """Return whether a body may name a resource or an annotation of ours; most name none, and need no rules.

    JSON can also write these characters as escape sequences: where there is one for such a character, it may.
    """
    return any(mark in body for mark in _MARKS) or (b"\\" in body and any(escape in body for escape in _ESCAPES))


def allow(uid: str, patch: Patch | None = None, warnings: Iterable[str] = ()) -> dict[str, Any]:
    """Return the answer that lets a request pass, with changes where there are any."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        text = json.dumps(list(patch), separators=(",", ":"))
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(text.encode()).decode()}
    shown = [_warning(text) for text in warnings]
    if shown:
        response["warnings"] = shown
    return _envelope(response)


def deny(uid: str, message: str, code: int = 422) -> dict[str, Any]:
    """Return the answer that refuses a request."""
    status = {"code": code, "reason": _REASONS.get(code, "Forbidden"), "message": message}
    return _envelope({"uid": uid, "allowed": False, "status": status})


def _envelope(response: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def _warning(text: str) -> str:
    # It travels in an HTTP header, which takes no control characters.
    return "".join(char if char.isprintable() else " " for char in text)[:_WARNING_LENGTH]


def _decode(body: bytes) -> Json:
    try:
        # With a hook of Python's, the parser of a big body in a thread lets other threads in between.
        hook = _same if len(body) > LARGE_BODY else None
        review = json.loads(body.decode(), parse_constant=_refuse_constant, object_hook=hook)
    except RecursionError as error:
        raise ReviewError(TOO_DEEP) from error
    except ValueError as error:
        raise ReviewError("the body is not JSON") from error
    if not isinstance(review, dict):
        raise ReviewError("the body is not a JSON object")
    return review


def _same(item: dict[str, Any]) -> dict[str, Any]:
    return item


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _request(review: Json) -> Json:
    if review.get("kind") != KIND:
        raise ReviewError(f"kind is not {KIND}")
    if review.get("apiVersion") != API_VERSION:
        raise ReviewError(f"apiVersion is not {API_VERSION}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise ReviewError("request is missing")
    return request


def _kind(request: Json) -> Kind:
    kind = _mapping(request, "kind") or {}
    return Kind(_text(kind, "group"), _text(kind, "version"), _text(kind, "kind", required=True))


def _user(request: Json) -> User:
    info = _mapping(request, "userInfo") or {}
    groups = info.get("groups") or []
    if not isinstance(groups, list):
        raise ReviewError("request: groups is not a list")
    return User(_text(info, "username"), tuple(str(group) for group in groups))


def _text(fields: Json, key: str, *, required: bool = False) -> str:
    value = fields.get(key)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise ReviewError(f"request: {key} is not a string")
    if required and not value:
        raise ReviewError(f"request: {key} is missing")
    return value


def _mapping(fields: Json, key: str) -> Json | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise ReviewError(f"request: {key} is not an object")
    return value
