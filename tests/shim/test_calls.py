"""docs/hip-calls.md against the libraries that it is about, and against the tests that it names."""

import fnmatch
import re
from pathlib import Path

import pytest

from tests.shim.build import HERE, SHIM
from tests.shim.needs import need, need_root
from tests.shim.roots import RootError, fetch_symbols
from tests.shim.test_binding import KINDS
from tests.shim.test_families import EXPECTED

DOCUMENT = SHIM.parent / "docs" / "hip-calls.md"
TESTS = HERE.parent
EXPORTS = HERE / "exports"
"""What the libraries export, one file for each of ROCm's layers and versions; see its README."""
LISTS = sorted(EXPORTS.glob("*.txt"))
STILL_SERVED = {
    "hip-5.2": ("bookworm", "libamdhip64-5"),
    "hip-5.7": ("trixie", "libamdhip64-5"),
    "hsa-5.2": ("bookworm", "libhsa-runtime64-1"),
    "hsa-6.1": ("trixie", "libhsa-runtime64-1"),
    "thunk-5.2": ("bookworm", "libhsakmt1"),
    "thunk-6.2": ("trixie", "libhsakmt1"),
}
"""Lists of Debian's released suites, whose packages stay."""
# A name with one of these in it may not be covered by a pattern alone.
TAKES = re.compile(
    r"hip.*(Malloc|Alloc|ArrayCreate|Array3DCreate|Reserve|Import|IpcOpen|TotalMem|MemGetInfo|ProcAddress|Entry)"
)
BELOW = re.compile(r"memory|vmem|svm|interop|buffer|portable|alloc|Memory|ShareMem|SharedHandle|Alloc")


def names_of(file: Path) -> set[str]:
    return set(file.read_text().split())


def kept(layer: str) -> list[Path]:
    return [file for file in LISTS if file.stem.startswith(f"{layer}-")]


@pytest.mark.parametrize("name", STILL_SERVED)
def test_the_lists_are_what_the_real_libraries_export(name: str) -> None:
    need_root()
    try:
        exported = fetch_symbols(*STILL_SERVED[name])
    except RootError as error:
        need(there=False, reason=str(error))
        raise
    ours = {one for one in exported if one.startswith(("hip", "__hip", "hsa"))}
    assert ours == names_of(EXPORTS / f"{name}.txt")


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def patterns(text: str, prefix: str) -> set[str]:
    """The functions, or patterns of them, in the first column of the tables."""
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {name for cell in first for name in re.findall(r"`([\w*]+)`", cell) if name.startswith(prefix)}


def hooked(table: str) -> set[str]:
    rows = (SHIM / table).read_text().partition("/* Functions that the hooks call. */")[0]
    return set(re.findall(r"ROW\((h\w+),", rows))


def uncovered(names: set[str], listed: set[str]) -> set[str]:
    def is_covered(name: str) -> bool:
        return name in listed or (not TAKES.search(name) and any(fnmatch.fnmatchcase(name, known) for known in listed))

    return {name for name in names if not is_covered(name)}


@pytest.mark.parametrize("file", kept("hip"), ids=lambda file: file.stem)
def test_every_function_of_hip_is_replaced_or_listed(file: Path) -> None:
    names = names_of(file)
    assert len(names) > 380
    listed = patterns(sections()["Not replaced"], "hip") | patterns(sections()["Not replaced"], "__hip")
    assert uncovered(names - hooked("hook_table.h"), listed) == set()


@pytest.mark.parametrize("file", kept("hsa") + kept("thunk"), ids=lambda file: file.stem)
def test_every_function_below_hip_about_memory_is_replaced_or_listed(file: Path) -> None:
    names = {name for name in names_of(file) if BELOW.search(name)}
    assert len(names) > 15
    listed = patterns(sections()["Below HIP"], "hsa")
    assert uncovered(names - hooked("hsa_table.h"), listed) == set()


def test_nothing_is_listed_that_no_library_has() -> None:
    names = {name for file in LISTS for name in names_of(file)}
    listed = {name for prefix in ("hip", "__hip", "hsa") for name in patterns(DOCUMENT.read_text(), prefix)}
    assert {known for known in listed if not fnmatch.filter(names, known)} == {"hipMemAlloc"} & listed
    assert hooked("hook_table.h") | hooked("hsa_table.h") <= names


def test_every_version_has_its_list() -> None:
    assert [file.stem for file in LISTS] == [
        *("hip-5.2", "hip-5.7", "hip-6.4", "hip-7.2"),
        *("hsa-5.2", "hsa-6.1", "hsa-6.4", "hsa-7.2"),
        *("thunk-5.2", "thunk-6.2"),
    ]


def test_every_replaced_function_is_in_the_tables() -> None:
    before, _, after = DOCUMENT.read_text().partition("## Not replaced")
    below = after.partition("## Below HIP")[2].partition("| not replaced |")[0]
    assert (patterns(before, "hip"), patterns(below, "hsa")) == (hooked("hook_table.h"), hooked("hsa_table.h"))


def test_every_named_test_exists() -> None:
    text = DOCUMENT.read_text()
    sources = {file.name: file.read_text() for file in TESTS.rglob("test_*.py")}
    everything = "\n".join(sources.values())
    files = set(re.findall(r"`(test_\w+\.py)`", text))
    tests = set(re.findall(r"`(test_\w+)`", text))
    assert len(files) >= 5
    assert len(tests) >= 10
    assert {name for name in files if name not in sources} == set()
    assert {name for name in tests if not re.search(rf"^def {name}\(", everything, re.MULTILINE)} == set()


def test_every_named_scene_and_kind_exists() -> None:
    text = DOCUMENT.read_text()
    lists = re.findall(r"\bscenes? ((?!of)[\w-]+(?:, [\w-]+)*)", text)
    scenes = {name for found in lists for name in found.split(", ")} - {"is"}
    assert len(scenes) >= 15
    assert scenes - set(EXPECTED) == set()
    kinds = {
        name for found in re.findall(r"`test_binding.py`[:,] ([\w-]+(?:, [\w-]+)*)", text) for name in found.split(", ")
    }
    assert len(kinds) >= 5
    assert kinds - {kind.name for kind in KINDS} == set()


FRAMEWORKS = ("PyTorch", "vLLM", "SGLang", "TGI", "llama.cpp", "Ollama", "JAX")


@pytest.mark.parametrize("section", ["Memory", "Reports and look-ups"])
def test_every_call_of_a_framework_has_a_test(section: str) -> None:
    lines = [line for line in sections()[section].splitlines() if line.startswith("|")]
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert header == ["functions", *FRAMEWORKS, "covered by"]
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == len(header), line
        assert all(re.match(r"(K|i)\b|$", cell) for cell in cells[1:-1]), line
        assert re.search(r"test_|scene", cells[-1]), line


def test_a_gap_would_be_found() -> None:
    assert uncovered({"hipMallocTwice"}, {"hipMalloc*", "hip*"}) == {"hipMallocTwice"}
    assert uncovered({"hipEventNew"}, {"hipEvent*"}) == set()
    assert uncovered({"hsaKmtNewMemory"}, {"hsaKmtOldMemory"}) == {"hsaKmtNewMemory"}
