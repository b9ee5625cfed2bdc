"""Allocates without HIP, or beside it: below <folder of the stand-ins> <scene>. Tells codes, and MiB."""

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.shim.programs.hip import emit

MIB: Final = 1 << 20
HOST, FIRST, SECOND = 1, 2, 3  # agents
COARSE, FINE, LDS = 1, 2, 3
NON_PAGED, SCRATCH = 1 << 0, 1 << 9
POOL_SIZE, POOL_LARGEST, REGION_LARGEST, AVAILABLE = 2, 16, 4, 0xA015

U32, U64, Size = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t


def memory(agent: int, lot: int = COARSE) -> ctypes.c_uint64:
    """A pool or region."""
    return U64(16 * agent + lot)


def size(mib: float) -> ctypes.c_size_t:
    return Size(int(mib * MIB))


class Below:
    """The two libraries, and HIP when a scene has it; keeps what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[float] = []
        self.thunk = self.load("libhsakmt.so.1")
        self.runtime = self.load("libhsa-runtime64.so.1")
        self.runtime.hsa_init()

    def load(self, name: str) -> ctypes.CDLL:
        """Bind at once and for this caller alone, as Python does."""
        return ctypes.CDLL(str(self.folder / name), mode=os.RTLD_NOW | os.RTLD_LOCAL)

    def call(self, library: ctypes.CDLL, name: str, *arguments: object) -> int:
        """Call and tell the code."""
        code = int(getattr(library, name)(*arguments))
        self.told.append(code)
        return code

    def pool(self, mib: float, where: ctypes.c_uint64 | None = None) -> ctypes.c_void_p:
        """Take memory from a pool, of the first GPU if not told otherwise."""
        address = ctypes.c_void_p()
        where = where or memory(FIRST)
        self.call(self.runtime, "hsa_amd_memory_pool_allocate", where, size(mib), 0, ctypes.byref(address))
        return address

    def free(self, address: ctypes.c_void_p) -> None:
        """Give it back to its pool."""
        self.call(self.runtime, "hsa_amd_memory_pool_free", address)

    def left(self, agent: int = FIRST) -> None:
        """Tell what is free."""
        value = U64()
        assert self.runtime.hsa_agent_get_info(U64(agent), AVAILABLE, ctypes.byref(value)) == 0
        self.told.append(value.value / MIB)

    def asked(self, name: str, *arguments: object) -> None:
        """Tell a size in MiB that a question is answered with."""
        value = U64()
        assert getattr(self.runtime, name)(*arguments, ctypes.byref(value)) == 0
        self.told.append(value.value / MIB)

    def hip_malloc(self, hip: ctypes.CDLL, mib: float) -> ctypes.c_void_p:
        """Allocate with HIP."""
        address = ctypes.c_void_p()
        self.call(hip, "hipMalloc", ctypes.byref(address), size(mib))
        return address


def pools(below: Below) -> None:
    """Six of ten MiB, six more, freed, six again."""
    first = below.pool(6)
    below.left()
    below.pool(6)
    below.free(first)
    below.left()
    below.free(below.pool(10))


def kinds(below: Below) -> None:
    """Fine-grained memory of the GPU counts, memory of the host does not."""
    below.pool(6, memory(FIRST, FINE))
    below.pool(60, memory(HOST))
    below.left()
    below.pool(6, memory(FIRST, COARSE))


def regions(below: Below) -> None:
    """The way of HSA's first edition."""
    address = ctypes.c_void_p()
    call, made = below.runtime, ctypes.byref(address)
    below.call(call, "hsa_memory_allocate", memory(FIRST), size(6), made)
    below.call(call, "hsa_memory_allocate", memory(FIRST), size(6), ctypes.byref(ctypes.c_void_p()))
    below.call(call, "hsa_memory_allocate", memory(HOST), size(60), ctypes.byref(ctypes.c_void_p()))
    below.left()
    below.call(call, "hsa_memory_free", address)
    below.left()


def virtual(below: Below) -> None:
    """Physical memory stays as long as it is held or mapped."""
    handle, retained, place = U64(), U64(), ctypes.c_void_p(1 << 40)
    zero = U64(0)
    create = "hsa_amd_vmem_handle_create"
    below.call(below.runtime, create, memory(FIRST), size(6), 0, zero, ctypes.byref(handle))
    below.call(below.runtime, create, memory(FIRST), size(6), 0, zero, ctypes.byref(U64()))
    below.call(below.runtime, create, memory(HOST), size(60), 0, zero, ctypes.byref(U64()))
    below.call(below.runtime, "hsa_amd_vmem_map", place, size(6), size(0), handle, zero)
    below.call(below.runtime, "hsa_amd_vmem_handle_release", handle)
    below.left()  # still mapped
    below.call(below.runtime, "hsa_amd_vmem_retain_alloc_handle", ctypes.byref(retained), place)
    below.call(below.runtime, "hsa_amd_vmem_unmap", place, size(6))
    below.left()  # still held
    below.call(below.runtime, "hsa_amd_vmem_handle_release", retained)
    below.left()
    below.call(below.runtime, "hsa_amd_vmem_import_shareable_handle", 0, ctypes.byref(handle))
    below.left()


def thunk(below: Below) -> None:
    """Node 1 is the first GPU."""
    address = ctypes.c_void_p()
    other = ctypes.byref(ctypes.c_void_p())
    below.call(below.thunk, "hsaKmtAllocMemory", 1, U64(6 * MIB), NON_PAGED, ctypes.byref(address))
    below.call(below.thunk, "hsaKmtAllocMemory", 1, U64(6 * MIB), NON_PAGED, other)
    below.call(below.thunk, "hsaKmtAllocMemoryAlign", 1, U64(6 * MIB), U64(0), NON_PAGED, other)
    below.call(below.thunk, "hsaKmtAllocMemoryAlign", 1, U64(4 * MIB), U64(0), NON_PAGED, other)
    below.call(below.thunk, "hsaKmtAllocMemory", 0, U64(60 * MIB), NON_PAGED, other)  # a processor's
    below.call(below.thunk, "hsaKmtAllocMemory", 1, U64(60 * MIB), 0, other)  # pageable: the host's
    below.call(below.thunk, "hsaKmtAllocMemory", 1, U64(60 * MIB), NON_PAGED | SCRATCH, other)
    below.left()
    below.call(below.thunk, "hsaKmtFreeMemory", address, U64(6 * MIB))
    below.left()


def reports(below: Below) -> None:
    """A GPU's sizes are lowered, the host's and the LDS's are not."""
    for agent, lot in ((FIRST, COARSE), (SECOND, FINE), (HOST, COARSE), (FIRST, LDS)):
        below.asked("hsa_amd_memory_pool_get_info", memory(agent, lot), POOL_SIZE)
        below.asked("hsa_amd_memory_pool_get_info", memory(agent, lot), POOL_LARGEST)
        below.asked("hsa_region_get_info", memory(agent, lot), POOL_SIZE)
        below.asked("hsa_region_get_info", memory(agent, lot), REGION_LARGEST)


def free_fails(below: Below) -> None:
    """What was not freed stays booked."""
    first, second = below.pool(2), ctypes.c_void_p()
    below.call(below.runtime, "hsa_memory_allocate", memory(FIRST), size(2), ctypes.byref(second))
    third = ctypes.c_void_p()
    below.call(below.thunk, "hsaKmtAllocMemory", 1, U64(2 * MIB), NON_PAGED, ctypes.byref(third))
    for fails in (True, False):
        if fails:
            os.environ["STANDIN_HSA_FAIL_FREE"] = "1"
        else:
            del os.environ["STANDIN_HSA_FAIL_FREE"]
        below.free(first)
        below.call(below.runtime, "hsa_memory_free", second)
        below.call(below.thunk, "hsaKmtFreeMemory", third, U64(2 * MIB))
        below.left()


def gpus(below: Below) -> None:
    """Each GPU has the limit for itself, whichever of its pools is used."""
    below.pool(6)
    below.pool(6, memory(SECOND))
    below.left(FIRST)
    below.left(SECOND)
    below.call(below.thunk, "hsaKmtAllocMemory", 2, U64(6 * MIB), NON_PAGED, ctypes.byref(ctypes.c_void_p()))
    below.call(below.thunk, "hsaKmtAllocMemory", 2, U64(4 * MIB), NON_PAGED, ctypes.byref(ctypes.c_void_p()))
    below.left(FIRST)
    below.left(SECOND)


def beside_hip(below: Below) -> None:
    """One account, in which HIP's memory is once."""
    hip = below.load("libamdhip64.so.6")
    first = below.hip_malloc(hip, 6)
    below.left()
    below.pool(6)
    second = below.pool(3)
    below.hip_malloc(hip, 2)
    free, total = Size(), Size()
    below.call(hip, "hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    below.told += [free.value / MIB, total.value / MIB]
    below.call(hip, "hipFree", first)
    below.left()
    below.free(second)
    below.left()
    below.call(hip, "hipSetDevice", 1)
    below.hip_malloc(hip, 10)
    below.left(FIRST)
    below.left(SECOND)


def of_hips_own(below: Below) -> None:
    """What HIP takes of its own accord is not the program's, and it sees the whole GPU."""
    hip = below.load("libamdhip64.so.6")
    below.call(hip, "hipModuleLoadData", ctypes.byref(ctypes.c_void_p()), ctypes.byref(size(60)))
    below.left()
    total, available = Size(), Size()
    below.call(hip, "standin_hip_sees", ctypes.byref(total), ctypes.byref(available))
    below.told += [total.value / MIB, available.value / MIB]


def detour(below: Below) -> None:
    """HIP reaches the runtime through somebody else, whose calls would count if they were not inside of HIP."""
    hip = below.load("libamdhip64.so.6")

    def way(pool: int, room: int, address: int) -> int:
        allocate = below.runtime.hsa_amd_memory_pool_allocate
        return int(allocate(U64(pool), Size(room), 0, ctypes.c_void_p(address)))

    callback = ctypes.CFUNCTYPE(ctypes.c_int, U64, Size, ctypes.c_void_p)(way)
    below.call(hip, "standin_hip_detour", callback)
    below.hip_malloc(hip, 6)
    below.left()


def edges(below: Below) -> None:
    """Nonsense gets the runtime's own answer."""
    runtime, nowhere = below.runtime, ctypes.byref(ctypes.c_void_p())
    below.call(runtime, "hsa_amd_memory_pool_allocate", memory(FIRST), size(0), 0, nowhere)
    below.call(runtime, "hsa_amd_memory_pool_allocate", memory(FIRST), size(1), 0, None)
    below.call(runtime, "hsa_amd_memory_pool_free", ctypes.c_void_p(4096))
    below.call(runtime, "hsa_amd_memory_pool_free", None)
    below.call(runtime, "hsa_amd_memory_pool_allocate", memory(FIRST), Size(2**64 - 1), 0, nowhere)
    below.call(runtime, "hsa_amd_vmem_handle_release", U64(0))
    below.call(below.thunk, "hsaKmtFreeMemory", ctypes.c_void_p(4096), U64(1))
    below.left()
    below.call(runtime, "hsa_shut_down")
    below.call(runtime, "hsa_amd_memory_pool_allocate", memory(FIRST), size(1), 0, nowhere)


SCENES: Final[dict[str, Callable[[Below], None]]] = {
    "pools": pools,
    "kinds": kinds,
    "regions": regions,
    "virtual": virtual,
    "thunk": thunk,
    "reports": reports,
    "free-fails": free_fails,
    "gpus": gpus,
    "beside-hip": beside_hip,
    "of-hips-own": of_hips_own,
    "detour": detour,
    "edges": edges,
}


def main() -> None:
    """Play the scene."""
    below = Below(Path(sys.argv[1]))
    SCENES[sys.argv[2]](below)
    emit(told=below.told)


if __name__ == "__main__":
    main()
