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
from tests.shim.build import compile_linked, compile_shim, compile_standin_hip

STARTS = 200
ROUNDS = 5


def main() -> None:
    """Measure and print."""
    library = compile_shim()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        hip = compile_standin_hip(Path(folder))
        program = compile_linked(Path(__file__).with_name("shim_pair.c"), Path(folder) / "pair", hip)
        variants: dict[str, dict[str, str]] = {
            "without the library": {},
            "with the library, no limit": {"LD_AUDIT": str(library)},
            "with the library and a limit": {"LD_AUDIT": str(library), "HIP_DEVICE_MEMORY_LIMIT": "16384m"},
        }
        # Round by round, so that a change of the machine's mood meets all variants alike.
        calls: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
        for _ in range(ROUNDS):
            for name, extra in variants.items():
                calls[name].append(_calls(program, extra))
        starts = {name: _start_ms(extra) for name, extra in variants.items()}
    print(describe())
    print(f"{'':32}{'hipMalloc+hipFree':>20}{'hipMemGetInfo':>16}{'start of true':>16}")
    for name, found in calls.items():
        pair, info = (min(one[key] for one in found) for key in ("pair", "info"))
        print(f"{name:32}{pair:>17.0f} ns{info:>13.0f} ns{starts[name]:>13.2f} ms")


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
