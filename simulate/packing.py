"""How well GPUs are filled, integrated over time."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.devices import DeviceInfo
from protocol.placement import Placement
from protocol.usage import GpuUsage


@dataclass(slots=True)
class Filling:
    """What one node, or a whole cluster, has taken and free at one moment.

    Attributes:
        cus: CUs that pods hold.
        memory_mib: MiB that pods hold.
        broken_cus: free CUs on GPUs that are partly taken, which no pod for a whole GPU can use.
        free_gpus: GPUs that nobody shares.
    """

    cus: float = 0.0
    memory_mib: float = 0.0
    broken_cus: float = 0.0
    free_gpus: float = 0.0

    @classmethod
    def of(cls, usages: Iterable[GpuUsage]) -> "Filling":
        """Return the filling of some GPUs."""
        filling = cls()
        for usage in usages:
            filling.cus += len(usage.cus)
            filling.memory_mib += usage.memory_mib
            if usage.pods:
                filling.broken_cus += usage.device.cu_count - len(usage.cus)
            else:
                filling.free_gpus += 1
        return filling

    def add(self, other: "Filling", factor: float) -> None:
        """Add another filling so many times."""
        self.cus += factor * other.cus
        self.memory_mib += factor * other.memory_mib
        self.broken_cus += factor * other.broken_cus
        self.free_gpus += factor * other.free_gpus


@dataclass(slots=True)
class Packing:
    """The fillings of a simulation: now, at most, and added up over time.

    Attributes:
        devices: all GPUs of the cluster.
        now: at this moment.
        summed: each filling times the seconds that it lasted.
        seconds: that were added up.
        most_cus: at most at any moment.
        most_memory_mib: at most at any moment.
    """

    devices: tuple[DeviceInfo, ...]
    now: Filling = field(default_factory=Filling)
    summed: Filling = field(default_factory=Filling)
    seconds: float = 0.0
    most_cus: float = 0.0
    most_memory_mib: float = 0.0

    def change(self, before: Filling, after: Filling) -> None:
        """Take in that a node's filling changed."""
        self.now.add(before, -1)
        self.now.add(after, 1)
        self.most_cus = max(self.most_cus, self.now.cus)
        self.most_memory_mib = max(self.most_memory_mib, self.now.memory_mib)

    def pass_time(self, seconds: float) -> None:
        """Let the present filling last for a time."""
        self.summed.add(self.now, seconds)
        self.seconds += seconds

    def figures(self) -> dict[str, float]:
        """Return shares from 0 to 1, averages over time where time has passed, else of the last moment."""
        all_cus = sum(device.cu_count for device in self.devices)
        all_memory = sum(device.memory_mib for device in self.devices)
        mean = Filling()
        if self.seconds:
            mean.add(self.summed, 1 / self.seconds)
        else:
            mean = self.now
        free_cus = all_cus - mean.cus
        return {
            "cuUtilisation": mean.cus / all_cus,
            "cuUtilisationPeak": self.most_cus / all_cus,
            "memoryUtilisation": mean.memory_mib / all_memory,
            "memoryUtilisationPeak": self.most_memory_mib / all_memory,
            # Rounding may leave a full cluster with a trace of room.
            "fragmentation": mean.broken_cus / free_cus if free_cus > all_cus * 1e-9 else 0.0,
            "wholeGpusFree": mean.free_gpus / len(self.devices),
        }


def imbalances(placement: Placement, devices: Iterable[DeviceInfo]) -> list[float]:
    """Return for each share on a GPU of several XCCs how much of its CUs its poorest XCC holds up, 0 to 1.

    The slowest XCC sets the speed, so a share of n CUs over x XCCs of which the poorest has m does the work of x * m.
    """
    by_id = {device.id: device for device in devices}
    found = []
    for device_id, parts in placement.parts.items():
        xccs = by_id[device_id].xcc_count
        if xccs <= 1:
            continue
        for part in filter(None, parts):
            counts = [0] * xccs
            for cu in part:
                counts[cu % xccs] += 1
            found.append(1 - xccs * min(counts) / len(part))
    return found
