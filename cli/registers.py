"""Where a wave runs, by the hardware registers that it read: which XCC, shader engine, array and unit.

The register HW_ID (gfx9) or HW_ID1 (gfx10 and newer) has the place within one XCC, XCC_ID (gfx94x, gfx950) has the
XCC. The bits are those of HIP's `__smid` and LLVM's AMDGPU back end. Fields that differ between waves of one unit, such
as the wave's slot, are left out.
"""

import re
from dataclasses import dataclass
from typing import Final

_ARCH: Final = re.compile(r"gfx([0-9]{1,2})([0-9a-f])([0-9a-f])(?::.*)?", re.ASCII)
_CDNA: Final = 9
_FIRST_WGP: Final = 10
_LAST_WGP: Final = 12


class RegisterError(ValueError):
    """The registers of this kind of GPU are not known."""


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """A unit of the hardware as it is numbered there; numbers have gaps where units are fused off.

    Attributes:
        xcc: the die, 0 on GPUs that have one.
        engine: the shader engine on it.
        array: the shader array in that.
        unit: the compute unit in that; on gfx10 and newer the work-group processor, which is two compute units.
    """

    xcc: int
    engine: int
    array: int
    unit: int


def has_pairs(arch: str) -> bool:
    """Return whether a place of this architecture is two CUs.

    Raises:
        RegisterError: the architecture is not known.
    """
    return _family(arch)[0] >= _FIRST_WGP


def read_place(arch: str, hw_id: int, xcc_id: int) -> Place:
    """Return where a wave ran.

    Args:
        arch: as HIP names it, such as `gfx942:sramecc+:xnack-`.
        hw_id: register HW_ID or HW_ID1.
        xcc_id: register XCC_ID, 0 where there is none.

    Raises:
        RegisterError: the architecture is not known.
    """
    major, model = _family(arch)
    if major >= _FIRST_WGP:
        return Place(0, _bits(hw_id, 18, 3), _bits(hw_id, 16, 1), _bits(hw_id, 10, 4))
    # These two have eight shader engines; gfx94x and gfx950 have four on each XCC.
    engine_bits = 3 if model in {"08", "0a"} else 2
    return Place(_bits(xcc_id, 0, 4), _bits(hw_id, 13, engine_bits), _bits(hw_id, 12, 1), _bits(hw_id, 8, 4))


def _family(arch: str) -> tuple[int, str]:
    match = _ARCH.fullmatch(arch)
    if match is None or not _CDNA <= int(match[1]) <= _LAST_WGP or (match[1], match[2]) == ("12", "5"):
        raise RegisterError(f"arch {arch[:40]!r}: must be gfx9, gfx10, gfx11 or gfx12, but not gfx125x")
    return int(match[1]), match[2] + match[3]


def _bits(value: int, first: int, count: int) -> int:
    return value >> first & ((1 << count) - 1)
