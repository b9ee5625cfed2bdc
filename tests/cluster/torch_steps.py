"""Runs in a pod: uses HIP through ctypes as PyTorch's allocator does, in several processes, and tells what came of it.

It needs nothing but Python's standard library. One line of JSON per step.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

LIBRARY = "/opt/rocm/lib/libamdhip64.so.6"
OUT_OF_MEMORY = 2


def tell(step: str, **values: object) -> None:
    """Write one step."""
    sys.stdout.write(json.dumps({"step": step, **values}) + "\n")
    sys.stdout.flush()


class Hip:
    """The library as the extension of PyTorch has it: global, bound at once."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOW | os.RTLD_GLOBAL)

    def mem_get_info(self) -> tuple[int, int]:
        """torch.cuda.mem_get_info: free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = self.library.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        assert code == 0, code
        return free.value, total.value

    def malloc(self, size: int) -> tuple[int, ctypes.c_void_p]:
        """The code and the block."""
        block = ctypes.c_void_p()
        return int(self.library.hipMalloc(ctypes.byref(block), ctypes.c_size_t(size))), block

    def free(self, block: ctypes.c_void_p) -> int:
        """The code."""
        return int(self.library.hipFree(block))


def worker_takes_all() -> int:
    """In a process of its own; the code of taking all that this container may have."""
    hip = Hip()
    return hip.malloc(hip.mem_get_info()[1])[0]


def exit_with_worker() -> None:
    sys.exit(worker_takes_all())


def hold_all_and_wait(ready: "multiprocessing.synchronize.Event") -> None:
    if worker_takes_all() == 0:
        ready.set()
    signal.pause()


def spawned() -> int | None:
    """Start a worker as torch.multiprocessing does; its code."""
    process = multiprocessing.get_context("spawn").Process(target=exit_with_worker)
    process.start()
    process.join(60)
    return process.exitcode


def without_environment() -> int:
    """Start a worker that was given no environment at all, as some launchers do; its code."""
    return subprocess.run([sys.executable, __file__, "worker"], env={}, check=False, timeout=60).returncode


def killed(hip: Hip, total: int) -> None:
    """Kill a worker that holds everything; how long until it is there again."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold_all_and_wait, args=(ready,))
    process.start()
    assert ready.wait(60)
    refused, _ = hip.malloc(1)
    process.kill()
    begin = time.monotonic()
    process.join(60)
    code, block = hip.malloc(total)
    tell("after-kill", refused=refused, code=code, seconds=time.monotonic() - begin, freed=hip.free(block))


def main() -> None:
    """All steps."""
    hip = Hip()
    free, total = hip.mem_get_info()
    tell("start", free=free, total=total)
    code, block = hip.malloc(total)
    tell("all", code=code, free=hip.mem_get_info()[0])
    tell("over", code=hip.malloc(1)[0], last=int(hip.library.hipGetLastError()))
    tell("workers-refused", spawned=spawned(), without_environment=without_environment())
    tell("free", code=hip.free(block), free=hip.mem_get_info()[0])
    tell("workers-granted", spawned=spawned(), without_environment=without_environment())
    code, block = hip.malloc(total)
    tell("again", code=code, freed=hip.free(block))
    killed(hip, total)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        exit_with_worker()
    main()
