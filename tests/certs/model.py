"""What the property test of the certificates keeps: the API server, its past, two clocks, replicas."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from certs.engine import Engine, Plan
from tests.certs.fakes import FakeApi


@dataclass
class Version:
    """One content of a webhook configuration, and how long it was in force."""

    bundles: tuple[bytes, ...]
    by_us: bool
    until: float = float("inf")


@dataclass
class Clock:
    monotonic: float = 1000.0
    wall: datetime = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass
class Actor:
    engine: Engine
    looked: float
    plan: Plan | None = None


@dataclass
class Model:
    api: FakeApi = field(default_factory=FakeApi)
    clock: Clock = field(default_factory=Clock)
    history: dict[str, list[Version]] = field(default_factory=dict)
    actors: list[Actor] = field(default_factory=list)
    pods: int = 0
    lost: set[str] = field(default_factory=set)
    """Authorities that somebody has taken out of every object: nobody can know them any more."""
    served_since: float | None = None
    """Since when any replica serves. What API servers had in mind before was of no use to them anyway."""
