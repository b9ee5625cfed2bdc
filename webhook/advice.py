"""Warnings: what a user should know about a pod although it is no fault. kubectl prints them."""

from protocol.pods import Json
from webhook.environment import environment_warnings
from webhook.hints import ClusterHints
from webhook.pod import Pod, other_scheduler
from webhook.privilege import privilege_warnings
from webhook.selection import selection_warnings
from webhook.settings import WebhookSettings
from webhook.spelling import spelling_warnings


def pod_warnings(
    pod: Json, settings: WebhookSettings, hints: ClusterHints | None = None, prefix: str = ""
) -> list[str]:
    """Return the warnings about a pod that is being created and has no faults.

    Args:
        pod: the pod.
        settings: of the rules.
        hints: what is known of the cluster.
        prefix: what comes before `metadata` and `spec` in field paths.
    """
    view = Pod.of(pod, prefix)
    misunderstood = [*selection_warnings(view), *spelling_warnings(view)]
    if not view.gpu_containers:
        return misunderstood
    chosen = other_scheduler(view.spec, settings.scheduler_name)
    return [
        *([_scheduler_warning(view, chosen, settings)] if chosen else []),
        *misunderstood,
        *environment_warnings(view),
        *privilege_warnings(view),
        *(hints.warnings(view) if hints and not chosen else []),
    ]


def _scheduler_warning(pod: Pod, chosen: str, settings: WebhookSettings) -> str:
    return (
        f"{pod.spec_path}.schedulerName: the amd.com resources of this pod are not handled by "
        f"{settings.scheduler_name}, which alone can share GPUs; omit schedulerName to use it instead of {chosen}"
    )
