"""What steps are decided from: what the API server holds, what this replica serves, and how old that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

from certs import bundle
from certs.authority import fingerprint, is_issued_by
from certs.bundle import Configuration
from certs.secret import Served, Stored

NO_HURRY: Final = float("inf")


class Kind(Enum):
    """What a step does. All but the last three write the Secret; TRUST writes a webhook configuration."""

    PREPARE = auto()
    """Make an authority and keep it as the next one."""
    ADOPT = auto()
    """Keep authorities that are trusted but unknown to the Secret as previous ones."""
    ISSUE = auto()
    """Make a serving certificate of the authority in force."""
    PROMOTE = auto()
    """Put the next authority in force, with a serving certificate of it."""
    RETIRE = auto()
    """Put the previous authorities among those that nobody needs."""
    FORGET = auto()
    """Forget replicas that are gone."""
    PUBLISH = auto()
    """Say what this replica serves."""
    TRUST = auto()
    """Write the CA bundle into one webhook configuration."""
    LOAD = auto()
    """Serve the certificate that the Secret holds."""
    WAIT = auto()
    """Nothing for now."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        kind: what to do.
        reason: why, for the log.
        authorities: for ADOPT and PREPARE, certificates to keep as previous ones.
        served: for PUBLISH, what to say.
        replicas: for FORGET, which.
        configuration: for TRUST, which of the world's.
        content: for TRUST, the CA bundle.
        seconds: for WAIT, until when at the latest.
    """

    kind: Kind
    reason: str
    authorities: tuple[bytes, ...] = ()
    served: Served | None = None
    replicas: frozenset[str] = frozenset()
    configuration: int = 0
    content: bytes = b""
    seconds: float = NO_HURRY


@dataclass(frozen=True, slots=True)
class World:
    """What the API server holds; the configurations were read before the Secret. None: there is no such object."""

    stored: Stored | None
    configurations: tuple[Configuration | None, ...]

    def trusts(self, certificate: bytes) -> bool:
        """Return whether every webhook of every configuration trusts this authority."""
        name = fingerprint(certificate)
        return all(one is not None and one.trusts(name) for one in self.configurations)

    @property
    def obstacle(self) -> str:
        """Why nothing can be made trusted; empty when it can."""
        return "a webhook configuration is not there" if None in self.configurations else ""

    def trusted(self) -> dict[str, bytes]:
        """Return the authorities that any webhook trusts, by fingerprint."""
        found: dict[str, bytes] = {}
        for one in self.configurations:
            for content in one.bundles if one else ():
                found |= bundle.authorities(content)
        return found


@dataclass(frozen=True, slots=True)
class Own:
    """This replica: its name, the names its certificate must cover, what it serves, and until when that is valid."""

    replica: str
    names: tuple[str, ...]
    served: Served | None = None
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ages:
    """For how many seconds this replica has seen the world as it is now.

    Attributes:
        trust: authorities that all configurations trust, by fingerprint, and the configurations unchanged.
        overlap: the authority in force beside the previous ones.
        replicas: each replica with what it serves, and the certificate that it should serve.
    """

    trust: Mapping[str, float] = field(default_factory=dict)
    overlap: float = 0.0
    replicas: Mapping[str, float] = field(default_factory=dict)


def target(stored: Stored | None, names: tuple[str, ...]) -> Served | None:
    """Return what replicas should serve; None when the Secret holds no whole certificate for these names."""
    if stored is None or stored.authority is None or stored.serving is None:
        return None
    if not is_issued_by(stored.serving, stored.authority, names):
        return None
    return Served(fingerprint(stored.serving.certificate), fingerprint(stored.authority.certificate))


def wanted_bundle(stored: Stored) -> bytes:
    """Return the CA bundle that every webhook should have."""
    pairs = [pair.certificate for pair in (stored.authority, stored.next) if pair is not None]
    return bundle.join([*pairs, *stored.previous])
