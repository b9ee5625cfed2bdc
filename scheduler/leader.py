"""Which of several replicas answers kube-scheduler: the holder of a Lease, in the pod whose kube-scheduler leads.

kube-scheduler calls the extender in its own pod, and its replicas choose their own leader. The extender's Lease follows
that choice: only the replica beside the leading kube-scheduler stands for it. Both Leases could otherwise end in
different pods, and nothing would be scheduled.

The Lease keeps promised room in one place; it is not what keeps CUs apart. For that each bind holds the node lock.
"""

import asyncio
import logging
import secrets
import socket
from dataclasses import dataclass, field
from typing import Final, Protocol

from kube import paths
from kube.client import KubeClient, NotFoundError
from kube.lease import Lease, LeaseSettings

log = logging.getLogger(__name__)

_RENEWALS: Final = 6
"""How often the Lease is renewed, and looked at by the others, within its duration."""


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """How replicas choose who is active.

    Attributes:
        namespace: of both Leases.
        lease: name of the extender's own.
        duration_seconds: another replica takes over from one that is silent for so long.
        kube_scheduler_lease: the one that the kube-schedulers choose their leader by; empty when the extender does not
            run beside one.
        hostname: with which the kube-scheduler beside this process signs its Lease: `<hostname>_<anything>`.
    """

    namespace: str = "amd-vgpu"
    lease: str = "amd-vgpu-extender"
    duration_seconds: int = 3
    kube_scheduler_lease: str = "amd-vgpu-scheduler"
    hostname: str = field(default_factory=socket.gethostname)

    def __post_init__(self) -> None:
        if self.duration_seconds < 1:
            raise ValueError(f"lease duration: {self.duration_seconds}: must be at least 1 second")


class Leadership(Protocol):
    """Whether this process is the one that decides."""

    @property
    def held(self) -> bool:
        """Whether it is, now."""

    @property
    def holder(self) -> str:
        """Who is, as far as is known; the empty string for nobody."""

    async def wait_held(self) -> None:
        """Return when it is."""


class Alone:
    """The leadership of a process that is the only one."""

    held: Final = True
    holder: Final = "this replica"

    async def wait_held(self) -> None:
        """Return at once."""


class Leader:
    """This replica's part in the choice.

    Args:
        client: the API server.
        settings: see LeaderSettings.
    """

    def __init__(self, client: KubeClient, settings: LeaderSettings) -> None:
        self._client = client
        self._settings = settings
        self._changed = asyncio.Event()
        duration = settings.duration_seconds
        identity = f"{settings.hostname}_{secrets.token_hex(8)}"
        lease = LeaseSettings(settings.namespace, settings.lease, identity, duration, duration / _RENEWALS)
        self._lease = Lease(client, lease, stands=self._stands)

    @property
    def held(self) -> bool:
        """Whether this replica is active now."""
        return self._lease.held

    @property
    def holder(self) -> str:
        """Identity of the active replica as last seen, `<hostname>_<random>`; the empty string for nobody."""
        return self._lease.holder

    async def wait_held(self) -> None:
        """Return when this replica is active."""
        while not self.held:
            await self._changed.wait()

    async def run(self) -> None:
        """Take part until cancelled; an active replica then gives the Lease back, so that another follows at once."""
        await self._lease.run(self._wake)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _stands(self) -> bool:
        """Return whether the kube-scheduler that calls this replica leads, or none does."""
        if not self._settings.kube_scheduler_lease:
            return True
        path = paths.named(paths.leases(self._settings.namespace), self._settings.kube_scheduler_lease)
        try:
            lease = await self._client.get(path)
        except NotFoundError:
            return True
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        return not holder or holder.partition("_")[0] == self._settings.hostname
