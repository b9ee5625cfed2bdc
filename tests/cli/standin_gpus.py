"""Stand-in for GPUs under the measuring program: where the driver would let waves run, by a container's environment.

It deals mask bits out as the kernel driver does: over XCCs first, then over shader engines, then over units. An XCC
without any bit runs unmasked, and so does a whole GPU that no set of the mask names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from protocol.cumask import read_mask


@dataclass(frozen=True)
class StandInGpu:
    """One GPU of a machine; the numbers are those of an MI300X."""

    uuid: str
    pci: str
    arch: str = "gfx942:sramecc+:xnack-"
    units: int = 304
    xccs: int = 8
    engines: int = 4

    def waves(self, ids: frozenset[int]) -> list[list[int]]:
        """Registers of waves that ran on all units that the mask leaves."""
        unmasked = {xcc for xcc in range(self.xccs) if not any(cu % self.xccs == xcc for cu in ids)}
        on = [cu for cu in range(self.units) if cu in ids or cu % self.xccs in unmasked]
        return sorted(registers for cu in on for registers in self._registers(cu))

    def _registers(self, cu: int) -> Iterator[list[int]]:
        xcc, rank = cu % self.xccs, cu // self.xccs
        if self.arch.startswith("gfx9"):
            engine, unit = rank % self.engines, rank // self.engines
            for slot in (0, 5):  # waves in several slots of one unit
                yield [engine << 13 | unit << 8 | slot, xcc]
            return
        pair = rank // 2
        engine, array, unit = pair % self.engines, pair // self.engines % 2, pair // self.engines // 2
        yield [engine << 18 | array << 16 | unit << 10 | cu % 2 << 9, 0]


def measure(
    env: Mapping[str, str], machine: Sequence[StandInGpu], pod: str, allocated: str, cus: str, *, turned: bool = False
) -> str:
    """Return the line that the program would print in a container of this environment."""
    visible = env["ROCR_VISIBLE_DEVICES"].split(",")
    sets = [one.partition(":")[2] for one in env["HSA_CU_MASK"].split(";")]
    if turned:
        visible, sets = visible[::-1], sets[::-1]
    mask = ";".join(f"{index}:{ids}" for index, ids in enumerate(sets))
    gpus = [_named(machine, name) for name in visible]
    read = read_mask(mask, gpus=len(gpus), cus=1024)
    everything = frozenset(range(1024))
    devices = [
        {"arch": gpu.arch, "pci": gpu.pci, "uuid": gpu.uuid, "waves": gpu.waves(read.masks.get(index, everything))}
        for index, gpu in enumerate(gpus)
    ]
    body = {
        "amd-vgpu-validate": 1,
        "pod": pod,
        "reversed": turned,
        "visible": ",".join(visible),
        "mask": mask,
        "allocated": allocated,
        "cus": cus,
        "devices": devices,
    }
    return json.dumps(body)


def _named(machine: Sequence[StandInGpu], name: str) -> StandInGpu:
    if name.isdigit():
        return machine[int(name)]
    return next(gpu for gpu in machine if gpu.uuid == name)
