"""For how long this process has seen something unchanged, by its own monotonic clock."""

from collections.abc import Collection, Hashable
from typing import Final

from certs.authority import fingerprint
from certs.secret import Stored
from certs.world import Ages, Own, World, target

_REPLICA: Final = "replica"


class Observations:
    """Remembers since when each part of the world has been as it is. A process that has just begun knows nothing."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def look(self, world: World, own: Own, monotonic: float) -> Ages:
        """Take note of the world as it is at this moment, and return how old its parts are.

        Args:
            world: read before `monotonic`, so that no age is overestimated.
            own: this replica.
            monotonic: seconds.
        """
        stored = world.stored or Stored()
        trust, overlap, replicas = _trust(world, stored), _overlap(stored), _replicas(stored, own)
        present = {*trust.values(), overlap, *replicas.values()}
        self._since = {key: self._since.get(key, monotonic) for key in present}
        ages = {key: monotonic - since for key, since in self._since.items()}
        return Ages(
            {name: ages[key] for name, key in trust.items()},
            ages[overlap],
            {name: ages[key] for name, key in replicas.items()},
        )

    def forget(self, replicas: Collection[str]) -> None:
        """Begin anew with these replicas: one that was struck off and is back has the whole time again."""
        self._since = {
            key: since
            for key, since in self._since.items()
            if not (isinstance(key, tuple) and key[0] == _REPLICA and key[1] in replicas)
        }


def _trust(world: World, stored: Stored) -> dict[str, Hashable]:
    """Return a key for each trusted authority of the Secret, which changes with each change of a configuration."""
    # Generations tell even of changes that were taken back between two looks.
    versions = tuple(one.version for one in world.configurations if one)
    pairs = [pair for pair in (stored.authority, stored.next) if pair is not None and world.trusts(pair.certificate)]
    names = [fingerprint(pair.certificate) for pair in pairs]
    return {name: ("trust", name, versions) for name in names}


def _overlap(stored: Stored) -> Hashable:
    authority = fingerprint(stored.authority.certificate) if stored.authority else None
    return "overlap", authority, stored.previous


def _replicas(stored: Stored, own: Own) -> dict[str, Hashable]:
    wanted = target(stored, own.names)
    return {name: (_REPLICA, name, served, wanted) for name, served in stored.replicas.items()}
