"""Warnings: what a user should know about a pod although it is no fault. kubectl prints them."""

from protocol.pods import Json
from webhook.pod import gpu_containers, other_scheduler, spec_of
from webhook.settings import WebhookSettings


def pod_warnings(pod: Json, settings: WebhookSettings) -> list[str]:
    """Return the warnings about a pod that is being created."""
    spec = spec_of(pod)
    chosen = other_scheduler(spec, settings.scheduler_name)
    if not chosen or not gpu_containers(spec):
        return []
    warning = (
        f"spec.schedulerName: the amd.com resources of this pod are not handled by {settings.scheduler_name}, "
        f"which alone can share GPUs; omit schedulerName to use it instead of {chosen}"
    )
    return [warning]
