"""What of a KubeSchedulerConfiguration is heeded here: the scheduler's name, and one extender."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DEFAULT_TIMEOUT: Final = 5.0


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class Extender:
    """How to call an extender.

    Attributes:
        url: in front of the verbs.
        filter_verb: empty when it does not filter.
        prioritize_verb: empty when it does not score.
        bind_verb: empty when it does not bind.
        weight: what its scores are multiplied by.
        caches_nodes: whether it is told nodes by name only.
        seconds: that a call may take.
        managed: resources whose pods concern it; none for all pods.
        ignored: those of them that kube-scheduler itself does not count.
    """

    url: str
    filter_verb: str
    prioritize_verb: str
    bind_verb: str
    weight: int
    caches_nodes: bool
    seconds: float
    managed: frozenset[str]
    ignored: frozenset[str]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The scheduler's name, which pods name to come to it, and its extender."""

    name: str
    extender: Extender


def read_config(config: Mapping[str, Any]) -> SchedulerConfig:
    """Return what a KubeSchedulerConfiguration says.

    Raises:
        ConfigError: it has not exactly one profile and one extender, or a field is not as it must be.
    """
    profiles, extenders = (list(config.get(key) or ()) for key in ("profiles", "extenders"))
    if len(profiles) != 1 or len(extenders) != 1:
        raise ConfigError(f"profiles, extenders: {len(profiles)}, {len(extenders)}: must be one of each here")
    return SchedulerConfig(profiles[0]["schedulerName"], _read_extender(extenders[0]))


def _read_extender(fields: Mapping[str, Any]) -> Extender:
    managed = fields.get("managedResources") or ()
    return Extender(
        url=fields["urlPrefix"].rstrip("/"),
        filter_verb=fields.get("filterVerb", ""),
        prioritize_verb=fields.get("prioritizeVerb", ""),
        bind_verb=fields.get("bindVerb", ""),
        weight=fields.get("weight", 1),
        caches_nodes=fields.get("nodeCacheCapable", False),
        seconds=_seconds(fields.get("httpTimeout", f"{_DEFAULT_TIMEOUT:g}s")),
        managed=frozenset(one["name"] for one in managed),
        ignored=frozenset(one["name"] for one in managed if one.get("ignoredByScheduler")),
    )


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ConfigError(f"extenders[0].httpTimeout: {text!r}: must be a duration such as 30s")
    return float(match[1]) * _SECONDS[match[2]]
