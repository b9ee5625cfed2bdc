"""Admission: webhooks that may change an object one after the other, then those that may only refuse it all at once."""

import asyncio
import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

from embedded.apiserver.callout import Caller, CallError
from embedded.apiserver.errors import ApiError
from embedded.apiserver.kinds import defaulted
from embedded.apiserver.patches import json_patched
from embedded.apiserver.resources import MUTATING, NAMESPACES, VALIDATING, Resource
from embedded.apiserver.rules import Request, concerned
from embedded.apiserver.store import Store

Json = dict[str, Any]
Warn = Callable[[str], None]


class Admission:
    """Asks the webhooks of the configurations that are stored.

    Args:
        store: holds the configurations and the namespaces.
        caller: calls them.
    """

    def __init__(self, store: Store, caller: Caller) -> None:
        self._store = store
        self._caller = caller

    async def mutate(self, request: Request, item: Json, warn: Warn) -> Json:
        """Return the object as the mutating webhooks want it.

        Those that ask for it are called once more when a later one changed the object after them.

        Raises:
            ApiError: one of them refuses, or cannot be asked and must be.
        """
        called: list[tuple[Json, Json]] = []
        for webhook in self._webhooks(MUTATING):
            if not self._concerns(webhook, request, item):
                continue
            item = await self._mutated(webhook, request, item, warn)
            called.append((webhook, item))
        for webhook, seen in called:
            if webhook.get("reinvocationPolicy") == "IfNeeded" and seen != item:
                item = await self._mutated(webhook, request, item, warn)
        return item

    async def validate(self, request: Request, item: Json | None, warn: Warn) -> None:
        """Ask the validating webhooks.

        Raises:
            ApiError: one of them refuses, or cannot be asked and must be.
        """
        webhooks = [one for one in self._webhooks(VALIDATING) if self._concerns(one, request, item)]
        asked = (self._ask(webhook, request, item, warn) for webhook in webhooks)
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _webhooks(self, kind: Resource) -> list[Json]:
        configurations = self._store.collection(kind).all("")
        return [webhook for one in configurations for webhook in one.item.get("webhooks") or ()]

    def _concerns(self, webhook: Json, request: Request, item: Json | None) -> bool:
        namespace = self._store.collection(NAMESPACES).get(("", request.target.namespace))
        return any(concerned([webhook], request, item, namespace.item if namespace else None))

    async def _mutated(self, webhook: Json, request: Request, item: Json, warn: Warn) -> Json:
        response = await self._ask(webhook, request, item, warn)
        if not response or not response.get("patch"):
            return item
        try:
            patch = json.loads(base64.b64decode(response["patch"], validate=True))
            changed = json_patched(item, patch)
        except (ValueError, ApiError) as error:
            raise _internal(f'failed to apply the patch of webhook "{webhook["name"]}": {error}') from error
        return defaulted(request.target.resource, changed)

    async def _ask(self, webhook: Json, request: Request, item: Json | None, warn: Warn) -> Json | None:
        """Return a webhook's response, None when it could not be asked and need not be."""
        try:
            response = await self._caller.ask(webhook, _review(request, item))
        except CallError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return None
            raise _internal(f'failed calling webhook "{webhook["name"]}": {error}') from error
        for words in response.get("warnings") or ():
            warn(words)
        if not response.get("allowed"):
            raise _denied(webhook["name"], response.get("status") or {})
        return response


def _review(request: Request, item: Json | None) -> Json:
    target = request.target
    resource = target.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    place = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    subresource = {"subResource": target.subresource, "requestSubResource": target.subresource}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": place,
            "requestKind": kind,
            "requestResource": place,
            **(subresource if target.subresource else {}),
            **({"name": target.name} if target.name else {}),
            **({"namespace": target.namespace} if target.namespace else {}),
            "operation": request.operation,
            "userInfo": request.user.info(),
            "object": item and {"kind": resource.kind, "apiVersion": resource.api_version, **item},
            "oldObject": request.old and {"kind": resource.kind, "apiVersion": resource.api_version, **request.old},
            "dryRun": request.dry_run,
            "options": {"kind": f"{request.operation.title()}Options", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _denied(name: str, status: Json) -> ApiError:
    words = status.get("message") or status.get("reason")
    message = f'admission webhook "{name}" denied the request{f": {words}" if words else " without explanation"}'
    return ApiError(max(int(status.get("code") or 0), 400), status.get("reason") or "", message, status.get("details"))


def _internal(words: str) -> ApiError:
    details = {"causes": [{"message": words}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {words}", details)
