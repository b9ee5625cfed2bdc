"""Conditions of a pod that a test waits for, by name."""

import json

from tests.cluster.api import Object, Predicate

PHASES = ("Pending", "Running", "Succeeded", "Failed")
DELETED = "Deleted"


def pod_predicate(condition: str) -> Predicate:
    """Translate a name: a phase, `Deleted`, or a condition type such as `Ready` or `PodScheduled`.

    `Running` means that all containers run, not only that the pod has this phase.
    """
    if condition == DELETED:
        return lambda pod: pod is None
    if condition == "Running":
        return lambda pod: pod is not None and _phase(pod) == condition and _all_run(pod)
    if condition in PHASES:
        return lambda pod: pod is not None and _phase(pod) == condition
    return lambda pod: pod is not None and has_condition(pod, condition)


def has_condition(item: Object, condition: str) -> bool:
    """Tell whether a pod's or node's condition is true."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


def is_hopeless(pod: Object | None, condition: str) -> bool:
    """Tell whether a pod has ended in another way than the awaited one."""
    return pod is not None and condition != DELETED and _phase(pod) in {"Succeeded", "Failed"} - {condition}


def describe(item: Object | None) -> str:
    """Return an object's status as text for a message."""
    return "it does not exist" if item is None else json.dumps(item.get("status", {}), indent=1)


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase"))


def _all_run(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return len(statuses) == len(pod["spec"]["containers"]) and all("running" in one["state"] for one in statuses)
