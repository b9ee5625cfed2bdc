"""Which admission webhooks a request concerns."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from embedded.apiserver.identity import User
from embedded.apiserver.resources import NAMESPACES, Target
from embedded.apiserver.selectors import labels_of, object_selector

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What admission is asked about.

    Attributes:
        operation: CREATE, UPDATE, DELETE.
        target: of the request, with the object's name where it is known.
        user: who asks.
        old: the object before, None for a new one.
        dry_run: whether nothing will be stored.
    """

    operation: str
    target: Target
    user: User
    old: Json | None = None
    dry_run: bool = False


def concerned(webhooks: Iterable[Json], request: Request, item: Json | None, namespace: Json | None) -> Iterator[Json]:
    """Yield the webhooks that are to be called, in their order.

    Args:
        webhooks: of one or more configurations.
        request: see Request.
        item: the object after, None for a deletion.
        namespace: the object that the target's namespace is; None for a resource without.
    """
    for webhook in webhooks:
        in_rules = any(_matches(rule, request) for rule in webhook.get("rules") or ())
        if in_rules and _selects(webhook, request, item, namespace):
            yield webhook


def _matches(rule: Mapping[str, Any], request: Request) -> bool:
    resource = request.target.resource
    scope = rule.get("scope", "*")
    return (
        _contains(rule["operations"], request.operation)
        and _contains(rule["apiGroups"], resource.group)
        and _contains(rule["apiVersions"], resource.version)
        and any(_is_resource(pattern, request.target) for pattern in rule["resources"])
        and scope in {"*", "Namespaced" if resource.namespaced else "Cluster"}
    )


def _contains(values: Iterable[str], value: str) -> bool:
    return any(one in {"*", value} for one in values)


def _is_resource(pattern: str, target: Target) -> bool:
    plural, _, subresource = pattern.partition("/")
    if pattern == "*":
        return not target.subresource
    return plural in {"*", target.resource.plural} and subresource in (
        {"*", target.subresource} if target.subresource or subresource == "*" else {""}
    )


def _selects(webhook: Mapping[str, Any], request: Request, item: Json | None, namespace: Json | None) -> bool:
    found = item if request.target.resource is NAMESPACES else namespace
    if found is not None and not object_selector(webhook.get("namespaceSelector"))(labels_of(found)):
        return False
    selector = object_selector(webhook.get("objectSelector"))
    return any(selector(labels_of(one)) for one in (item, request.old) if one is not None)
