"""HIP through ctypes, as far as the tests need it."""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Final

OUT_OF_MEMORY: Final = 2
PROPERTIES_SIZE: Final = 4096


class Hip:
    """One loaded copy of a HIP library."""

    def __init__(self, path: str | Path) -> None:
        self.library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)

    def set_device(self, device: int) -> int:
        """Choose the device of this thread."""
        return int(self.library.hipSetDevice(device))

    def malloc(self, size: int) -> tuple[int, int]:
        """The code and the address."""
        address = ctypes.c_void_p()
        code = int(self.library.hipMalloc(ctypes.byref(address), ctypes.c_size_t(size)))
        return code, address.value or 0

    def malloc_async(self, size: int) -> tuple[int, int]:
        """The same from the default pool, in the default stream."""
        address = ctypes.c_void_p()
        code = int(self.library.hipMallocAsync(ctypes.byref(address), ctypes.c_size_t(size), None))
        return code, address.value or 0

    def pitch(self, function: str, width: int, height: int) -> tuple[int, int]:
        """The code and address of hipMallocPitch or hipMemAllocPitch."""
        address = ctypes.c_void_p()
        pitch = ctypes.c_size_t()
        call = getattr(self.library, function)
        code = call(
            ctypes.byref(address),
            ctypes.byref(pitch),
            ctypes.c_size_t(width),
            ctypes.c_size_t(height),
            ctypes.c_uint(4),
        )
        return int(code), address.value or 0

    def free(self, address: int) -> int:
        """The code."""
        return int(self.library.hipFree(ctypes.c_void_p(address)))

    def release(self, address: int) -> int:
        """Free behind the back of every hook; the code."""
        return int(self.library.standin_hip_release(ctypes.c_void_p(address)))

    def info(self) -> tuple[int, int]:
        """Free and total bytes of the thread's device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = self.library.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        assert code == 0, f"hipMemGetInfo returns {code}"
        return free.value, total.value

    def total_mem(self, device: int) -> int:
        """What hipDeviceTotalMem says."""
        total = ctypes.c_size_t()
        code = self.library.hipDeviceTotalMem(ctypes.byref(total), device)
        assert code == 0, f"hipDeviceTotalMem returns {code}"
        return total.value

    def properties(self, function: str, device: int) -> bytes:
        """The structure as the function left it in a buffer of 0xa5."""
        buffer = ctypes.create_string_buffer(b"\xa5" * PROPERTIES_SIZE, PROPERTIES_SIZE)
        code = getattr(self.library, function)(buffer, device)
        assert code == 0, f"{function} returns {code}"
        return buffer.raw

    def last_error(self) -> int:
        """The thread's last error, which is cleared."""
        return int(self.library.hipGetLastError())

    def peak(self, device: int) -> int:
        """The most that this copy of the stand-in ever held."""
        self.library.standin_hip_peak.restype = ctypes.c_size_t
        return int(self.library.standin_hip_peak(device))


def emit(**values: object) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()
