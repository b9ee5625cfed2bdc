"""Which of several nodes or GPUs is preferred when each would do."""

from enum import Enum


class Policy(Enum):
    """`binpack` or `spread`, for nodes and for the GPUs of a node; for a pod's several GPUs after their nearness."""

    BINPACK = "binpack"
    """The fullest, so that whole GPUs and nodes stay free."""
    SPREAD = "spread"
    """The emptiest, so that pods disturb each other least."""
