"""What a HIP library answers, as codes, and whose functions they are: codes <library> <function>...

The functions are called in the given order, because the first HIP call of a thread can answer differently.
"""

import ctypes
import sys
from pathlib import Path

from tests.shim.programs.hip import PROPERTIES_SIZE, emit


def call(library: ctypes.CDLL, name: str) -> int:
    size, other = ctypes.c_size_t(), ctypes.c_size_t()
    pointer, number = ctypes.c_void_p(), ctypes.c_int()
    properties = ctypes.create_string_buffer(PROPERTIES_SIZE)
    arguments: dict[str, tuple[object, ...]] = {
        "hipGetDeviceCount": (ctypes.byref(number),),
        "hipGetDevice": (ctypes.byref(number),),
        "hipSetDevice": (0,),
        "hipMalloc": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20)),
        "hipFree": (None,),
        "hipMemGetInfo": (ctypes.byref(size), ctypes.byref(other)),
        "hipDeviceTotalMem": (ctypes.byref(size), 0),
        "hipGetDeviceProperties": (properties, 0),
        "hipMallocPitch": (ctypes.byref(pointer), ctypes.byref(size), ctypes.c_size_t(64), ctypes.c_size_t(64)),
        "hipGetLastError": (),
        "hipExtMallocWithFlags": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20), 0),
        "hipMallocManaged": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20), 1),
        "hipMemAllocPitch": (ctypes.byref(pointer), ctypes.byref(size), ctypes.c_size_t(64), ctypes.c_size_t(64), 4),
        "hipMallocArray": (ctypes.byref(pointer), (ctypes.c_int * 5)(32, 0, 0, 0, 2), *(ctypes.c_size_t(64),) * 2, 0),
        "hipDeviceGetAttribute": (ctypes.byref(number), 84, 0),
        "hipDeviceReset": (),
        "hipMallocAsync": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20), None),
        "hipFreeAsync": (None, None),
        "hipMemCreate": (ctypes.byref(pointer), ctypes.c_size_t(1 << 21), (ctypes.c_int * 8)(1, 0, 1), size),
        "hipMemRelease": (None,),
        "hipGraphDestroy": (None,),
    }
    return int(getattr(library, name)(*arguments[name]))


def owner(library: ctypes.CDLL, name: str) -> str:
    """The name of the file in which the function lies that the program was given."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, *_, path = line.split()
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if start <= address < end:
            return Path(path).name
    raise AssertionError(f"{name} is nowhere")


def main() -> None:
    """Call them and tell."""
    library, names = ctypes.CDLL(sys.argv[1]), sys.argv[2:]
    codes = [call(library, name) for name in names]
    emit(codes=codes, owners={name: owner(library, name) for name in names})


if __name__ == "__main__":
    main()
