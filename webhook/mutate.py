"""Completing a pod that asks for GPUs."""

import copy
from typing import Any, cast

from protocol.names import RESOURCE_GPU, RESOURCES
from protocol.pods import Json
from webhook.library import add_library
from webhook.pod import gpu_containers, other_scheduler, spec_of
from webhook.settings import WebhookSettings


def mutate_pod(pod: Json, settings: WebhookSettings) -> Json:
    """Return the pod as it should be, idempotently: our scheduler, the audit library, `amd.com/gpu` where it is meant.

    The pod itself is never changed; it comes back as it is when it asks for no GPU, or names another scheduler. Faulty
    pods are completed as far as they can be: to refuse them is the validation's part.
    """
    spec = spec_of(pod)
    if not gpu_containers(spec) or other_scheduler(spec, settings.scheduler_name):
        return pod
    mutated = copy.deepcopy(dict(pod))
    spec = cast("dict[str, Any]", mutated["spec"])
    # `ContainerField` shows bodies read-only; these belong to the copy.
    bodies = [cast("dict[str, Any]", container.body) for container in gpu_containers(spec)]
    spec["schedulerName"] = settings.scheduler_name
    for body in bodies:
        _default_gpus(body["resources"])
    if settings.library_volume:
        add_library(spec, bodies, settings.library_dir)
    return mutated


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
