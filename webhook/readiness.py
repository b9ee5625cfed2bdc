"""Whether requests should be sent here."""


class Readiness:
    """Ready when nobody holds it back; each part of the process holds and releases for itself."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def hold(self, part: str, reason: str) -> None:
        """Not ready, for a reason, until the same part releases."""
        self._reasons[part] = reason

    def release(self, part: str) -> None:
        """Take back a part's hold; nothing happens when it has none."""
        self._reasons.pop(part, None)

    @property
    def obstacle(self) -> str:
        """Why requests should not be sent here; empty when they should."""
        return "; ".join(f"{part}: {reason}" for part, reason in self._reasons.items())
