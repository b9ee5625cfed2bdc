"""Refusals in the words and numbers of a real API server: Status objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from embedded.apiserver.resources import Resource

Json = dict[str, Any]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class ApiError(Exception):
    """A request is refused.

    Attributes:
        code: HTTP status.
        reason: of the Status object; empty for errors that a real API server has no reason for.
        details: of the Status object; None for none.
    """

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def status(self) -> Json:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            **({"reason": self.reason} if self.reason else {}),
            **({"details": dict(self.details)} if self.details is not None else {}),
            "code": self.code,
        }


def success(resource: Resource | None = None, name: str = "", uid: str = "", code: int = 0) -> Json:
    """Return the Status object of a request that was carried out."""
    details = {"details": details_of(resource, name, uid=uid)} if resource else {}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        **details,
        **({"code": code} if code else {}),
    }


def details_of(resource: Resource, name: str, *, kind: str = "", **more: Any) -> Json:
    """Return the details of a Status about one object; empty members are left out."""
    found = {"name": name, "group": resource.group, "kind": kind or resource.plural, **more}
    return {key: value for key, value in found.items() if value}


def not_found(resource: Resource, name: str) -> ApiError:
    """404: there is no such object."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details_of(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: there is such an object."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details_of(resource, name))


def conflict(resource: Resource, name: str, words: str = MODIFIED, subresource: str = "") -> ApiError:
    """409: the object is not as the request presumes."""
    suffix = f"/{subresource}" if subresource else ""
    message = f'Operation cannot be fulfilled on {resource.qualified}{suffix} "{name}": {words}'
    return ApiError(409, "Conflict", message, details_of(resource, name, kind=f"{resource.plural}{suffix}"))


def precondition_failed(resource: Resource, name: str, words: str) -> ApiError:
    """409: a precondition of a deletion does not hold."""
    message = f'Operation cannot be fulfilled on {resource.kind} "{name}": {words}'
    return ApiError(409, "Conflict", message, details_of(resource, name, kind=resource.kind))


def invalid(resource: Resource, name: str, faults: Sequence[tuple[str, str, str]], *, kind: str = "") -> ApiError:
    """422: fields are wrong.

    Args:
        resource: whose.
        name: of the object.
        faults: field, machine-readable reason such as `FieldValueRequired`, and words for each.
        kind: how the message names the kind, where it is not that of the objects.
    """
    group = f".{resource.group}" if resource.group else ""
    words = [f"{field}: {message}" for field, _, message in faults]
    joined = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    causes = [{"reason": reason, "message": message, "field": field} for field, reason, message in faults]
    details = details_of(resource, name, kind=kind or resource.kind, causes=causes)
    return ApiError(422, "Invalid", f'{kind or resource.kind}{group} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> ApiError:
    """400: the request makes no sense."""
    return ApiError(400, "BadRequest", message)


def no_such_resource() -> ApiError:
    """404: the API has no such resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_allowed() -> ApiError:
    """405: the resource has no such verb."""
    words = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", words, {})


def unsupported_media() -> ApiError:
    """415: the body is of a type that is not understood."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def unprocessable() -> ApiError:
    """422: a JSON patch does not fit the object."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def expired(message: str) -> ApiError:
    """410: what a resource version or token names is not remembered any more."""
    return ApiError(410, "Expired", message)


def too_new(wanted: int, known: int) -> ApiError:
    """504: a resource version lies in the future."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    words = f"Timeout: Too large resource version: {wanted}, current: {known}"
    return ApiError(504, "Timeout", words, {"causes": [cause], "retryAfterSeconds": 1})


def unauthorized() -> ApiError:
    """401: the token is nobody's."""
    return ApiError(401, "Unauthorized", "Unauthorized")
