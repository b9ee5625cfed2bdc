"""Refusing a pod that asks for what nobody can give."""

from typing import Final

from protocol.demand import DemandError, read_demand
from protocol.faults import Fault
from protocol.pods import Json, node_name
from webhook.library import mount_faults
from webhook.pod import Spec, gpu_containers, spec_of
from webhook.settings import WebhookSettings

NODE_NAME_EXPECTATION: Final = (
    "must not be set on a pod that asks for amd.com resources, it bypasses the scheduler: "
    "use nodeSelector or nodeAffinity with kubernetes.io/hostname"
)


def validate_pod(pod: Json, settings: WebhookSettings) -> list[Fault]:
    """Return everything that is wrong with a pod that is being created; nothing for a pod that asks for no GPU.

    It holds for every scheduler: no other one can make sense of a wrong value either.
    """
    spec = spec_of(pod)
    if not gpu_containers(spec):
        return []
    return [*_demand_faults(spec), *_node_faults(pod), *mount_faults(spec, settings.library_dir)]


def _demand_faults(spec: Spec) -> tuple[Fault, ...]:
    try:
        read_demand(spec)
    except DemandError as error:
        return error.faults
    return ()


def _node_faults(pod: Json) -> list[Fault]:
    node = node_name(pod)
    return [Fault("spec.nodeName", node, NODE_NAME_EXPECTATION, kind="Forbidden")] if node else []
