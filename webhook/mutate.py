"""Completing a pod that asks for GPUs."""

from collections.abc import Mapping
from typing import Any

from protocol.demand import wants_gpu
from protocol.names import RESOURCE_GPU, RESOURCES
from protocol.pods import Json
from webhook.environment import complete_environment
from webhook.library import add_library
from webhook.pod import other_scheduler, spec_of
from webhook.settings import WebhookSettings


def mutate_pod(pod: Json, settings: WebhookSettings) -> Json:
    """Return the pod as it should be, idempotently: our scheduler, the audit library, `amd.com/gpu` where it is meant.

    The pod itself is never changed; it comes back as it is when it asks for no GPU, or names another scheduler. What
    did not change is shared with it. Faulty pods are completed as far as they can be: to refuse them is the
    validation's part.
    """
    spec, bodies = _own(spec_of(pod))
    if not bodies or other_scheduler(spec, settings.scheduler_name):
        return pod
    spec["schedulerName"] = settings.scheduler_name
    for body in bodies:
        _default_gpus(body["resources"])
        complete_environment(body)
    if settings.library_volume:
        add_library(spec, bodies, settings.library_dir)
    return {**pod, "spec": spec}


def _own(spec: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a spec whose GPU containers can be changed without changing the original, and these containers."""
    own, bodies = dict(spec), []
    for key in ("initContainers", "containers"):
        if spec.get(key):
            own[key] = [_own_body(body) if wants_gpu(body) else body for body in spec[key]]
            bodies += [body for body in own[key] if wants_gpu(body)]
    return own, bodies


def _own_body(body: Json) -> dict[str, Any]:
    resources = {key: dict(value) if isinstance(value, dict) else value for key, value in body["resources"].items()}
    return {**body, "resources": resources}


def _default_gpus(resources: dict[str, Any]) -> None:
    """Add `amd.com/gpu: 1` where the other resources stand alone.

    The API server copies limits into requests once more after a patch, so requests need the default only when the user
    or the API server has already listed ours there. Requests that name `amd.com/gpu` while limits do not are a fault.
    """
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if RESOURCE_GPU in limits or RESOURCE_GPU in requests or not _names_ours(limits):
        return
    limits[RESOURCE_GPU] = "1"
    if _names_ours(requests):
        requests[RESOURCE_GPU] = "1"


def _names_ours(quantities: dict[str, Any]) -> bool:
    return any(name in quantities for name in RESOURCES)
