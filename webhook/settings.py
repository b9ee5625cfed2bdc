"""What an operator can set."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from protocol.names import LIBRARY_DIR, SCHEDULER_NAME


def own_users(namespace: str) -> frozenset[str]:
    """Return the users that may write what a pod holds: the service accounts of the scheduler and the device plugin."""
    return frozenset(f"system:serviceaccount:{namespace}:{account}" for account in ("scheduler", "plugin"))


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Settings of the rules.

    Attributes:
        scheduler_name: the scheduler that GPU pods are given to.
        library_dir: folder of the audit library on the hosts.
        library_volume: whether pods get the library as a hostPath volume. Switch it off where a namespace's
            PodSecurity level forbids hostPath; the device plugin then mounts the library itself.
        trusted_users: who may change the annotations that say what a pod holds.
        allow_privileged: whether privileged GPU containers are warned about instead of refused. The paths that end
            with `/privileged` have it, for namespaces whose label allows them.
    """

    scheduler_name: str = SCHEDULER_NAME
    library_dir: str = LIBRARY_DIR
    library_volume: bool = True
    trusted_users: frozenset[str] = own_users("amd-vgpu")
    allow_privileged: bool = False

    def __post_init__(self) -> None:
        if not self.scheduler_name:
            raise ValueError("scheduler_name must not be empty")
        # The API server refuses both, but only in the pods, where it looks like the users' fault.
        path = PurePosixPath(self.library_dir)
        if not path.is_absolute() or ".." in path.parts:
            raise ValueError(f"library_dir {self.library_dir!r} must be an absolute path without '..'")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of the HTTPS server.

    Attributes:
        host: address to listen on.
        port: port to listen on, 0 for a free one.
        drain_seconds: how long requests are still served after readiness fails, so that every API server has learnt
            to go elsewhere before the port closes.
        close_seconds: how long requests that are still running may take when the port closes.
        body_seconds: how long a client may take for a request's body. The API server gives up after 5 seconds itself.
    """

    host: str
    port: int = 8443
    drain_seconds: float = 5.0
    close_seconds: float = 5.0
    body_seconds: float = 5.0
