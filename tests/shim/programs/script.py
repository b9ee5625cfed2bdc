"""Does what the arguments say, one word after the other, and reports each: script <library> <word>...

malloc:N mallocasync:N mallocpitch:WxH memallocpitch:WxH free:I (what the I-th word allocated)
release:I (not through HIP)
set-device:N info total:N last-error
properties:NAME mapped:PATH setenv:NAME=VALUE unsetenv:NAME load:PATH (from now on another library) close
load-from-memory:PATH open-files:N (no more than that from now on)
"""

import ctypes
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from tests.shim.programs.hip import Hip, emit


def mapped(path: str) -> list[list[str]]:
    """Protection and file offset of each mapping of the file, adjacent ones with equal protection as one."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(path)]
    runs: list[list[str]] = []
    for _, protection, offset, *_ in lines:
        if not runs or runs[-1][0] != protection:
            runs.append([protection, offset])
    return runs


class Script:
    """The current library and the addresses so far."""

    def __init__(self, path: str) -> None:
        self.hip = Hip(path)
        self.addresses: dict[int, int] = {}
        self.index = 0
        self.words: dict[str, Callable[[str], object]] = {
            "malloc": lambda value: self.keep(self.hip.malloc(int(value))),
            "mallocpitch": lambda value: self.keep(self.hip.pitch("hipMallocPitch", *map(int, value.split("x")))),
            "memallocpitch": lambda value: self.keep(self.hip.pitch("hipMemAllocPitch", *map(int, value.split("x")))),
            "mallocasync": lambda value: self.keep(self.hip.malloc_async(int(value))),
            "free": lambda value: self.hip.free(self.addresses[int(value)]),
            "release": lambda value: self.hip.release(self.addresses[int(value)]),
            "set-device": lambda value: self.hip.set_device(int(value)),
            "info": lambda _: self.hip.info(),
            "total": lambda value: self.hip.total_mem(int(value)),
            "peak": lambda value: self.hip.peak(int(value)),
            "last-error": lambda _: self.hip.last_error(),
            "properties": lambda value: self.hip.properties(value, 0).hex(),
            "setenv": lambda value: os.environ.__setitem__(*value.split("=")),
            "unsetenv": os.environ.pop,
            "mapped": mapped,
            "load": self.load,
            "load-from-memory": self.load_from_memory,
            "open-files": lambda value: resource.setrlimit(
                resource.RLIMIT_NOFILE, (int(value), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            ),
            "close": self.close,
        }

    def keep(self, outcome: tuple[int, int]) -> int:
        """Remember the address, give the code."""
        code, self.addresses[self.index] = outcome
        return code

    def load(self, path: str) -> None:
        """Go on with another library."""
        self.hip = Hip(path)

    def load_from_memory(self, path: str) -> None:
        """Go on with a copy that lies in no folder."""
        copy = os.memfd_create("copy")
        os.write(copy, Path(path).read_bytes())
        self.load(f"/proc/self/fd/{copy}")

    def close(self, _: str) -> int:
        """Unload the library."""
        handle = self.hip.library._handle
        return int(ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle)))

    def do(self, word: str) -> object:
        """One step."""
        name, _, value = word.partition(":")
        result = self.words[name](value)
        self.index += 1
        return result


def main() -> None:
    """Run all words."""
    script = Script(sys.argv[1])
    emit(results=[script.do(word) for word in sys.argv[2:]])


if __name__ == "__main__":
    main()
