"""Refusing a pod that asks for what nobody can give, or that would take what is not its own."""

from typing import Final

from protocol.demand import DemandError, read_demand
from protocol.faults import Fault
from protocol.pods import Json
from webhook.environment import environment_faults
from webhook.library import mount_faults
from webhook.pod import Pod
from webhook.privilege import privilege_faults
from webhook.reserved import reserved_faults
from webhook.selection import selection_faults
from webhook.settings import WebhookSettings

NODE_NAME_EXPECTATION: Final = (
    "must not be set on a pod that asks for amd.com resources, it bypasses the scheduler: "
    "use nodeSelector or nodeAffinity with kubernetes.io/hostname"
)


def validate_pod(pod: Json, settings: WebhookSettings, prefix: str = "") -> list[Fault]:
    """Return everything that is wrong with a pod that is being created.

    It holds for every scheduler: no other one can make sense of a wrong value either. A pod that asks for no GPU can
    only be wrong by claiming to have been given some.

    Args:
        pod: the pod, of the right shape.
        settings: of the rules.
        prefix: what comes before `metadata` and `spec` in field paths.
    """
    view = Pod.of(pod, prefix)
    faults = reserved_faults(view)
    if view.gpu_containers:
        faults[:0] = [
            *_demand_faults(view),
            *_node_faults(view),
            *mount_faults(view, settings.library_dir),
            *environment_faults(view),
            *privilege_faults(view, settings),
            *selection_faults(view),
        ]
    return faults


def _demand_faults(pod: Pod) -> tuple[Fault, ...]:
    try:
        read_demand(pod.spec, pod.spec_path)
    except DemandError as error:
        return error.faults
    return ()


def _node_faults(pod: Pod) -> list[Fault]:
    node = pod.spec.get("nodeName")
    return [Fault(f"{pod.spec_path}.nodeName", node, NODE_NAME_EXPECTATION, kind="Forbidden")] if node else []
