"""A pod's claim on a GPU, and each container's part of it.

Init containers run alone, before the containers, so a pod's claim is what its sidecars need together, plus the larger
of what one init container needs and what its containers need together. Sidecars run beside all that follow and share
with nobody.

The pod's CUs on a GPU stand in the annotation in container order: the parts of sidecars and containers one after the
other, then what an init container needs beyond the containers' parts.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from protocol.allocation import AllocationError, DeviceShare, Segments
from protocol.cuchoice import choose_cus
from protocol.demand import Role
from protocol.devices import DeviceInfo


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod holds of one GPU: MiB of memory and number of CUs."""

    memory_mib: int
    cu_count: int


def pod_claims(roles: Sequence[Role], segments: Segments) -> dict[str, Claim]:
    """Return the pod's claim by device id.

    Args:
        roles: of the containers, init containers first.
        segments: their shares, at the same positions.
    """
    by_role: dict[str, dict[Role, list[DeviceShare]]] = defaultdict(lambda: {role: [] for role in Role})
    for role, segment in zip(roles, segments, strict=True):
        for share in segment:
            by_role[share.device_id][role].append(share)
    return {
        device_id: Claim(
            memory_mib=peak({role: [share.memory_mib for share in held] for role, held in shares.items()}),
            cu_count=peak({role: [share.cu_count for share in held] for role, held in shares.items()}),
        )
        for device_id, shares in by_role.items()
    }


def container_cus(
    roles: Sequence[Role],
    segments: Segments,
    pod_cus: Mapping[str, Sequence[int]],
    position: int,
    devices: Mapping[str, DeviceInfo],
) -> list[tuple[int, ...]]:
    """Return the CU ids of one container, for each of its shares, sorted.

    Args:
        roles: of the containers, init containers first.
        segments: their shares, at the same positions.
        pod_cus: all CUs of the pod by device id, in the annotation's order.
        position: which container.
        devices: the node's GPUs by id.

    Raises:
        AllocationError: the pod's CUs on a GPU are fewer than its containers' shares, or a GPU is not on the node.
    """
    parts = []
    for share in segments[position]:
        device = devices.get(share.device_id)
        if device is None:
            raise AllocationError(f"GPU {share.device_id!r} is not on this node")
        ids = tuple(pod_cus.get(share.device_id, ()))
        if roles[position] is Role.INIT:
            part = choose_cus(ids[_sidecar_cus(roles, segments, share.device_id) :], share.cu_count, device)
        else:
            start = sum(held.cu_count for held in _running(roles, segments, share.device_id, before=position))
            part = ids[start : start + share.cu_count]
        if part is None or len(part) != share.cu_count:
            raise AllocationError(f"GPU {share.device_id!r}: {len(ids)} CUs are too few for the pod's containers")
        parts.append(tuple(sorted(part)))
    return parts


def peak(by_role: Mapping[Role, Sequence[int]]) -> int:
    """Return what containers need at their worst moment, of amounts that each of them needs, by role."""
    return sum(by_role[Role.SIDECAR]) + max(max(by_role[Role.INIT], default=0), sum(by_role[Role.APP]))


def _running(roles: Sequence[Role], segments: Segments, device_id: str, *, before: int) -> Iterator[DeviceShare]:
    """Yield the shares of sidecars and containers on a GPU that stand before a position."""
    for role, segment in zip(roles[:before], segments[:before], strict=True):
        if role is not Role.INIT:
            yield from (share for share in segment if share.device_id == device_id)


def _sidecar_cus(roles: Sequence[Role], segments: Segments, device_id: str) -> int:
    return sum(
        share.cu_count
        for role, segment in zip(roles, segments, strict=True)
        if role is Role.SIDECAR
        for share in segment
        if share.device_id == device_id
    )
