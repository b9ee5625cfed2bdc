"""What a pod asks for: `amd.com/*` limits of its containers, read once, for every service.

The webhook refuses by it, the scheduler places by it, the plugin checks by it, so that they can never disagree.
Containers are numbered as Kubernetes allocates them: init containers first, then containers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from protocol.faults import Fault
from protocol.names import RESOURCE_CORES, RESOURCE_GPU, RESOURCE_MEMORY, RESOURCES
from protocol.quantity import QuantityError, parse_quantity

MAX_GPUS: Final = 64
"""More GPUs than any machine has; a larger number is a unit gone wrong."""
MAX_MEMORY_MIB: Final = 2 * 1024 * 1024
"""2 TiB, several times what any GPU has; a larger number is bytes where MiB were meant."""

_MIB: Final = 1024**2


class Role(Enum):
    """How long a container runs, which decides with whom it shares."""

    INIT = "init"
    """Runs alone, before the containers: its share may be reused by them."""
    SIDECAR = "sidecar"
    """An init container with `restartPolicy: Always`: runs beside all that follow."""
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerDemand:
    """What one container asks for.

    Attributes:
        position: index among init containers and containers, in this order; the index of its segment in annotations.
        name: the container's name.
        role: see Role.
        gpus: how many GPUs, 0 for a container without any.
        memory_mib: MiB on each of them; None for all of it.
        cores_percent: percent of each GPU's CUs; None for all of them.
    """

    position: int
    name: str
    role: Role
    gpus: int = 0
    memory_mib: int | None = None
    cores_percent: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerField:
    """A container of a pod manifest and where it stands."""

    position: int
    path: str
    role: Role
    body: Mapping[str, Any]


class DemandError(ValueError):
    """The pod's limits ask for something that nobody can give; `faults` says what, field by field."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)


def containers(spec: Mapping[str, Any], path: str = "spec") -> Iterator[ContainerField]:
    """Yield every container of a pod spec, init containers first.

    Args:
        spec: a pod spec as JSON.
        path: where the spec stands in its object, for field paths.
    """
    position = 0
    for key in ("initContainers", "containers"):
        for index, body in enumerate(spec.get(key) or ()):
            sidecar = body.get("restartPolicy") == "Always"
            role = Role.APP if key == "containers" else Role.SIDECAR if sidecar else Role.INIT
            yield ContainerField(position, f"{path}.{key}[{index}]", role, body)
            position += 1


def wants_gpu(body: Mapping[str, Any]) -> bool:
    """Return whether a container names one of the resources, in limits or requests, rightly or wrongly."""
    resources = body.get("resources") or {}
    return any(name in (resources.get(kind) or {}) for kind in ("limits", "requests") for name in RESOURCES)


def read_demand(spec: Mapping[str, Any], path: str = "spec") -> tuple[ContainerDemand, ...]:
    """Return the demand of every container of a pod spec, those without GPUs included, by position.

    `gpumem` or `gpucores` without `gpu` ask for one GPU.

    Raises:
        DemandError: with every fault of every container.
    """
    demands: list[ContainerDemand] = []
    faults: list[Fault] = []
    for container in containers(spec, path):
        demand, found = _read_container(container)
        demands.append(demand)
        faults.extend(found)
    if faults:
        raise DemandError(faults)
    return tuple(demands)


def _read_container(container: ContainerField) -> tuple[ContainerDemand, list[Fault]]:
    resources = container.body.get("resources") or {}
    limits = resources.get("limits") or {}
    field = f"{container.path}.resources.limits"
    faults: list[Fault] = []
    gpus = _integer(limits, RESOURCE_GPU, field, faults, f"must be an integer from 1 to {MAX_GPUS}", MAX_GPUS)
    cores = _integer(limits, RESOURCE_CORES, field, faults, "must be an integer percentage between 1 and 100", 100)
    memory = _integer(limits, RESOURCE_MEMORY, field, faults, _memory_hint(limits.get(RESOURCE_MEMORY)), MAX_MEMORY_MIB)
    faults.extend(_request_faults(resources, container.path))
    if gpus is None:
        gpus = 1 if any(name in limits for name in RESOURCES) else 0
    name = str(container.body.get("name", ""))
    return ContainerDemand(container.position, name, container.role, gpus, memory, cores), faults


def _integer(
    limits: Mapping[str, object], name: str, field: str, faults: list[Fault], expected: str, maximum: int
) -> int | None:
    if name not in limits:
        return None
    try:
        number = parse_quantity(limits[name])
    except QuantityError:
        number = Fraction(0)
    if number.denominator == 1 and 1 <= number <= maximum:
        return number.numerator
    faults.append(Fault(f"{field}[{name}]", limits[name], expected))
    return None


def _memory_hint(value: object) -> str:
    """Return what gpumem must be, and for a number of bytes the MiB that were probably meant."""
    expected = "must be an integer number of MiB greater than 0"
    try:
        mib = parse_quantity(value) / _MIB
    except QuantityError:
        return expected
    if 1 <= mib <= MAX_MEMORY_MIB:
        return f"{expected}, without a suffix: for {value} write {int(mib)}"
    return f"{expected} and at most {MAX_MEMORY_MIB}"


def _request_faults(resources: Mapping[str, Any], path: str) -> list[Fault]:
    """The API server wants requests of extended resources equal to their limits; it says so only for its own pass."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return [
        Fault(f"{path}.resources.requests[{name}]", requests[name], _request_expectation(name, limits))
        for name in RESOURCES
        if name in requests and not _same(requests[name], limits.get(name))
    ]


def _request_expectation(name: str, limits: Mapping[str, object]) -> str:
    if name not in limits:
        return f"must not be set without resources.limits[{name}]"
    return f"must equal resources.limits[{name}], which is {limits[name]}"


def _same(request: object, limit: object) -> bool:
    try:
        return parse_quantity(request) == parse_quantity(limit)
    except QuantityError:
        return request == limit
