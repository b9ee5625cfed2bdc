"""AMVGPU_HSA=1: memory that programs take from the HSA runtime or its thunk counts, and HIP's counts once."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.shim.build import HERE, SHIM, compile_linked, compile_shim
from tests.shim.needs import need
from tests.shim.running import Runner, new_region

OUT = 0x1008  # HSA_STATUS_ERROR_OUT_OF_RESOURCES
NO_MEMORY = 6  # HSAKMT_STATUS_NO_MEMORY
INVALID = 0x1001
NOT_INITIALIZED = 0x100B
PHYSICAL = 196608
COUNTED: dict[str, str | None] = {"AMVGPU_HSA": "1"}

# What is granted, refused and left, of 10 MiB on each GPU.
EXPECTED: dict[str, Sequence[float]] = {
    "pools": [0, 4, OUT, 0, 10, 0, 0],
    "kinds": [0, 0, 4, OUT],
    "regions": [0, OUT, 0, 4, 0, 10],
    "virtual": [0, OUT, 0, 0, 0, 4, 0, 0, 4, 0, 10, 0, 10],
    "thunk": [0, NO_MEMORY, NO_MEMORY, 0, 0, 0, 0, 0, 0, 6],
    "reports": [10] * 8 + [PHYSICAL] * 4 + [0.0625] * 4,
    "free-fails": [0, 0, 0, INVALID, INVALID, 3, 4, 0, 0, 0, 10],
    "gpus": [0, 0, 4, 4, NO_MEMORY, 0, 4, 0],
    "beside-hip": [0, 4, OUT, 0, 2, 0, 1, 10, 0, 7, 0, 10, 0, 0, 10, 0],
    "of-hips-own": [0, 10, 0, PHYSICAL, PHYSICAL - 60],
    "detour": [0, 0, 4],
    "edges": [INVALID, INVALID, INVALID, INVALID, OUT, INVALID, 3, 10, 0, NOT_INITIALIZED],
}


@pytest.fixture(scope="session", params=["redirected", "bound by the loader"])
def build(request: pytest.FixtureRequest, shim: Path, built: Path) -> Path:
    """The library, and a build that has only the loader's la_symbind64."""
    if request.param == "redirected":
        return shim
    return compile_shim(built / "library-symbind", defines="-DREDIRECT_WAYS=0")


@pytest.mark.parametrize("scene", EXPECTED)
def test_scene(build: Path, below: Path, scene: str) -> None:
    outcome = Runner(build).python("below", below, scene, limit="10m", env={"AMVGPU_HSA": "1"})
    assert outcome.line["told"] == EXPECTED[scene]
    assert outcome.stderr == ""


def test_what_a_callback_takes_counts(run: Runner, run_bare: Runner, built: Path, below: Path) -> None:
    """Its last call returns into the runtime, as the runtime's own calls do."""
    runtime = below / "libhsa-runtime64.so.1"
    flags = [f"-Wl,-rpath-link,{below}", "-foptimize-sibling-calls"]
    lister = compile_linked(HERE / "programs" / "lister.c", built / "lister", runtime, flags)
    assert run_bare(lister).line["taken"] is True
    assert run(lister, limit="10m", env={"AMVGPU_HSA": "1"}).line == {"code": 0x1008, "taken": False}


@pytest.mark.parametrize(
    "scene", [scene for scene in EXPECTED if scene not in {"edges", "beside-hip", "detour", "free-fails"}]
)
@pytest.mark.parametrize("setting", [None, "", "0", "01", "yes"])
def test_it_is_off_by_default(run: Runner, run_bare: Runner, below: Path, scene: str, setting: str | None) -> None:
    env = {} if setting is None else {"AMVGPU_HSA": setting}
    told = run.python("below", below, scene, limit="10m", env=env).line["told"]
    assert told == run_bare.python("below", below, scene).line["told"]
    assert OUT not in told
    assert NO_MEMORY not in told


def test_without_a_limit_nothing_is_counted(run: Runner, run_bare: Runner, below: Path) -> None:
    told = run.python("below", below, "pools", env={"AMVGPU_HSA": "1"}).line["told"]
    assert told == run_bare.python("below", below, "pools").line["told"]


def test_the_local_data_share_is_no_memory_of_the_gpu(run: Runner, below: Path) -> None:
    """Its size is told as it is, also where the limit is smaller."""
    told = run.python("below", below, "reports", limit="32k", env={"AMVGPU_HSA": "1"}).line["told"]
    assert told == [1 / 32] * 8 + [PHYSICAL] * 4 + [1 / 16] * 4


def test_a_gpu_is_the_same_for_every_version_of_hip(run: Runner, below: Path) -> None:
    env = {"AMVGPU_HSA": "1", "STANDIN_HIP_5": "1"}
    assert run.python("below", below, "beside-hip", limit="10m", env=env).line["told"] == EXPECTED["beside-hip"]


def test_a_gpus_own_limit_goes_by_the_runtimes_number(run: Runner, below: Path) -> None:
    env = {"AMVGPU_HSA": "1", "HIP_DEVICE_MEMORY_LIMIT_1": "5m"}
    told = run.python("below", below, "gpus", limit="10m", env=env).line["told"]
    assert told == [0, OUT, 4, 5, NO_MEMORY, 0, 4, 1]


def test_a_faulty_limit_refuses_everything_on_a_gpu(run: Runner, below: Path) -> None:
    outcome = run.python("below", below, "kinds", limit="much", env={"AMVGPU_HSA": "1"})
    assert outcome.line["told"] == [OUT, 0, 0, OUT]
    (warning,) = outcome.stderr.splitlines()
    assert warning.startswith("amd-vgpu: warning: HIP_DEVICE_MEMORY_LIMIT='much' is no memory size")


def test_processes_share_one_account_whatever_they_use(run: Runner, below: Path) -> None:
    """A process that only has the thunk, and one that only has HIP."""
    env = {"AMVGPU_HSA": "1", "AMVGPU_REGION": str(new_region())}
    held = (
        "import ctypes, sys, subprocess\n"
        "thunk, place = ctypes.CDLL(sys.argv[1] + '/libhsakmt.so.1'), ctypes.c_void_p()\n"
        "assert thunk.hsaKmtAllocMemory(1, ctypes.c_uint64(7 << 20), 1, ctypes.byref(place)) == 0\n"
        "subprocess.run(sys.argv[2:], check=True)\n"
    )
    inner = (
        "import ctypes, sys, json\n"
        "hip, place = ctypes.CDLL(sys.argv[1] + '/libamdhip64.so.6'), ctypes.c_void_p()\n"
        "take = lambda mib: hip.hipMalloc(ctypes.byref(place), ctypes.c_size_t(mib << 20))\n"
        "print(json.dumps([take(4), take(3), take(1)]))\n"
    )
    command: list[str | Path] = ["python3", "-c", held, below, "python3", "-c", inner, below]
    outcome = run(*command, limit="10m", env=env)
    assert (outcome.stdout, outcome.stderr) == ("[2, 0, 2]\n", "")


def test_messages_say_what_is_counted_and_refused(run: Runner, below: Path) -> None:
    outcome = run.python("below", below, "pools", limit="10m", env={"AMVGPU_HSA": "1", "AMVGPU_LOG": "2"})
    lines = outcome.stderr.splitlines()
    assert all(line.startswith("amd-vgpu: ") for line in lines)
    for part in (
        f"counts what is taken from {below}/libhsakmt.so.1",
        f"counts what is taken from {below}/libhsa-runtime64.so.1",
        "refused 6291456 bytes of HSA's on device 0, whose limit is 10485760",
        "HSA's allocation of 6291456 bytes on device 0: code 0",
        "HSA's free of 6291456 bytes: code 0",
    ):
        assert f"amd-vgpu: {part}" in lines


def table_names() -> set[str]:
    table = (SHIM / "hsa_table.h").read_text().partition("/* Functions that the hooks call. */")[0]
    return set(re.findall(r"ROW\((hsa\w+),", table))


def test_every_hook_is_called_by_a_test() -> None:
    program = Path(__file__).with_name("programs") / "below.py"
    assert {name for name in table_names() if not re.search(rf"\b{name}\b", program.read_text())} == set()


@pytest.fixture(scope="session")
def real(real_hip: Path) -> dict[str, Path]:
    """Debian's libhsa-runtime64 and libhsakmt, which its libamdhip64 needs."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = {line.split()[0]: Path(line.split()[-1]) for line in known.splitlines() if "libhsa" in line}
    need(len(found) >= 2, f"the libraries that {real_hip} needs are not there")
    return {"runtime": found["libhsa-runtime64.so.1"], "thunk": found["libhsakmt.so.1"]}


CODES = """
import ctypes, json, sys
runtime, thunk = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
place, value, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(1 << 20)
def around():
    yield runtime.hsa_amd_memory_pool_allocate(ctypes.c_uint64(16), size, 0, ctypes.byref(place))
    yield runtime.hsa_memory_allocate(ctypes.c_uint64(16), size, ctypes.byref(place))
    yield runtime.hsa_amd_memory_pool_free(None)
    yield runtime.hsa_memory_free(None)
    yield runtime.hsa_agent_get_info(ctypes.c_uint64(16), 0xA015, ctypes.byref(value))
    yield runtime.hsa_region_get_info(ctypes.c_uint64(16), 2, ctypes.byref(value))
    yield runtime.hsa_amd_memory_pool_get_info(ctypes.c_uint64(16), 2, ctypes.byref(value))
    yield thunk.hsaKmtAllocMemory(1, size, 1, ctypes.byref(place))
    yield thunk.hsaKmtFreeMemory(None, size)
codes = list(around()) + [runtime.hsa_init()] + list(around())
def owner(function):
    address = ctypes.cast(function, ctypes.c_void_p).value
    spans = (line.split() for line in open('/proc/self/maps'))
    return next(s[-1] for s in spans if int(s[0].split('-')[0], 16) <= address < int(s[0].split('-')[1], 16))
owners = [owner(runtime.hsa_amd_memory_pool_allocate), owner(thunk.hsaKmtAllocMemory), owner(runtime.hsa_init)]
print(json.dumps([codes, owners]))
"""


def test_the_real_libraries_answer_as_without_it(
    run: Runner, run_bare: Runner, shim: Path, real: dict[str, Path]
) -> None:
    """Without a GPU there is nothing but codes."""
    command: list[str | Path] = ["python3", "-c", CODES, real["runtime"], real["thunk"]]
    bare, counted = run_bare(*command), run(*command, limit="10m", env=COUNTED)
    assert counted.stderr == bare.stderr
    (bare_codes, bare_owners), (codes, owners) = bare.line, counted.line
    assert codes == bare_codes
    assert len(set(codes)) > 1
    assert [Path(owner).name for owner in owners[:2]] == [shim.name] * 2
    assert owners[2] == bare_owners[2]


def test_real_hip_still_finds_its_runtime(run: Runner, run_bare: Runner, real_hip: Path) -> None:
    """HIP's own calls of the runtime go through the entry points."""
    words = ["hipGetDeviceCount", "hipMalloc", "hipMemGetInfo", "hipGetLastError"]
    counted = run.python("codes", real_hip, *words, limit="10m", env={"AMVGPU_HSA": "1"})
    assert counted.line["codes"] == run_bare.python("codes", real_hip, *words).line["codes"]
