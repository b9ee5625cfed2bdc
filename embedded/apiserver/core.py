"""The verbs: what creating, reading, changing, binding and deleting does. HTTP comes on top, storage lies below."""

import json
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from embedded.apiserver import kinds, preconditions
from embedded.apiserver.admission import Admission, Warn
from embedded.apiserver.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    not_found,
    success,
)
from embedded.apiserver.identity import User
from embedded.apiserver.pages import Lists
from embedded.apiserver.resources import NAMESPACES, PODS, Resource, Target
from embedded.apiserver.rules import Request
from embedded.apiserver.store import Key, Store, Stored

Json = dict[str, Any]
Change = Callable[[Json], Json]

_ATTEMPTS: Final = 5
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


class Core:
    """The verbs. Lists are `lists.page`.

    Args:
        store: the objects.
        admission: the webhooks.
        now: the wall clock.
    """

    def __init__(self, store: Store, admission: Admission, *, now: Callable[[], datetime] = _utc_now) -> None:
        self.store = store
        self.lists = Lists(store)
        self._admission = admission
        self._now = now

    def get(self, target: Target) -> Stored:
        """Return an object.

        Raises:
            ApiError: 404.
        """
        found = self.store.collection(target.resource).get((target.namespace, target.name))
        if found is None:
            raise not_found(target.resource, target.name)
        return found

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
        changed = change(old.item)
        wanted = kinds.defaulted(resource, {"kind": resource.kind, **changed, "metadata": _metadata(resource, changed)})
        wanted = {key: value for key, value in wanted.items() if key not in {"kind", "apiVersion"}}
        preconditions.check_update(target, old, wanted["metadata"], is_put=is_put)
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
        preconditions.check_binding(pod, old, body.get("metadata") or {})
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

    async def delete(self, target: Target, options: Mapping[str, Any], call: Call) -> Json:
        """Delete an object; a bound pod is only marked, until its kubelet deletes it without grace.

        Raises:
            ApiError: 404, or 409 where a precondition does not hold.
        """
        old = self.get(target)
        preconditions.check_deletion(target, old, options.get("preconditions") or {})
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
    metadata = _metadata(resource, body)
    if resource.namespaced:
        if metadata.get("namespace") not in {None, "", target.namespace}:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = target.namespace
    return {**body, "metadata": metadata}


def _metadata(resource: Resource, body: Mapping[str, Any]) -> Json:
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        found = f"{json.dumps(metadata)[:80]} is no object"
        raise bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled: metadata: {found}')
    return dict(metadata)


def _typed(resource: Resource, item: Json) -> Json:
    return {"kind": resource.kind, "apiVersion": resource.api_version, **item}


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
