"""How the machine's GPUs change from one look to the next.

Pure: what is done about a change is decided elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plugin.ailment import Ailment, Cause
from plugin.discovery import Gpu, Snapshot, numbered


@dataclass(frozen=True, slots=True)
class Change:
    """A GPU that came, fell ill or recovered.

    Attributes:
        gpu: as it is now.
        before: what was wrong with it before, None for nothing.
        new: it was not there before.
    """

    gpu: Gpu
    before: Ailment | None
    new: bool = False

    def __str__(self) -> str:
        now = self.gpu.ailment
        if now is not None:
            return f"GPU {self.gpu.id} is unhealthy, {now.cause.value}: {now.detail}"
        if self.before is not None:
            return f"GPU {self.gpu.id} is healthy again, {self.before.cause.value} is over"
        return f"GPU {self.gpu.id} is there: {self.gpu.info.product}"


def carry_over(previous: Snapshot, current: Snapshot) -> Snapshot:
    """Return the current snapshot with the GPUs that vanished since the previous one kept as unhealthy.

    Their pods still hold them, and the kubelet must not take their ids for new ones when they come back. After a
    change of a chip's partitions these are the old ones, beside the new. A new one that has the id of an old one, as
    with some kernels the first partition has, is not there as long as the old one is remembered.
    """
    known = previous.by_id()
    kept = [gpu for gpu in current.gpus if gpu.id not in known or _shape(gpu) == _shape(known[gpu.id])]
    present = {gpu.id for gpu in kept}
    chips = {_chip(gpu) for gpu in current.gpus}
    vanished = [_vanished(gpu, recut=_chip(gpu) in chips) for gpu in previous.gpus if gpu.id not in present]
    return replace(current, gpus=numbered([*kept, *vanished]))


def changes(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """Yield the GPUs whose health is another, or that were not there."""
    known = before.by_id()
    for gpu in now.gpus:
        old = known.get(gpu.id)
        if old is None:
            yield Change(gpu, None, new=True)
        elif _cause(old) != _cause(gpu):
            yield Change(gpu, old.ailment)


def _cause(gpu: Gpu) -> Cause | None:
    return gpu.ailment.cause if gpu.ailment else None


def _chip(gpu: Gpu) -> str:
    return gpu.info.pci_address.rpartition(".")[0]


def _shape(gpu: Gpu) -> tuple[int, int]:
    return gpu.info.cu_count, gpu.info.xcc_count


def _vanished(gpu: Gpu, *, recut: bool) -> Gpu:
    ailment = (
        Ailment(Cause.REPARTITIONED, f"the GPU at {_chip(gpu)} was cut into other partitions")
        if recut
        else Ailment(Cause.GONE, "KFD does not list it any more")
    )
    return replace(gpu, info=replace(gpu.info, healthy=False), ailment=ailment)
