"""A scene: calls of any of HIP's functions, with what came of them."""

import ctypes
from typing import Final

from tests.shim.programs.hip import Hip

MIB: Final = 1 << 20
DEVICE: Final = 1


class Extent(ctypes.Structure):
    """hipExtent."""

    _fields_ = (("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t))


class Handle(ctypes.Structure):
    """hipIpcMemHandle_t."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class Scene:
    """Calls any function, keeps the codes, and tells what is left on the current GPU."""

    def __init__(self, hip: Hip) -> None:
        self.hip = hip
        self.told: list[float] = []

    def call(self, name: str, *arguments: object) -> int:
        """Call and tell the code."""
        code = int(getattr(self.hip.library, name)(*arguments))
        self.told.append(code)
        return code

    def make(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Call a function whose first argument is the result."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made

    def left(self) -> None:
        """Tell the MiB that are free."""
        self.told.append(self.hip.info()[0] / MIB)


def size(mib: float) -> ctypes.c_size_t:
    return ctypes.c_size_t(int(mib * MIB))


def pool_properties(device: int) -> ctypes.Array[ctypes.c_char]:
    raw = b"".join(word.to_bytes(4, "little") for word in (1, 0, DEVICE, device)).ljust(88, b"\0")
    return ctypes.create_string_buffer(raw, len(raw))
