"""What a real API server adds to objects of each kind, takes off them and refuses, as far as clients here notice."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from embedded.apiserver.errors import ApiError, bad_request, invalid
from embedded.apiserver.quantities import canonical_all
from embedded.apiserver.resources import (
    EVENTS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    SECRETS,
    VALIDATING,
    Resource,
)

Json = dict[str, Any]

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253
_NAME_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_SYSTEM_FIELDS: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_POD_MAY_CHANGE: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_POD_CHANGES: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing "
    "tolerations)"
)


def check_name(resource: Resource, metadata: Mapping[str, Any]) -> None:
    """Refuse a name that no object may have.

    Raises:
        ApiError: 422.
    """
    name = metadata.get("name") or ""
    if not name:
        fault = ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
        raise invalid(resource, "", [fault])
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _SUBDOMAIN.fullmatch(name):
        fault = ("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}')
        raise invalid(resource, str(name), [fault])


def defaulted(resource: Resource, item: Json) -> Json:
    """Return an object with the defaults of its kind, as admission webhooks see it.

    Raises:
        ApiError: 400, a field is of the wrong type.
    """
    default = _DEFAULTS.get(resource)
    try:
        return default(item) if default else item
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        message = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        raise bad_request(message) from error


def check(resource: Resource, item: Json) -> None:
    """Refuse an object that no real API server would store.

    Raises:
        ApiError: 422.
    """
    if resource is PODS and not (item.get("spec") or {}).get("containers"):
        name = item["metadata"].get("name", "")
        raise invalid(resource, name, [("spec.containers", "FieldValueRequired", "Required value")])


def created(resource: Resource, item: Json) -> Json:
    """Return a new object without what only servers may say of it."""
    if resource is PODS:
        return {**item, "status": {"phase": "Pending", "qosClass": _quality(item["spec"])}}
    if resource is NAMESPACES:
        return {**item, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if resource is QUOTAS:
        return {**item, "status": {}}
    return item


def merged(resource: Resource, old: Json, new: Json, subresource: str) -> Json:
    """Return an object as it is after an update: the parts that this way of updating leaves alone are the old ones."""
    kept = {key: old["metadata"][key] for key in _SYSTEM_FIELDS if key in old["metadata"]}
    metadata = {**{key: value for key, value in new["metadata"].items() if key not in _SYSTEM_FIELDS}, **kept}
    result = {**new, "metadata": metadata}
    if resource.has_status:
        part = "spec" if subresource == "status" else "status"
        result.pop(part, None)
        if part in old:
            result[part] = old[part]
    if resource.counts_generations and old.get("webhooks") != result.get("webhooks"):
        metadata["generation"] = old["metadata"].get("generation", 1) + 1
    return result


def check_update(resource: Resource, old: Json, new: Json) -> None:
    """Refuse a change of what may not change.

    Raises:
        ApiError: 422.
    """
    if resource is PODS and _fixed_part(old["spec"]) != _fixed_part(new.get("spec") or {}):
        raise invalid(resource, old["metadata"]["name"], [("spec", "FieldValueForbidden", _POD_CHANGES)])


def _fixed_part(spec: Mapping[str, Any]) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _POD_MAY_CHANGE}
    for key in ("containers", "initContainers"):
        if key in fixed:
            fixed[key] = [{name: value for name, value in one.items() if name != "image"} for one in fixed[key]]
    return fixed


def _pod(item: Json) -> Json:
    spec = dict(item.get("spec") or {})
    for key in ("initContainers", "containers"):
        if spec.get(key):
            spec[key] = [_container(one) for one in spec[key]]
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }
    return {**item, "spec": {**defaults, **spec}}


def _container(body: Json) -> Json:
    defaults = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    resources = dict(body.get("resources") or {})
    for part in ("limits", "requests"):
        if part in resources:
            resources[part] = canonical_all(resources[part])
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    return {**defaults, **body, "resources": resources}


def _quality(spec: Mapping[str, Any]) -> str:
    """Return the pod's quality of service, by processor and memory alone."""
    counted = {"cpu", "memory"}
    found = [one.get("resources") or {} for key in ("initContainers", "containers") for one in spec.get(key) or ()]
    asked = [{key: value for key, value in (one.get("requests") or {}).items() if key in counted} for one in found]
    limits = [{key: value for key, value in (one.get("limits") or {}).items() if key in counted} for one in found]
    if not any(asked) and not any(limits):
        return "BestEffort"
    return "Guaranteed" if asked == limits and all(set(one) == counted for one in limits) else "Burstable"


def _node(item: Json) -> Json:
    status = dict(item.get("status") or {})
    for part in ("capacity", "allocatable"):
        if part in status:
            status[part] = canonical_all(status[part])
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    return {**item, "spec": item.get("spec") or {}, "status": status}


def _secret(item: Json) -> Json:
    data = dict(item.get("data") or {})
    for key, value in data.items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise bad_request(f'Secret in version "v1" cannot be handled as a Secret: data.{key}: {error}') from error
    for key, value in (item.get("stringData") or {}).items():
        data[key] = base64.b64encode(value.encode()).decode()
    rest = {key: value for key, value in item.items() if key not in {"data", "stringData"}}
    return {**rest, **({"data": data} if data else {}), "type": item.get("type") or "Opaque"}


def _namespace(item: Json) -> Json:
    # Kubernetes 1.21 and newer; selectors of the product's webhooks go by it.
    metadata = item["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata.get("name", "")}
    return {**item, "metadata": {**metadata, "labels": labels}}


def _event(item: Json) -> Json:
    defaults: Json = {
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    return {**defaults, **item}


def _quota(item: Json) -> Json:
    parts = {"spec": dict(item.get("spec") or {}), "status": dict(item.get("status") or {})}
    for part in parts.values():
        for key in ("hard", "used"):
            if key in part:
                part[key] = canonical_all(part[key])
    return {**item, **parts}


def _webhooks(item: Json) -> Json:
    mutating = {"reinvocationPolicy": "Never"} if item.get("kind") == MUTATING.kind else {}
    defaults = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        **mutating,
    }
    webhooks = []
    for one in item.get("webhooks") or ():
        _check_webhook(item, one)
        rules = [{"scope": "*", **rule} for rule in one.get("rules") or ()]
        config = one.get("clientConfig") or {}
        if "service" in config:
            config = {**config, "service": {"port": 443, **config["service"]}}
        webhooks.append({**defaults, **one, "rules": rules, "clientConfig": config})
    return {**item, **({"webhooks": webhooks} if webhooks else {})}


def _check_webhook(item: Json, webhook: Mapping[str, Any]) -> None:
    if "matchConditions" in webhook:
        # Better refused than passed over: what they keep away would come through.
        raise ApiError(501, "", f"{item['metadata'].get('name')}: webhooks[].matchConditions: not supported here")


_DEFAULTS: Final[Mapping[Resource, Callable[[Json], Json]]] = {
    PODS: _pod,
    NODES: _node,
    SECRETS: _secret,
    NAMESPACES: _namespace,
    EVENTS: _event,
    QUOTAS: _quota,
    MUTATING: _webhooks,
    VALIDATING: _webhooks,
}
