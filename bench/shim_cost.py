"""What the audit library costs: a call, and the start of a program. Run: python -m bench.shim_cost.

Against the stand-in HIP runtime, whose calls are nearly free, so that what is left is the library's own cost.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench.machine import describe
from tests.shim.build import HERE, compile_linked, compile_shim, compile_standin_hip

STARTS = 200
ROUNDS = 5
NEIGHBOURS = 15


def main() -> None:
    """Measure and print."""
    library = compile_shim()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        hip = compile_standin_hip(Path(folder))
        program = compile_linked(Path(__file__).with_name("shim_pair.c"), Path(folder) / "pair", hip)
        limited = {"LD_AUDIT": str(library), "HIP_DEVICE_MEMORY_LIMIT": "16384m"}
        variants: dict[str, dict[str, str]] = {
            "without the library": {},
            "with the library, no limit": {"LD_AUDIT": str(library)},
            "with the library and a limit": {**limited, "AMVGPU_REGION": _folder(folder, "alone")},
            f"beside {NEIGHBOURS} other processes": {**limited, "AMVGPU_REGION": _folder(folder, "crowd")},
        }
        tenant = compile_linked(HERE / "programs" / "tenant.c", Path(folder) / "tenant", hip)
        neighbours = [_start(tenant, [*variants.values()][-1]) for _ in range(NEIGHBOURS)]
        # Round by round, so that a change of the machine's mood meets all variants alike.
        calls: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
        for _ in range(ROUNDS):
            for name, extra in variants.items():
                calls[name].append(_calls(program, extra))
        starts = {name: _start_ms(extra) for name, extra in variants.items()}
        for neighbour in neighbours:
            neighbour.communicate(timeout=60)
    print(describe())
    print(f"{'':32}{'hipMalloc+hipFree':>20}{'hipMemGetInfo':>16}{'start of true':>16}")
    for name, found in calls.items():
        pair, info = (min(one[key] for one in found) for key in ("pair", "info"))
        print(f"{name:32}{pair:>17.0f} ns{info:>13.0f} ns{starts[name]:>13.2f} ms")


def _folder(parent: str, name: str) -> str:
    folder = Path(parent) / name
    folder.mkdir()
    return str(folder)


def _start(tenant: Path, extra: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that holds 1 MiB until its input ends."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([tenant], env={**os.environ, **extra}, stdin=pipe, stdout=pipe, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"malloc 0 1048576\n")
    for _ in ("ready", "0 0"):
        process.stdout.readline()
    return process


def _calls(program: Path, extra: dict[str, str]) -> dict[str, float]:
    done = subprocess.run([program], env={**os.environ, **extra}, capture_output=True, check=True, timeout=60)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _start_ms(extra: dict[str, str]) -> float:
    times = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        subprocess.run(["/bin/true"], env={**os.environ, **extra}, check=True)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
