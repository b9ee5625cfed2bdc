"""Ports and addresses that nothing else uses."""

import secrets
import socket
import subprocess
from contextlib import ExitStack

from tests.cluster.errors import ClusterUnavailable

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return distinct ports that are free now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            # All addresses: the kubelet listens on the node's own, the others on loopback.
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def free_port() -> int:
    return free_ports(1)[0]


def node_address() -> str:
    """Return this machine's own address, for the kubelet refuses a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only makes the kernel choose a source address.
            probe.connect(("192.0.2.1", 9))
        except OSError as error:
            raise ClusterUnavailable("the machine has no IPv4 route, so a node would have no address") from error
        address = str(probe.getsockname()[0])
    if address.startswith("127."):
        raise ClusterUnavailable("the machine has no IPv4 address besides loopback")
    return address


def free_pod_subnet() -> str:
    """Return a /24 for pods in which the machine has no route: two clusters may run side by side."""
    routes = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True).stdout
    while True:
        prefix = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        if f"{prefix}." not in routes:
            return f"{prefix}.0/24"
