"""Asking the kubelet which containers it gave devices: its PodResources API, v1 (Kubernetes 1.20 and newer)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from plugin.podresources_v1 import api_pb2, api_pb2_grpc
from protocol.names import RESOURCE_GPU

_SECONDS: Final = 5
# One answer names every device of every pod on the node: a node full of shares outgrows gRPC's usual 4 MiB.
_MOST_BYTES: Final = 64 * 1024**2


class PodResourcesError(Exception):
    """The kubelet does not answer; what it knows is unknown."""


@dataclass(frozen=True, slots=True)
class KubeletShare:
    """A container to which the kubelet gave GPU devices.

    Attributes:
        namespace: of the pod.
        pod: its name; the API has no uid.
        container: its name.
        device_ids: which of this plugin's devices.
    """

    namespace: str
    pod: str
    container: str
    device_ids: frozenset[str]


async def kubelet_shares(socket: Path) -> tuple[KubeletShare, ...]:
    """Return every container that the kubelet counts as a holder of `amd.com/gpu`.

    The kubelet lists pods that it has not forgotten; older ones also list those that have ended.

    Args:
        socket: of the kubelet, normally `/var/lib/kubelet/pod-resources/kubelet.sock`.

    Raises:
        PodResourcesError: there is no answer within 5 s.
    """
    options = [("grpc.max_receive_message_length", _MOST_BYTES)]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        stub = api_pb2_grpc.PodResourcesListerStub(channel)
        try:
            answer = await stub.List(api_pb2.ListPodResourcesRequest(), timeout=_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PodResourcesError(f"{socket}: {error.code().name} {error.details()}") from error
    return tuple(_shares(answer))


def _shares(answer: api_pb2.ListPodResourcesResponse) -> Iterator[KubeletShare]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            # Kubelets name a resource once for every NUMA node that its devices are on.
            ids = [one for item in container.devices if item.resource_name == RESOURCE_GPU for one in item.device_ids]
            if ids:
                yield KubeletShare(pod.namespace, pod.name, container.name, frozenset(ids))
