"""Environment of GPU containers: the kubelet prefers a pod's own variables to the device plugin's, which set limits."""

from collections.abc import Iterator
from typing import Any, Final

from protocol.demand import ContainerField
from protocol.faults import Fault
from protocol.names import (
    ENV_AUDIT,
    ENV_CU_MASK,
    ENV_HIP_VISIBLE_DEVICES,
    ENV_MEMORY_LIMIT,
    ENV_TUNABLES,
    ENV_VISIBLE_DEVICES,
    LIBRARY_DIR,
    LIBRARY_NAME,
    STATIC_TLS_TUNABLE,
)
from protocol.pods import Json
from webhook.pod import Pod

LIBRARY: Final = f"{LIBRARY_DIR}/{LIBRARY_NAME}"

RESERVED: Final = frozenset(
    {
        ENV_VISIBLE_DEVICES,
        ENV_HIP_VISIBLE_DEVICES,
        ENV_CU_MASK,
        # These two are other ways to the same mask in AMD's runtime.
        "HSA_CU_MASK_SKIP_INIT",
        "ROC_GLOBAL_CU_MASK",
        # Where the container's processes count their memory together.
        "AMVGPU_REGION",
        # What counts as memory of the GPU.
        "AMVGPU_HSA",
        "AMVGPU_MANAGED",
    }
)
RESERVED_EXPECTATION: Final = (
    "must not be set in a container with amd.com resources: it would take the place of what the device plugin sets"
)
AUDIT_EXPECTATION: Final = f"must contain {LIBRARY}, the library that enforces GPU memory limits, joined by ':'"
AUDIT_SOURCE_EXPECTATION: Final = (
    "must be a plain value for LD_AUDIT, to which the library that enforces GPU memory limits can be joined"
)

_JOINED: Final = frozenset({ENV_AUDIT, ENV_TUNABLES})
_JUDGED: Final = RESERVED | _JOINED
_TUNABLE_NAME: Final = STATIC_TLS_TUNABLE.partition("=")[0]


def environment_faults(pod: Pod) -> list[Fault]:
    """Return a fault for every variable of a GPU container that lifts its limits."""
    return [fault for container in pod.gpu_containers for fault in _faults(container)]


def environment_warnings(pod: Pod) -> list[str]:
    """Return warnings about variables that nobody can see, or that cannot be completed."""
    return [text for container in pod.gpu_containers for text in _warnings(container)]


def complete_environment(body: dict[str, Any]) -> None:
    """Join our parts to the variables of a GPU container that the user sets too; other variables stay as they are."""
    env = body.get("env") or []
    if any(variable.get("name") in _JOINED for variable in env):
        body["env"] = [_completed(variable) for variable in env]


def _completed(variable: Json) -> Json:
    if _has_source(variable):
        return variable
    value = variable.get("value") or ""
    if variable.get("name") == ENV_AUDIT and not _has_library(value):
        return {**variable, "value": _joined(LIBRARY, value)}
    if variable.get("name") == ENV_TUNABLES and not _has_tunable(value):
        return {**variable, "value": _joined(value, STATIC_TLS_TUNABLE)}
    return variable


def _faults(container: ContainerField) -> Iterator[Fault]:
    for field, variable in _variables(container):
        name, value = variable.get("name") or "", variable.get("value") or ""
        if name in RESERVED or name.startswith(ENV_MEMORY_LIMIT):
            yield Fault(f"{field}.name", name, RESERVED_EXPECTATION)
        elif name == ENV_AUDIT and _has_source(variable):
            yield Fault(f"{field}.valueFrom", "", AUDIT_SOURCE_EXPECTATION, kind="Forbidden")
        elif name == ENV_AUDIT and not _has_library(value):
            yield Fault(f"{field}.value", value, AUDIT_EXPECTATION)


def _warnings(container: ContainerField) -> Iterator[str]:
    if container.body.get("envFrom"):
        yield (
            f"{container.path}.envFrom: cannot be checked; it must not set HSA_CU_MASK, HIP_DEVICE_MEMORY_LIMIT, "
            "LD_AUDIT and their like, which would take the place of what the device plugin sets"
        )
    for field, variable in _variables(container):
        if variable.get("name") == ENV_TUNABLES and _has_source(variable):
            yield (
                f"{field}.valueFrom: {STATIC_TLS_TUNABLE} cannot be joined to it; "
                "without it a program with a preloaded allocator may not start"
            )


def _variables(container: ContainerField) -> Iterator[tuple[str, Json]]:
    """Yield the variables that the rules are about; a container may have thousands of others."""
    for index, variable in enumerate(container.body.get("env") or ()):
        name = variable.get("name") or ""
        if name in _JUDGED or name.startswith(ENV_MEMORY_LIMIT):
            yield f"{container.path}.env[{index}]", variable


def _has_source(variable: Json) -> bool:
    return variable.get("valueFrom") is not None


def _has_library(value: str) -> bool:
    return LIBRARY in value.split(":")


def _has_tunable(value: str) -> bool:
    return any(part.partition("=")[0] == _TUNABLE_NAME for part in value.split(":"))


def _joined(*parts: str) -> str:
    return ":".join(part for part in parts if part)
