"""ResourceQuotas over GPU memory and compute units: what they say, which pods they count, what a pod costs.

The API server counts an extended resource once per container, whatever the number of GPUs, and takes no notice of
`limits.` keys. Here `amd.com/gpumem` and `amd.com/gpucores` count times the number of GPUs, under each of the
spellings `limits.amd.com/gpumem`, `requests.amd.com/gpumem` and `amd.com/gpumem`; limits and requests are equal for
these resources. What a container leaves out it takes whole: all memory, 100 percent.

A quota with scopes counts the pods that are in all of its scopes, as the API server's own do: `Terminating`,
`NotTerminating`, `BestEffort`, `NotBestEffort`, and `PriorityClass` with its operators. Any other scope counts every
pod: rather too many than too few.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, Final, Self

from protocol.allocation import AllocationError
from protocol.claim import peak
from protocol.demand import ContainerDemand, DemandError, Role, containers, read_demand
from protocol.names import RESOURCE_CORES, RESOURCE_MEMORY
from protocol.pods import Holding, Json, read_holding
from protocol.quantity import QuantityError, parse_quantity

log = logging.getLogger(__name__)

_PREFIXES: Final = ("limits.", "requests.", "")
_UNITS: Final = {RESOURCE_MEMORY: "MiB", RESOURCE_CORES: "%"}
_KEYS: Final = {f"{prefix}{resource}": resource for resource in _UNITS for prefix in _PREFIXES}
_WHOLE_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pod takes of a quota, over all its GPUs: MiB, and percent of one GPU's CUs."""

    memory_mib: int = 0
    cores_percent: int = 0

    def of(self, resource: str) -> int:
        """Return the part that is counted under `amd.com/gpumem` or `amd.com/gpucores`."""
        return self.memory_mib if resource == RESOURCE_MEMORY else self.cores_percent


NOTHING: Final = Cost()


def cost_asked(demands: Sequence[ContainerDemand], whole_mib: int) -> Cost:
    """Return what a pod of these demands costs at most.

    Args:
        demands: of its containers.
        whole_mib: memory of the largest GPU that a container which leaves out `gpumem` may get.
    """
    return _cost((demand, demand.gpus * (demand.memory_mib or whole_mib)) for demand in demands)


def cost_held(holding: Holding) -> Cost:
    """Return what a pod costs that was given this."""
    shares = zip(holding.demands, holding.segments, strict=True)
    return _cost((demand, sum(share.memory_mib for share in segment)) for demand, segment in shares)


def cost_of_pod(pod: Json, whole_mib: int) -> Cost:
    """Return what a bound pod costs: what it holds, or all that it may hold when its annotations do not say.

    Args:
        pod: the pod object.
        whole_mib: memory of the largest GPU of its node.
    """
    try:
        holding = read_holding(pod)
        return NOTHING if holding is None else cost_held(holding)
    except AllocationError:
        pass
    try:
        return cost_asked(read_demand(pod.get("spec") or {}), whole_mib)
    except DemandError:
        return NOTHING  # limits that nobody can give, so it was given nothing


def _cost(containers_mib: Iterable[tuple[ContainerDemand, int]]) -> Cost:
    memory: dict[Role, list[int]] = {role: [] for role in Role}
    cores: dict[Role, list[int]] = {role: [] for role in Role}
    for demand, mib in containers_mib:
        memory[demand.role].append(mib)
        cores[demand.role].append(demand.gpus * (demand.cores_percent or _WHOLE_PERCENT))
    return Cost(peak(memory), peak(cores))


@dataclass(frozen=True, slots=True)
class ScopeFacts:
    """What a quota's scopes ask of a pod.

    Attributes:
        terminating: it has `activeDeadlineSeconds`.
        best_effort: no container has requests or limits of cpu or memory.
        priority_class: name of its priority class; empty for none.
    """

    terminating: bool = False
    best_effort: bool = True
    priority_class: str = ""

    @classmethod
    def of(cls, pod: Json) -> Self:
        """Return the facts of a pod object."""
        spec = pod.get("spec") or {}
        best_effort = not any(_has_cpu_or_memory(container.body) for container in containers(spec))
        return cls(spec.get("activeDeadlineSeconds") is not None, best_effort, str(spec.get("priorityClassName") or ""))


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope of a quota, as `scopeSelector` writes it; one of `scopes` is such a one with `Exists`."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def counts(self, facts: ScopeFacts) -> bool:
        """Return whether a pod is in this scope."""
        match self.name:
            case "Terminating" | "NotTerminating":
                return facts.terminating is (self.name == "Terminating")
            case "BestEffort" | "NotBestEffort":
                return facts.best_effort is (self.name == "BestEffort")
            case "PriorityClass":
                return self._selects(facts.priority_class)
            case _:
                return True

    def _selects(self, priority_class: str) -> bool:
        match self.operator:
            case "In":
                return priority_class in self.values
            case "NotIn":
                return priority_class not in self.values
            case "DoesNotExist":
                return not priority_class
            case _:
                return bool(priority_class)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota that limits GPU memory or compute units.

    Attributes:
        namespace: whose pods it counts.
        name: of the object.
        hard: the limit under each key that is counted here, MiB or percent; 0 admits nothing.
        scopes: a pod is counted if it is in all of them.
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    scopes: tuple[Scope, ...] = ()

    def counts(self, facts: ScopeFacts) -> bool:
        """Return whether the quota counts a pod."""
        return all(scope.counts(facts) for scope in self.scopes)

    def excess(self, used: Cost, asked: Cost) -> str:
        """Return which limit would be passed, with the numbers, or the empty string."""
        for key, hard in self.hard.items():
            resource = _KEYS[key]
            if asked.of(resource) and used.of(resource) + asked.of(resource) > hard:
                numbers = f"{used.of(resource)} of {hard} {_UNITS[resource]} used, {asked.of(resource)} asked"
                return f"quota {self.name}: {key}: {numbers}"
        return ""


def read_quota(item: Json) -> Quota | None:
    """Return what a ResourceQuota object says about GPUs, or None when it says nothing about them."""
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
    hard = {}
    for key, value in (spec.get("hard") or {}).items():
        if key not in _KEYS:
            continue
        try:
            hard[key] = floor(parse_quantity(value))
        except QuantityError as error:
            log.warning("quota %s/%s: spec.hard[%s] counts for nothing: %s", namespace, name, key, error)
    return Quota(namespace, name, hard, _scopes(spec)) if hard else None


def _scopes(spec: Mapping[str, Any]) -> tuple[Scope, ...]:
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    plain = [Scope(str(name)) for name in spec.get("scopes") or ()]
    return (
        *plain,
        *(
            Scope(str(one.get("scopeName")), str(one.get("operator")), tuple(one.get("values") or ()))
            for one in selector
        ),
    )


def _has_cpu_or_memory(body: Mapping[str, Any]) -> bool:
    resources = body.get("resources") or {}
    amounts = [(resources.get(kind) or {}).get(name) for kind in ("limits", "requests") for name in ("cpu", "memory")]
    return any(amount is not None and _is_positive(amount) for amount in amounts)


def _is_positive(amount: object) -> bool:
    try:
        return parse_quantity(amount) > 0
    except QuantityError:
        return True
