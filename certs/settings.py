"""Where certificates are kept, whom they are for, and how long everything takes."""

import os
import re
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration(text: str) -> timedelta:
    """Return the duration that a text such as `90d`, `12h`, `5m` or `30s` means.

    Raises:
        ValueError: it means none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: write a number and one of s, m, h, d, such as 90d")
    return timedelta(**{_UNITS[match[2]]: float(match[1])})


def format_duration(duration: timedelta) -> str:
    """Return a duration in the spelling that `parse_duration` reads, in the largest unit that has no fraction."""
    seconds = duration.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


@dataclass(frozen=True, slots=True)
class Times:
    """How long everything takes.

    Attributes:
        ca_life: of an authority.
        cert_life: of a serving certificate.
        settle: how long a webhook configuration must have trusted an authority before a certificate of it is served.
            Every API server watches the configurations and learns of a change some time after it is stored.
        retention: how long an authority that was replaced stays trusted at least.
        absence: a replica that does not take a new certificate for so long is gone.
        check: seconds between two looks at everything; changes that can be watched are seen at once.
        retry: seconds to wait after a failure.
        lease: seconds after which another replica takes over the work of one that is gone.
    """

    ca_life: timedelta = timedelta(days=3650)
    cert_life: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(seconds=30)
    retention: timedelta = timedelta(minutes=10)
    absence: timedelta = timedelta(hours=1)
    check: float = 60.0
    retry: float = 2.0
    lease: int = 15

    def __post_init__(self) -> None:
        for name in ("ca_life", "cert_life"):
            if getattr(self, name) <= timedelta():
                raise ValueError(f"{name} must be greater than 0")
        for name in ("settle", "retention", "absence"):
            if getattr(self, name) < timedelta():
                raise ValueError(f"{name} must not be negative")
        if self.cert_life > self.ca_life:
            raise ValueError("cert_life must not be greater than ca_life: a certificate ends with its authority")
        if self.absence < self.settle:
            raise ValueError("absence must not be less than settle: a replica may wait so long before it serves")
        if self.lease < 1:
            raise ValueError("lease must be at least 1 second")


def _this_process() -> str:
    """Return a name that no other replica has and that a restarted container keeps."""
    return f"{socket.gethostname()}_{os.getpid()}"


@dataclass(frozen=True, slots=True)
class CertSettings:
    """Where certificates are kept, and for whom they are.

    Attributes:
        namespace: of the Secret, of the Lease and of the webhook's Service.
        secret: name of the Secret.
        configuration: name of both webhook configurations.
        names: DNS names and IP addresses of the server.
        lease: name of the Lease.
        replica: name of this process among its replicas.
        times: see Times.
    """

    namespace: str
    secret: str
    configuration: str
    names: tuple[str, ...]
    lease: str = "amd-vgpu-webhook"
    replica: str = field(default_factory=_this_process)
    times: Times = Times()
