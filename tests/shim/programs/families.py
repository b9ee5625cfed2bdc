"""One scene for each family of HIP's functions, told as codes and as MiB left: families <library> <scene>."""

import ctypes
import sys
from collections.abc import Callable
from typing import Final

from tests.shim.programs import advanced
from tests.shim.programs.hip import Hip, emit
from tests.shim.programs.scene import MIB, Extent, Handle, Scene, pool_properties, size


def simple(allocate: str, *more: object, free: str = "hipFree") -> Callable[[Scene], None]:
    """Allocate 6 of 10 MiB, 6 more, and the first again."""

    def scene(scene: Scene) -> None:
        first = scene.make(allocate, size(6), *more)
        scene.left()
        scene.make(allocate, size(6), *more)
        scene.call(free, first, *([None] if free == "hipFreeAsync" else []))
        scene.left()
        scene.call(free, scene.make(allocate, size(6), *more), *([None] if free == "hipFreeAsync" else []))

    return scene


def array(allocate: str, free: str, *arguments: object) -> Callable[[Scene], None]:
    """The same for an array of 6 MiB."""

    def scene(scene: Scene) -> None:
        first = scene.make(allocate, *arguments)
        scene.left()
        scene.make(allocate, *arguments)
        scene.call(free, first)
        scene.left()
        scene.call(free, scene.make(allocate, *arguments))

    return scene


def ints(*values: int) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)


def descriptor(width: int, height: int, depth: int | None, form: int, channels: int) -> ctypes.Array[ctypes.c_char]:
    words = [width, height, *([] if depth is None else [depth])]
    raw = b"".join(word.to_bytes(8, "little") for word in words)
    raw += form.to_bytes(4, "little") + channels.to_bytes(4, "little") + bytes(8)
    return ctypes.create_string_buffer(raw, len(raw))


def pitched(name: str) -> Callable[[Scene], None]:
    """Rows of 3000 bytes take 3072."""

    def scene(scene: Scene) -> None:
        pitch = ctypes.c_size_t()
        more = [ctypes.byref(pitch), ctypes.c_size_t(3000), ctypes.c_size_t(2048)]
        more += [ctypes.c_uint(4)] if name == "hipMemAllocPitch" else []
        first = scene.make(name, *more)
        scene.left()
        scene.make(name, *more)
        scene.call("hipFree", first)
        scene.left()

    return scene


def volume(scene: Scene) -> None:
    """Rows of 3000 bytes take 3072, 32 in each of 64 planes."""
    result = (ctypes.c_size_t * 4)()
    extent = Extent(3000, 32, 64)
    scene.call("hipMalloc3D", result, extent)
    scene.left()
    scene.call("hipMalloc3D", (ctypes.c_size_t * 4)(), extent)
    scene.call("hipFree", ctypes.c_void_p(result[0]))
    scene.left()


def signals(scene: Scene) -> None:
    """Memory for signals is the host's; uncached memory is not."""
    scene.make("hipExtMallocWithFlags", size(100), ctypes.c_uint(2))
    scene.left()
    scene.make("hipExtMallocWithFlags", size(4), ctypes.c_uint(3))
    scene.left()


def keep_everything(scene: Scene, pool: ctypes.c_void_p) -> None:
    scene.call("hipMemPoolSetAttribute", pool, 4, ctypes.byref(ctypes.c_uint64(2**64 - 1)))


def pool_keeps(scene: Scene) -> None:
    """What a pool keeps is charged; another allocation takes it from there."""
    pool = scene.make("hipDeviceGetDefaultMemPool", 0)
    keep_everything(scene, pool)
    first = scene.make("hipMallocAsync", size(8), None)
    scene.call("hipFreeAsync", first, None)
    scene.call("hipStreamSynchronize", None)
    scene.left()
    again = scene.make("hipMallocAsync", size(8), None)  # what the pool has idle needs no room
    scene.left()
    scene.call("hipFreeAsync", again, None)
    plain = scene.make("hipMalloc", size(8))  # the pool has to give back
    scene.left()
    scene.call("hipFree", plain)
    scene.left()


def pool_shrinks_unseen(scene: Scene) -> None:
    """Waiting for a stream makes a pool give back, in a function that is not hooked."""
    scene.call("hipFreeAsync", scene.make("hipMallocAsync", size(8), None), None)
    scene.call("hipStreamSynchronize", None)
    scene.left()


def pool_trims(scene: Scene) -> None:
    pool = scene.make("hipMemPoolCreate", pool_properties(0))
    keep_everything(scene, pool)
    pieces = [scene.make("hipMallocFromPoolAsync", size(2), pool, None) for _ in range(4)]
    scene.make("hipMallocFromPoolAsync", size(4), pool, None)
    for piece in pieces[:3]:
        scene.call("hipFree", piece)
    scene.left()
    scene.call("hipMemPoolTrimTo", pool, size(4))
    scene.left()
    scene.call("hipMemPoolDestroy", pool)
    scene.left()
    scene.call("hipFreeAsync", pieces[3], None)
    scene.left()


def pool_in_pieces(scene: Scene) -> None:
    """What the pool has idle does not do, because it is in pieces: what the pool takes beyond the limit goes back."""
    ctypes.CDLL(None).setenv(b"STANDIN_HIP_PIECES", b"1", 1)
    pool = scene.make("hipMemPoolCreate", pool_properties(0))
    keep_everything(scene, pool)
    scene.call("hipFreeAsync", scene.make("hipMallocFromPoolAsync", size(4), pool, None), None)
    scene.make("hipMalloc", size(5))
    scene.left()
    scene.make("hipMallocFromPoolAsync", size(4), pool, None)
    scene.call("hipMemPoolTrimTo", pool, size(0))
    scene.left()
    scene.make("hipMallocFromPoolAsync", size(4), pool, None)
    scene.left()


def other_device(scene: Scene) -> None:
    """Memory of a stream or pool is that of its GPU, not of the current one."""
    pool = scene.make("hipMemPoolCreate", pool_properties(1))
    scene.make("hipMallocFromPoolAsync", size(6), pool, None)
    scene.call("hipSetDevice", 1)
    stream = scene.make("hipStreamCreate")
    scene.left()
    scene.call("hipSetDevice", 0)
    scene.make("hipMallocAsync", size(6), stream)
    scene.make("hipMallocAsync", size(2), stream)
    scene.left()
    scene.call("hipSetDevice", 1)
    scene.left()


def foreign(scene: Scene) -> None:
    """What others have allocated is neither charged nor credited."""
    scene.make("hipMalloc", size(4))
    opened = [
        scene.make("hipIpcOpenMemHandle", Handle(), ctypes.c_uint(0)),
        scene.make("hipExternalMemoryGetMappedBuffer", None, None),
        scene.make("hipMemPoolImportPointer", scene.make("hipDeviceGetDefaultMemPool", 0), None),
    ]
    scene.left()
    for address in opened:
        scene.call("hipFree", address)
    scene.left()


def reset(scene: Scene) -> None:
    scene.make("hipMalloc", size(4))
    scene.make("hipMallocAsync", size(2), None)
    scene.call("hipSetDevice", 1)
    scene.make("hipMalloc", size(3))
    scene.call("hipSetDevice", 0)
    scene.call("hipDeviceReset")
    scene.left()
    scene.call("hipSetDevice", 1)
    scene.left()


def any_free(scene: Scene) -> None:
    """A pool's pointer to hipFree, a plain one to hipFreeAsync."""
    scene.call("hipFreeAsync", scene.make("hipMalloc", size(6)), None)
    scene.left()
    scene.call("hipFree", scene.make("hipMallocAsync", size(6), None))
    scene.call("hipStreamSynchronize", None)
    scene.left()


def attribute(scene: Scene) -> None:
    for number in (84, 5):
        value = ctypes.c_int()
        scene.call("hipDeviceGetAttribute", ctypes.byref(value), number, 0)
        scene.told.append(value.value)


def entry_point(scene: Scene, name: str = "hipGetDriverEntryPoint") -> None:
    """The address that HIP hands out by itself is replaced."""
    found = ctypes.c_void_p()
    scene.call(name, b"hipMalloc", ctypes.byref(found), ctypes.c_ulonglong(0), None)
    assert found.value
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(found.value)
    address = ctypes.c_void_p()
    scene.told += [call(ctypes.addressof(address), 11 * MIB), call(ctypes.addressof(address), 10 * MIB)]


FLOATS: Final = ints(32, 0, 0, 0, 2)
SCENES: Final[dict[str, Callable[[Scene], None]]] = {
    "hipMalloc": simple("hipMalloc"),
    "hipExtMallocWithFlags": simple("hipExtMallocWithFlags", ctypes.c_uint(3)),
    "hipMallocManaged": simple("hipMallocManaged", ctypes.c_uint(1)),
    "hipMallocAsync": simple("hipMallocAsync", None, free="hipFreeAsync"),
    "hipMallocPitch": pitched("hipMallocPitch"),
    "hipMemAllocPitch": pitched("hipMemAllocPitch"),
    "hipMalloc3D": volume,
    "hipMallocArray": array(
        "hipMallocArray", "hipFreeArray", FLOATS, ctypes.c_size_t(1536), ctypes.c_size_t(1024), ctypes.c_uint(0)
    ),
    "hipMalloc3DArray": array("hipMalloc3DArray", "hipFreeArray", FLOATS, Extent(1536, 64, 16), ctypes.c_uint(0)),
    "hipArrayCreate": array("hipArrayCreate", "hipArrayDestroy", descriptor(1536, 2048, None, 0x10, 1)),
    "hipArray3DCreate": array("hipArray3DCreate", "hipArrayDestroy", descriptor(1536, 64, 64, 8, 1)),
    "hipMallocMipmappedArray": array(
        "hipMallocMipmappedArray",
        "hipFreeMipmappedArray",
        FLOATS,
        Extent(1024, 1024, 0),
        ctypes.c_uint(2),
        ctypes.c_uint(0),
    ),
    "hipMipmappedArrayCreate": array(
        "hipMipmappedArrayCreate", "hipMipmappedArrayDestroy", descriptor(1024, 1024, 0, 0x20, 1), ctypes.c_uint(2)
    ),
    **advanced.SCENES,
    "signals": signals,
    "pool-keeps": pool_keeps,
    "pool-shrinks-unseen": pool_shrinks_unseen,
    "pool-trims": pool_trims,
    "other-device": other_device,
    "pool-in-pieces": pool_in_pieces,
    "foreign": foreign,
    "reset": reset,
    "any-free": any_free,
    "attribute": attribute,
    "entry-point": entry_point,
    "entry-point-spt": lambda scene: entry_point(scene, "hipGetDriverEntryPoint_spt"),
}


def main() -> None:
    """Play one scene."""
    scene = Scene(Hip(sys.argv[1]))
    SCENES[sys.argv[2]](scene)
    emit(told=scene.told)


if __name__ == "__main__":
    main()
