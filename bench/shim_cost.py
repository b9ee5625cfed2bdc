"""What the audit library costs: a call, and the start of a program. Run: python -m bench.shim_cost.

Against the stand-ins for AMD's runtime, whose calls are nearly free, so that what is left is the library's own cost;
and against AMD's own libamdhip64 where it is installed, which without a GPU does little but fail.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.machine import describe
from tests.shim.build import HERE, compile_linked, compile_shim, compile_standin_hip, compile_standin_hsa
from tests.shim.real_hip import installed_hip

STARTS = 200
ROUNDS = 5
NEIGHBOURS = 15
Environment = Mapping[str, str]
Figures = dict[str, float]


def main() -> None:
    """Measure and print."""
    library = compile_shim()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        limited = {"LD_AUDIT": str(library), "HIP_DEVICE_MEMORY_LIMIT": "16384m"}
        alone = {**limited, "AMVGPU_REGION": _folder(folder, "alone")}
        crowd = {**limited, "AMVGPU_REGION": _folder(folder, "crowd")}
        variants: dict[str, Environment] = {
            "without the library": {},
            "with the library, no limit": {"LD_AUDIT": str(library)},
            "with the library and a limit": alone,
            f"beside {NEIGHBOURS} other processes": crowd,
        }
        print(f"{describe()}, load {os.getloadavg()[0]:.1f}")
        _print_hip(folder, variants, crowd)
        _print_hsa(folder, {"without the library": {}, "counted": {**alone, "AMVGPU_HSA": "1"}})
        _print_real(folder, {"without the library": {}, "with the library and a limit": alone})


def _print_hip(folder: Path, variants: Mapping[str, Environment], crowd: Environment) -> None:
    hip = compile_standin_hip(folder)
    program = compile_linked(Path(__file__).with_name("shim_pair.c"), folder / "pair", hip)
    tenant = compile_linked(HERE / "programs" / "tenant.c", folder / "tenant", hip)
    with _neighbours(tenant, crowd):
        calls = _in_turn(variants, lambda extra: _calls(program, extra))
        starts = {name: _start_ms(extra) for name, extra in variants.items()}
    print(f"\n{'stand-in for HIP':32}{'hipMalloc+hipFree':>20}{'hipMemGetInfo':>16}{'start of true':>16}")
    for name, found in calls.items():
        print(f"{name:32}{found['pair']:>17.0f} ns{found['info']:>13.0f} ns{starts[name]:>13.2f} ms")


def _print_hsa(folder: Path, variants: Mapping[str, Environment]) -> None:
    below = folder / "hsa"
    below.mkdir()
    runtime = compile_standin_hsa(below) / "libhsa-runtime64.so.1"
    source = Path(__file__).with_name("shim_hsa_pair.c")
    program = compile_linked(source, folder / "hsa-pair", runtime, [f"-Wl,-rpath-link,{below}"])
    calls = _in_turn(variants, lambda extra: _calls(program, extra))
    print(f"\n{'stand-in for the HSA runtime':32}{'pool allocate+free':>20}")
    for name, found in calls.items():
        print(f"{name:32}{found['pair']:>17.0f} ns")


def _print_real(folder: Path, variants: Mapping[str, Environment]) -> None:
    hip = installed_hip()
    if hip is None:
        print("\nAMD's own libamdhip64 is not installed")
        return
    program = compile_linked(Path(__file__).with_name("shim_pair.c"), folder / "real-pair", hip)
    print(f"\n{hip.resolve().name + ', no GPU':32}{'hipMalloc+hipFree':>20}{'hipMemGetInfo':>16}")
    for name, extra in variants.items():
        found = _calls(program, extra)
        print(f"{name:32}{found['pair']:>17.0f} ns{found['info']:>13.0f} ns")


def _in_turn(variants: Mapping[str, Environment], measure: Callable[[Environment], Figures]) -> dict[str, Figures]:
    """Measure round by round, so that a change of the machine's mood meets all variants alike; keep the least."""
    least: dict[str, Figures] = {}
    for _ in range(ROUNDS):
        for name, extra in variants.items():
            found = measure(extra)
            least[name] = {key: min(value, least.get(name, found)[key]) for key, value in found.items()}
    return least


def _folder(parent: Path, name: str) -> str:
    (parent / name).mkdir()
    return str(parent / name)


@contextmanager
def _neighbours(tenant: Path, extra: Environment) -> Iterator[None]:
    """Other processes of the container, each of which holds 1 MiB."""
    processes = [_start(tenant, extra) for _ in range(NEIGHBOURS)]
    try:
        yield
    finally:
        for process in processes:
            process.communicate(timeout=60)


def _start(tenant: Path, extra: Environment) -> subprocess.Popen[bytes]:
    """Start a process that holds 1 MiB until its input ends."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([tenant], env={**os.environ, **extra}, stdin=pipe, stdout=pipe, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"malloc 0 1048576\n")
    for _ in ("ready", "0 0"):
        process.stdout.readline()
    return process


def _calls(program: Path, extra: Environment) -> Figures:
    done = subprocess.run([program], env={**os.environ, **extra}, capture_output=True, check=True, timeout=60)
    found: Figures = json.loads(done.stdout)
    return found


def _start_ms(extra: Environment) -> float:
    times = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        subprocess.run(["/bin/true"], env={**os.environ, **extra}, check=True)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
