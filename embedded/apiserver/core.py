"""The verbs: what creating, reading, changing, binding and deleting does. HTTP comes on top, storage lies below."""

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from embedded.apiserver import kinds
from embedded.apiserver.admission import Admission, Warn
from embedded.apiserver.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    expired,
    invalid,
    not_found,
    precondition_failed,
    success,
    too_new,
)
from embedded.apiserver.identity import User
from embedded.apiserver.resources import NAMESPACES, PODS, Resource, Target
from embedded.apiserver.rules import Request
from embedded.apiserver.selectors import anything, field_selector, field_terms, label_selector
from embedded.apiserver.store import Key, Store, Stored

Json = dict[str, Any]
Change = Callable[[Json], Json]

_ATTEMPTS: Final = 5
_SNAPSHOTS_KEPT: Final = 100
_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_NAME_SUFFIX: Final = 5


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls, and how.

    Attributes:
        user: who.
        dry_run: whether nothing is to be stored.
        warn: is told the webhooks' warnings.
    """

    user: User
    dry_run: bool = False
    warn: Warn = lambda _words: None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list.

    Attributes:
        items: the objects.
        version: resource version of the whole list.
        token: to ask for the rest with, empty at the end.
        left: how many objects come after these; 0 where that is not told.
    """

    items: list[Stored]
    version: int
    token: str = ""
    left: int = 0


class Core:
    """The verbs.

    Args:
        store: the objects.
        admission: the webhooks.
        now: the wall clock.
    """

    def __init__(self, store: Store, admission: Admission, *, now: Callable[[], datetime] = _utc_now) -> None:
        self.store = store
        self._admission = admission
        self._now = now
        self._snapshots: dict[str, tuple[list[Stored], int, bool]] = {}

    def get(self, target: Target) -> Stored:
        """Return an object.

        Raises:
            ApiError: 404.
        """
        found = self.store.collection(target.resource).get((target.namespace, target.name))
        if found is None:
            raise not_found(target.resource, target.name)
        return found

    def page(
        self,
        target: Target,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        at_least: int = 0,
    ) -> Page:
        """Return the objects of a collection, a page of them where a limit is set.

        Later pages are of the same moment as the first one.

        Args:
            target: the collection.
            labels: label selector.
            fields: field selector.
            limit: most objects of a page, 0 for all.
            token: of the page before.
            at_least: resource version that the list must not be older than.

        Raises:
            ApiError: 400 for a selector that cannot be read; 410 for a token that is not remembered any more; 504 for a
                version that is yet to come.
        """
        if at_least > self.store.version:
            raise too_new(at_least, self.store.version)
        if token:
            if token not in self._snapshots:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            rest, version, counted = self._snapshots.pop(token)
        else:
            rest, version = self._selected(target, labels, fields), self.store.version
            counted = not labels and not fields
        if not limit or len(rest) <= limit:
            return Page(rest, version)
        return Page(
            rest[:limit], version, self._remember(rest[limit:], version, counted), counted * (len(rest) - limit)
        )

    def _selected(self, target: Target, labels: str, fields: str) -> list[Stored]:
        by_label = label_selector(labels)
        terms = field_terms(fields, target.resource)
        by_field = field_selector(terms)
        equal = [(path, value) for path, is_equal, value in terms if is_equal]
        found = self.store.collection(target.resource).all(target.namespace, equal)
        if by_label is anything and by_field is anything:
            return found
        return [one for one in found if by_label(one.item) and by_field(one.item)]

    def _remember(self, rest: list[Stored], version: int, counted: bool) -> str:
        if len(self._snapshots) >= _SNAPSHOTS_KEPT:
            self._snapshots.pop(next(iter(self._snapshots)))
        token = secrets.token_urlsafe()
        self._snapshots[token] = (rest, version, counted)
        return token

    async def create(self, target: Target, body: Json, call: Call) -> Stored:
        """Create an object in a collection.

        Raises:
            ApiError: it cannot be.
        """
        resource = target.resource
        item = self._named(_read(target, body))
        metadata = item["metadata"]
        if metadata.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        self._check_namespace(target)
        item = kinds.defaulted(resource, item)
        request = Request("CREATE", target.named(metadata.get("name", "")), call.user, dry_run=call.dry_run)
        item = await self._admission.mutate(request, item, call.warn)
        kinds.check_name(resource, item["metadata"])
        kinds.check(resource, item)
        await self._admission.validate(request, item, call.warn)
        item = kinds.created(resource, {**item, "metadata": self._stamped(resource, item["metadata"])})
        if self.store.collection(resource).get(_key(item)) is not None:
            raise already_exists(resource, item["metadata"]["name"])
        return self._put(resource, item, call)

    def _check_namespace(self, target: Target) -> None:
        if target.namespace and self.store.collection(NAMESPACES).get(("", target.namespace)) is None:
            raise not_found(NAMESPACES, target.namespace)

    @staticmethod
    def _named(item: Json) -> Json:
        metadata = item["metadata"]
        if metadata.get("name") or not metadata.get("generateName"):
            return item
        suffix = "".join(secrets.choice(_NAME_LETTERS) for _ in range(_NAME_SUFFIX))
        return {**item, "metadata": {"name": f"{metadata['generateName']}{suffix}", **metadata}}

    def _stamped(self, resource: Resource, metadata: Json) -> Json:
        generation = {"generation": 1} if resource.counts_generations else {}
        return {**metadata, "uid": str(uuid.uuid4()), **generation, "creationTimestamp": _text(self._now())}

    async def replace(self, target: Target, body: Json, call: Call) -> tuple[Stored, bool]:
        """Replace an object, or its status; return it and whether it is new.

        Raises:
            ApiError: it cannot be.
        """
        item = _read(target, body)
        name = item["metadata"].get("name")
        if name != target.name:
            words = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            raise bad_request(words)
        exists = self.store.collection(target.resource).get((target.namespace, target.name)) is not None
        if not exists and target.resource.creates_on_put and not target.subresource:
            return await self.create(target, body, call), True
        return await self._update(target, lambda _old: item, call, is_put=True), False

    async def patch(self, target: Target, apply: Change, call: Call) -> Stored:
        """Change an object, or its status, by a function of it.

        Raises:
            ApiError: it cannot be.
        """
        return await self._update(target, apply, call, is_put=False)

    async def _update(self, target: Target, change: Change, call: Call, *, is_put: bool) -> Stored:
        for _ in range(_ATTEMPTS):
            old = self.get(target)
            item = await self._updated(target, old, change, call, is_put=is_put)
            if self.store.collection(target.resource).get((target.namespace, target.name)) is not old:
                continue  # somebody was faster while the webhooks were asked
            if {**item, "metadata": {**item["metadata"], "resourceVersion": str(old.version)}} == old.item:
                return old
            return self._put(target.resource, item, call)
        raise conflict(target.resource, target.name)

    async def _updated(self, target: Target, old: Stored, change: Change, call: Call, *, is_put: bool) -> Json:
        resource = target.resource
        wanted = kinds.defaulted(resource, {"kind": resource.kind, **change(old.item)})
        wanted = {key: value for key, value in wanted.items() if key not in {"kind", "apiVersion"}}
        _check_preconditions(target, old, wanted["metadata"], is_put=is_put)
        item = kinds.merged(resource, old.item, wanted, target.subresource)
        request = Request("UPDATE", target, call.user, old.item, call.dry_run)
        item = kinds.merged(
            resource, old.item, await self._admission.mutate(request, item, call.warn), target.subresource
        )
        kinds.check(resource, item)
        kinds.check_update(resource, old.item, item)
        await self._admission.validate(request, item, call.warn)
        return item

    async def bind(self, target: Target, body: Json, call: Call) -> Json:
        """Bind a pod to a node, once and for ever.

        Raises:
            ApiError: 409 when it is bound or being deleted, or is another pod, or (as from Kubernetes 1.23 on) another
                version of it than the Binding says.
        """
        node = (body.get("target") or {}).get("name")
        if not node:
            raise ApiError(500, "", "target.name: Required value")
        pod = Target(PODS, target.namespace, target.name)
        request = Request("CREATE", target, call.user, dry_run=call.dry_run)
        binding = {key: value for key, value in body.items() if key not in {"kind", "apiVersion"}}
        await self._admission.validate(request, binding, call.warn)
        old = self.get(pod)
        self._check_binding(pod, old, body.get("metadata") or {})
        metadata = dict(old.item["metadata"])
        notes = {**(metadata.get("annotations") or {}), **((body.get("metadata") or {}).get("annotations") or {})}
        if notes:
            metadata["annotations"] = notes
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": _text(self._now()),
        }
        others = [one for one in old.item["status"].get("conditions") or () if one.get("type") != "PodScheduled"]
        status = {**old.item["status"], "conditions": [*others, condition]}
        spec = {**old.item["spec"], "nodeName": node}
        self._put(PODS, {**old.item, "metadata": metadata, "spec": spec, "status": status}, call)
        return success(code=201)

    @staticmethod
    def _check_binding(pod: Target, old: Stored, wanted: Mapping[str, Any]) -> None:
        bound = old.item["spec"].get("nodeName")
        words = ""
        if "deletionTimestamp" in old.item["metadata"]:
            words = f"pod {pod.name} is being deleted, cannot be assigned to a host"
        elif bound:
            words = f'pod {pod.name} is already assigned to node "{bound}"'
        elif wanted.get("uid") not in {None, "", old.item["metadata"]["uid"]}:
            words = f"the UID in the precondition ({wanted['uid']}) does not match the UID in record"
        elif wanted.get("resourceVersion") not in {None, "", str(old.version)}:
            words = f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match"
        if words:
            raise conflict(PODS, pod.name, words, "binding")

    async def delete(self, target: Target, options: Mapping[str, Any], call: Call) -> Json:
        """Delete an object; a bound pod is only marked, until its kubelet deletes it without grace.

        Raises:
            ApiError: 404, or 409 where a precondition does not hold.
        """
        old = self.get(target)
        _check_deletion(target, old, options.get("preconditions") or {})
        request = Request("DELETE", target, call.user, old.item, call.dry_run)
        await self._admission.validate(request, None, call.warn)
        old = self.get(target)
        resource = target.resource
        if resource is PODS:
            old = self._mark_deleted(old, options.get("gracePeriodSeconds"), call)
            if old.item["metadata"]["deletionGracePeriodSeconds"] > 0:
                return _typed(resource, old.item)
        if not call.dry_run:
            self.store.remove(resource, _key(old.item))
        if resource.returns_deleted:
            return _typed(resource, old.item)
        return success(resource, target.name, old.item["metadata"]["uid"])

    def _mark_deleted(self, old: Stored, asked: object, call: Call) -> Stored:
        """Return the pod with its time of deletion; a time that is set can only be made shorter."""
        metadata, spec = old.item["metadata"], old.item["spec"]
        grace = asked if isinstance(asked, int) and asked >= 0 else int(spec.get("terminationGracePeriodSeconds", 30))
        if not spec.get("nodeName") or old.item["status"].get("phase") in {"Succeeded", "Failed"}:
            grace = 0
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return old
        end = _text(self._now() + timedelta(seconds=grace))
        marked = {**metadata, "deletionTimestamp": end, "deletionGracePeriodSeconds": grace}
        return self._put(PODS, {**old.item, "metadata": marked}, call)

    def _put(self, resource: Resource, item: Json, call: Call) -> Stored:
        return Stored.of(item, self.store.version) if call.dry_run else self.store.put(resource, item)


def _read(target: Target, body: Json) -> Json:
    """Return a body as an object of the target's kind and namespace, without kind and apiVersion but with metadata."""
    resource = target.resource
    found = (body.get("apiVersion", resource.api_version), body.get("kind", resource.kind))
    if found != (resource.api_version, resource.kind):
        raise bad_request(
            f'{found[1]} in version "{found[0]}" cannot be handled as a {resource.kind}: unknown conversion'
        )
    metadata = dict(body.get("metadata") or {})
    if resource.namespaced:
        if metadata.get("namespace") not in {None, "", target.namespace}:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = target.namespace
    return {**body, "metadata": metadata}


def _check_preconditions(target: Target, old: Stored, wanted: Mapping[str, Any], *, is_put: bool) -> None:
    version = wanted.get("resourceVersion")
    uid = wanted.get("uid")
    known = old.item["metadata"]["uid"]
    if is_put and not version and target.resource.needs_version:
        fault = ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0x0: must be specified for an update")
        raise invalid(target.resource, target.name, [fault], kind=target.resource.plural)
    if version and version != str(old.version):
        raise conflict(target.resource, target.name)
    if uid and uid != known:
        if is_put:
            words = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            raise conflict(target.resource, target.name, words)
        fault = ("metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable')
        raise invalid(target.resource, target.name, [fault])


def _check_deletion(target: Target, old: Stored, wanted: Mapping[str, Any]) -> None:
    known = {"uid": ("UID", old.item["metadata"]["uid"]), "resourceVersion": ("ResourceVersion", str(old.version))}
    for key, (name, value) in known.items():
        if wanted.get(key) not in {None, value}:
            words = f"the {name} in the precondition ({wanted[key]}) does not match the {name} in record ({value})"
            raise precondition_failed(target.resource, target.name, words)


def _typed(resource: Resource, item: Json) -> Json:
    return {"kind": resource.kind, "apiVersion": resource.api_version, **item}


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
