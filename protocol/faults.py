"""A fault in a manifest, in the words of the API server's own field errors."""

from collections.abc import Sequence
from dataclasses import dataclass

_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a manifest.

    Attributes:
        field: path of the field, such as `spec.containers[0].resources.limits[amd.com/gpucores]`.
        value: what stands there, as the user wrote it.
        expected: what would be right, as the end of a sentence that starts with "must" or names the way out.
        kind: `Invalid value`, `Forbidden` or `Required value`, as in Kubernetes' field errors.
    """

    field: str
    value: object
    expected: str
    kind: str = "Invalid value"

    def __str__(self) -> str:
        if self.kind != "Invalid value":
            return f"{self.field}: {self.kind}: {self.expected}"
        return f'{self.field}: {self.kind}: "{_shown(self.value)}": {self.expected}'


def describe(faults: Sequence[Fault]) -> str:
    """Return one message for all faults: several stand in brackets, as Kubernetes aggregates errors."""
    if len(faults) == 1:
        return str(faults[0])
    return "[" + ", ".join(map(str, faults)) + "]"


def _shown(value: object) -> str:
    # The value is a user's: cut it and escape it, so that a message stays one readable line.
    text = str(value)
    cut = text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"
    return cut.encode("unicode_escape").decode("ascii") if not cut.isprintable() else cut.replace('"', '\\"')
