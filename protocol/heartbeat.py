"""The sign of life of a node's device plugin: a Lease of the node's own, renewed all the time.

HAMi's device plugin has none: a node without such a Lease is judged by its `amd.com/gpu` alone, as HAMi does.
"""

from typing import Final

RENEW_SECONDS: Final = 30.0
"""Time between two renewals: 5,000 nodes are 167 writes a second, a third of what their kubelets write."""
STALE_SECONDS: Final = 90.0
"""A plugin that was silent for longer is taken to be down: two renewals may be lost, and a third be late."""
_PREFIX: Final = "plugin-"


def lease_name(node: str) -> str:
    """Return the name of a node's Lease."""
    return f"{_PREFIX}{node}"


def node_of(lease: str) -> str | None:
    """Return the node that a Lease of this name is of, None for a Lease of another kind."""
    return lease.removeprefix(_PREFIX) if lease.startswith(_PREFIX) else None
