"""Scenes of virtual memory management and of graphs."""

import ctypes
from collections.abc import Callable
from typing import Final

from tests.shim.programs.scene import DEVICE, MIB, Scene, pool_properties, size


def virtual_properties(device: int, *, old: bool = False, location: int = DEVICE) -> ctypes.Array[ctypes.c_char]:
    words = (0, location, device, 0, 1, 0, 0, 0) if old else (1, 0, location, device, 0, 0, 0, 0)
    raw = b"".join(word.to_bytes(4, "little") for word in words)
    return ctypes.create_string_buffer(raw, len(raw))


def virtual(scene: Scene) -> None:
    """As PyTorch's expandable segments do it: create, map, release, unmap."""
    flags = ctypes.c_ulonglong(0)
    first = scene.make("hipMemCreate", size(6), virtual_properties(0), flags)
    scene.left()
    scene.make("hipMemCreate", size(6), virtual_properties(0), flags)
    address = scene.make("hipMemAddressReserve", size(64), size(0), None, flags)
    scene.call("hipMemMap", address, size(6), size(0), first, flags)
    scene.call("hipMemRelease", first)
    scene.left()  # still mapped
    retained = scene.make("hipMemRetainAllocationHandle", address)
    scene.call("hipMemUnmap", address, size(6))
    scene.left()  # still held
    scene.call("hipMemRelease", retained)
    scene.left()


def virtual_ranges(scene: Scene) -> None:
    """Unmapping a range that covers several mappings."""
    flags = ctypes.c_ulonglong(0)
    address = scene.make("hipMemAddressReserve", size(64), size(0), None, flags)
    for index in range(4):
        handle = scene.make("hipMemCreate", size(2), virtual_properties(0), flags)
        place = ctypes.c_void_p((address.value or 0) + index * 2 * MIB)
        scene.call("hipMemMap", place, size(2), size(0), handle, flags)
        scene.call("hipMemRelease", handle)
    scene.left()
    scene.call("hipMemUnmap", address, size(6))
    scene.left()


def virtual_old(scene: Scene) -> None:
    """The structure as it was before HIP 5.5; memory on the host; memory of another process."""
    flags = ctypes.c_ulonglong(0)
    old = scene.make("hipMemCreate", size(6), virtual_properties(0, old=True), flags)
    scene.left()
    scene.make("hipMemCreate", size(60), virtual_properties(0, location=2), flags)
    imported = scene.make("hipMemImportFromShareableHandle", None, 1)
    scene.left()
    scene.call("hipMemRelease", imported)
    scene.call("hipMemRelease", old)
    scene.left()


def no_such_gpu(scene: Scene) -> None:
    """HIP's own answer, and nothing is booked anywhere."""
    scene.make("hipMemCreate", size(6), virtual_properties(7), ctypes.c_ulonglong(0))
    scene.left()


def virtual_failure(scene: Scene) -> None:
    """A release that fails keeps the memory booked."""
    handle = scene.make("hipMemCreate", size(6), virtual_properties(0), ctypes.c_ulonglong(0))
    ctypes.CDLL(None).setenv(b"STANDIN_HIP_FAIL_FREE", b"1", 1)
    scene.call("hipMemRelease", handle)
    scene.left()
    ctypes.CDLL(None).unsetenv(b"STANDIN_HIP_FAIL_FREE")
    scene.call("hipMemRelease", handle)
    scene.left()


def node_parameters(mib: float, *, wrapped: bool = False) -> ctypes.Array[ctypes.c_char]:
    raw = bytes(pool_properties(0)) + bytes(16) + int(mib * MIB).to_bytes(8, "little") + bytes(8)
    raw = (10).to_bytes(4, "little") + bytes(12) + raw + bytes(128) if wrapped else raw
    return ctypes.create_string_buffer(raw, len(raw))


def graph_nodes(scene: Scene) -> None:
    graph = scene.make("hipGraphCreate", 0)
    scene.make("hipGraphAddMemAllocNode", graph, None, size(0), node_parameters(4))
    scene.make("hipGraphAddNode", graph, None, size(0), node_parameters(2, wrapped=True))
    scene.left()
    scene.make("hipGraphAddMemAllocNode", graph, None, size(0), node_parameters(6))
    runs = [
        scene.make("hipGraphInstantiate", graph, None, None, size(0)),
        scene.make("hipGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0)),
        scene.make("hipGraphInstantiateWithParams", graph, None),
    ]
    scene.call("hipGraphDestroy", graph)
    for run in runs:
        scene.left()
        scene.call("hipGraphExecDestroy", run)
    scene.left()


def capture(scene: Scene, end: str = "hipStreamEndCapture") -> None:
    stream = scene.make("hipStreamCreate")
    scene.call("hipStreamBeginCapture", stream, 0)
    first = scene.make("hipMallocAsync", size(6), stream)
    scene.make("hipMallocAsync", size(6), stream)
    scene.call("hipFreeAsync", first, stream)
    scene.left()
    graph = ctypes.c_void_p()
    scene.call(end, stream, ctypes.byref(graph))
    scene.left()
    scene.call("hipGraphDestroy", graph)
    scene.left()


def beside_capture(scene: Scene) -> None:
    """Too much is asked for of another stream, which the capture has nothing to do with."""
    captured = scene.make("hipStreamCreate")
    other = scene.make("hipStreamCreate")
    scene.call("hipStreamBeginCapture", captured, 0)
    scene.make("hipMallocAsync", size(6), captured)
    scene.make("hipMallocAsync", size(6), other)
    graph = ctypes.c_void_p()
    scene.call("hipStreamEndCapture", captured, ctypes.byref(graph))
    mode = ctypes.c_int(2)
    scene.call("hipThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    scene.told.append(mode.value)


SCENES: Final[dict[str, Callable[[Scene], None]]] = {
    "virtual": virtual,
    "virtual-ranges": virtual_ranges,
    "virtual-old": virtual_old,
    "no-such-gpu": no_such_gpu,
    "virtual-failure": virtual_failure,
    "graph-nodes": graph_nodes,
    "capture": capture,
    "beside-capture": beside_capture,
    "capture-spt": lambda scene: capture(scene, "hipStreamEndCapture_spt"),
}
