"""Pods as the API server holds them once the scheduler has bound them."""

from collections.abc import Iterable, Mapping
from typing import Any

from plugin.discovery import Snapshot
from protocol.allocation import Segments
from protocol.demand import read_demand
from protocol.names import (
    ASSIGNED_NODE,
    BIND_PHASE,
    PHASE_ALLOCATING,
    RESOURCE_CORES,
    RESOURCE_GPU,
    RESOURCE_MEMORY,
)
from protocol.placement import Placement, place
from protocol.pods import annotations, read_holding
from protocol.policy import Policy
from protocol.usage import node_usage

Json = dict[str, Any]

NODE = "node-a"
CREATED = "2026-12-01T10:00:00Z"
LOCKED = "2026-12-01T10:00:05Z"


def container(name: str, gpu: int = 1, *, mem: int | None = None, cores: int | None = None, **more: Any) -> Json:
    """Return a container; `gpu=0` makes one without any."""
    asked = {RESOURCE_GPU: gpu, RESOURCE_MEMORY: mem, RESOURCE_CORES: cores}
    limits = {key: str(value) for key, value in asked.items() if value}
    return {"name": name, "image": "example", "resources": {"limits": limits}, **more}


def bound_pod(
    name: str,
    containers: list[Json],
    snapshot: Snapshot,
    *,
    init: Iterable[Json] = (),
    others: Iterable[Json] = (),
    node: str = NODE,
    namespace: str = "default",
) -> Json:
    """Return a pod that was placed beside the others, as the scheduler does it, and waits for its devices."""
    spec = {"nodeName": node, "initContainers": list(init), "containers": containers}
    usages, unreadable = node_usage(snapshot.devices, others)
    assert not unreadable
    placement = place(read_demand(spec), usages.values(), Policy.SPREAD)
    assert isinstance(placement, Placement)
    notes = {**placement.annotations(), BIND_PHASE: PHASE_ALLOCATING, ASSIGNED_NODE: node}
    return pod(name, spec, notes, namespace=namespace)


def pod(name: str, spec: Mapping[str, Any], notes: Mapping[str, str], *, namespace: str = "default") -> Json:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED,
        "annotations": dict(notes),
    }
    return {"metadata": metadata, "spec": dict(spec), "status": {"phase": "Pending"}}


def path_of(item: Json) -> str:
    return f"/api/v1/namespaces/{item['metadata']['namespace']}/pods/{item['metadata']['name']}"


def lock_for(item: Json) -> str:
    return f"{LOCKED},{item['metadata']['namespace']},{item['metadata']['name']}"


def segments_of(item: Json) -> Segments:
    holding = read_holding(item)
    assert holding is not None
    return holding.segments


def with_notes(item: Json, **notes: str) -> Json:
    """Return the pod with other annotations; a key's last part, with `_` for `-`, is its name."""
    keys = {key.rpartition("/")[2].replace("-", "_"): key for key in annotations(item)}
    changed = {**annotations(item), **{keys[name]: value for name, value in notes.items()}}
    return {**item, "metadata": {**item["metadata"], "annotations": changed}}
