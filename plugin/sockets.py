"""Unix sockets in the kubelet's device plugin folder: naming our own, clearing away dead ones, telling them apart."""

import logging
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

KUBELET_SOCKET: Final = "kubelet.sock"

_PREFIX: Final = "amd-vgpu-"
_LONGEST_PATH: Final = 107
"""Linux has room for 108 bytes, the last of which is zero."""


class SocketPathError(ValueError):
    """The path is too long for a Unix socket."""


def own_socket(folder: Path) -> Path:
    """Return a path that no other socket has had, in this process or another.

    A server that stops removes the socket of its path, whoever has bound to it since; so two servers never share one.
    The process id alone does not tell two plugins apart: in its container each is process 1.

    Raises:
        SocketPathError: the folder's path is too long.
    """
    path = folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}.sock"
    length = len(os.fsencode(path))
    if length > _LONGEST_PATH:
        raise SocketPathError(f"{path}: is {length} bytes long, a socket's path may have {_LONGEST_PATH}")
    return path


def remove_dead_sockets(folder: Path) -> None:
    """Remove sockets of earlier plugin processes that nobody serves any more."""
    for path in sorted(folder.glob(f"{_PREFIX}*.sock")):
        if _is_dead(path):
            with suppress(OSError):
                path.unlink()
                log.info("removed %s, which nobody serves", path)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def identity(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a socket from another that has its path later, None when there is none.

    The inode alone does not: a new file often gets the number of the one just removed.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_ctime_ns)
