"""A GPU that was ill is given out again only once it has been well for a while.

One that falls ill again and again would otherwise get new pods in each pause between, and lose them.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from plugin.discovery import Gpu, Snapshot


class Recovery:
    """Remembers since when GPUs are well again.

    Args:
        quiet_seconds: how long a GPU must be well before it counts as such.
        clock: seconds that never go back.
    """

    def __init__(self, quiet_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet_seconds
        self._clock = clock
        self._well_since: dict[str, float] = {}

    def hold_back(self, before: Snapshot, seen: Snapshot) -> Snapshot:
        """Return what was seen, with the GPUs still ill that have not been well for long enough.

        Args:
            before: what this returned for the look before.
            seen: the GPUs as they are.
        """
        now, known = self._clock(), before.by_id()
        recovering = {gpu.id for gpu in seen.gpus if not gpu.ailment and gpu.id in known and known[gpu.id].ailment}
        self._well_since = {gpu_id: self._well_since.get(gpu_id, now) for gpu_id in recovering}
        early = {gpu_id for gpu_id, since in self._well_since.items() if now - since < self._quiet}
        return replace(seen, gpus=tuple(_kept_ill(seen.gpus, known, early)))

    def due_in(self) -> float | None:
        """Return the seconds until the first of them counts as well, None when there is none."""
        ends = [since + self._quiet for since in self._well_since.values()]
        now = self._clock()
        return min((max(end - now, 0) for end in ends if end > now), default=None)


def _kept_ill(gpus: tuple[Gpu, ...], known: dict[str, Gpu], early: set[str]) -> Iterator[Gpu]:
    for gpu in gpus:
        ill = gpu.id in early
        yield replace(gpu, info=replace(gpu.info, healthy=False), ailment=known[gpu.id].ailment) if ill else gpu
