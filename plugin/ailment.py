"""What can be wrong with a GPU, so that nobody else may be given it."""

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """A kind of fault; the value is the label in metrics."""

    NODE_MISSING = "device-node-missing"
    """`/dev/kfd` or the render node is not there."""
    ERRORS = "uncorrectable-errors"
    """The GPU has counted errors that it could not correct."""
    GONE = "gone"
    """KFD does not list it any more: it was reset, unplugged, or the driver was unloaded."""
    REPARTITIONED = "repartitioned"
    """The chip is there, cut into other partitions than before."""


@dataclass(frozen=True, slots=True)
class Ailment:
    """Why a GPU is unhealthy: the kind of fault, and in words what was seen."""

    cause: Cause
    detail: str
