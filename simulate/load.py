"""The pods of a simulation: manifests, or a trace with a line for each pod."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.names import RESOURCE_CORES, RESOURCE_GPU, RESOURCE_MEMORY
from protocol.selection import GPU_POLICY, LISTS, NODE_POLICY
from simulate.objects import ObjectsError, read_objects

MAX_PODS: Final = 1_000_000
_COLUMNS: Final = {"gpu": RESOURCE_GPU, "gpumem": RESOURCE_MEMORY, "gpucores": RESOURCE_CORES}
_TIMES: Final = ("arrival", "duration")
_ALL_COLUMNS: Final = ("name", *_TIMES, "count", *_COLUMNS)
_HINT: Final = f"columns of a trace are {', '.join(_ALL_COLUMNS)}"
_REPLICAS: Final = ("replicas", "parallelism")

Json = Mapping[str, Any]


class LoadError(ValueError):
    """The pods cannot be read; the message says where and what would be right."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes.

    Attributes:
        pod: as a user writes it.
        at: seconds since the beginning.
        duration: seconds that it runs; None for ever.
    """

    pod: Json
    at: float = 0.0
    duration: float | None = None


def read_pods(text: str, *, is_trace: bool) -> tuple[Arrival, ...]:
    """Return the pods of a file in the order in which they come.

    Args:
        text: YAML or JSON manifests of pods and of workloads with a pod template, or a trace.
        is_trace: whether it is a trace, as CSV.

    Raises:
        LoadError: it cannot be read, or has no pod.
    """
    arrivals = sorted(_trace(text) if is_trace else _manifests(text), key=lambda one: one.at)
    if not arrivals:
        raise LoadError(f"there is no pod: {_HINT}" if is_trace else "there is no pod, and no workload with a template")
    if len(arrivals) > MAX_PODS:
        raise LoadError(f"{len(arrivals)} pods: must be at most {MAX_PODS}")
    return tuple(arrivals)


def _trace(text: str) -> Iterator[Arrival]:
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    unknown = [name for name in rows.fieldnames or () if name not in {*_ALL_COLUMNS, *LISTS, NODE_POLICY, GPU_POLICY}]
    if unknown or not rows.fieldnames:
        raise LoadError(f"line 1: column {', '.join(unknown) or 'names'}: {_HINT}, and the selection annotations")
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise LoadError(f"line {number}: must have {len(rows.fieldnames)} fields, as line 1 has")
        at, duration = (_seconds(row, column, number) for column in _TIMES)
        name = row.get("name") or f"line-{number}"
        count = _count(row, number)
        for copy in range(count):
            yield Arrival(_traced_pod(row, name if count == 1 else f"{name}-{copy}"), at or 0.0, duration)


def _seconds(row: Mapping[str, str], column: str, line: int) -> float | None:
    text = row.get(column) or ""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise LoadError(f"line {line}: {column}: {text!r}: must be a number of seconds, 0 or more, or empty")
    return seconds


def _count(row: Mapping[str, str], line: int) -> int:
    text = row.get("count") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PODS:
        raise LoadError(f"line {line}: count: {text!r}: must be an integer from 1 to {MAX_PODS}, or empty")
    return int(text)


def _traced_pod(row: Mapping[str, str], name: str) -> Json:
    limits = {resource: row[column] for column, resource in _COLUMNS.items() if row.get(column)}
    notes = {key: row[key] for key in (*LISTS, NODE_POLICY, GPU_POLICY) if row.get(key)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return _numbered({"metadata": {"annotations": notes}, "spec": spec}, name)


def _manifests(text: str) -> Iterator[Arrival]:
    try:
        items = list(read_objects(text))
    except ObjectsError as error:
        raise LoadError(str(error)) from error
    for item in items:
        yield from _of_manifest(item)


def _of_manifest(item: Json) -> Iterator[Arrival]:
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    name = str(metadata.get("name") or metadata.get("generateName") or "pod")
    if item.get("kind") == "Pod":
        yield Arrival(_numbered(item, name))
        return
    template = spec.get("template") or {}
    if "spec" not in template:
        return  # a Service, a ConfigMap: no pods come of it
    replicas = next((spec[key] for key in _REPLICAS if key in spec), 1)
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= MAX_PODS:
        raise LoadError(f"{item.get('kind')} {name}: replicas: {replicas!r}: must be an integer from 0 to {MAX_PODS}")
    for number in range(replicas):
        yield Arrival(_numbered(template, f"{name}-{number}"))


def _numbered(pod: Json, name: str) -> Json:
    """Return a pod with what the API server would give it."""
    metadata = dict(pod.get("metadata") or {})
    metadata |= {"name": name, "namespace": metadata.get("namespace") or "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": pod.get("spec") or {}, "status": {"phase": "Pending"}}
