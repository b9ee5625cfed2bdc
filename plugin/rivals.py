"""Pods that an Allocate call may be for besides the holder of the node's lock.

A pod that came past the scheduler holds no lock, and the kubelet does not say for which pod it asks. While one waits
for as many devices as the holder does the call could be for either, and would hand the holder's share to the other.
"""

from collections.abc import Iterable, Iterator, Sequence

from plugin.ledger import Entry
from plugin.podresources import KubeletShare
from plugin.repeats import was_started
from protocol.demand import containers
from protocol.names import RESOURCE_GPU
from protocol.pods import Json, PodRef, is_ending, is_finished

Waiting = tuple[PodRef, str]
"""A pod, and the name of a container that waits for its devices."""


def find_rivals(
    holder: PodRef, devices: int, on_node: Sequence[Json], standing: Iterable[Entry]
) -> tuple[Waiting, ...]:
    """Return the containers that may wait for so many devices, the holder's own left out.

    What their annotations say does not count: where the webhook was away anybody may have written them. A pod that is
    being deleted and was not started is not admitted any more.

    Args:
        holder: of the node's lock.
        devices: how many the kubelet asks for.
        on_node: all pods that are bound to the node.
        standing: the ledger's entries of pods that are not over.
    """
    served = {(entry.pod, name) for entry in standing for name in entry.kubelet_ids}
    others = (pod for pod in on_node if PodRef.of(pod) != holder and not is_finished(pod) and not is_ending(pod))
    return tuple(one for pod in others for one in _asking(pod, devices) if one not in served)


def without_devices(rivals: Iterable[Waiting], shares: Iterable[KubeletShare]) -> tuple[Waiting, ...]:
    """Return the containers to which the kubelet has given no devices yet."""
    given = {(share.namespace, share.pod, share.container) for share in shares}
    return tuple((pod, name) for pod, name in rivals if (pod.namespace, pod.name, name) not in given)


def _asking(pod: Json, devices: int) -> Iterator[Waiting]:
    for container in containers(pod.get("spec") or {}):
        limits = (container.body.get("resources") or {}).get("limits") or {}
        name = str(container.body.get("name", ""))
        # The API server writes every quantity in one way only, and devices are whole numbers.
        if str(limits.get(RESOURCE_GPU, "")) == str(devices) and not was_started(pod, name):
            yield PodRef.of(pod), name
