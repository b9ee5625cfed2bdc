"""Where each function of a library is found, as an offset in its file: symbols <library> <name>..."""

import ctypes
import sys
from pathlib import Path

from tests.shim.programs.hip import emit


def offsets(path: str, names: list[str]) -> dict[str, str]:
    library = ctypes.CDLL(path)
    found = {}
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    for name in names:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        for bounds, _, offset, _, _, *file in maps:
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if start <= address < end:
                found[name] = f"{Path(*file).name}+{address - start + int(offset, 16):x}"
    return found


if __name__ == "__main__":
    emit(**offsets(sys.argv[1], sys.argv[2:]))
