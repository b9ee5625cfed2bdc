"""Every way in which a program can be bound to HIP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.shim.build import compile_shim, compile_standin_hip
from tests.shim.running import MIB, Runner

PHYSICAL = 196608 * MIB
LIMITED = {"total": 64 * MIB, "left": 0, "codes": [0, 0, 2, 0, 0, 0]}
UNLIMITED = {"total": PHYSICAL, "left": 0, "codes": [0, 0, 2, 0, 0, 0]}


@dataclass(frozen=True)
class Kind:
    """How a program (or, with `load`, a plugin) is compiled and started."""

    name: str
    flags: Sequence[str]
    load: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    by_loader: bool = False  # the loader's own call for bound symbols sees it too

    def command(self, program: Callable[..., Path]) -> list[str | Path]:
        if self.load is None:
            return [program("binding", self.flags, f"-{self.name}")]
        flags = ["-DPLUGIN", "-shared", "-fPIC", *self.flags]
        return [program("loader"), program("binding", flags, f"-{self.name}.so"), self.load]


def programs() -> list[Kind]:
    return [
        Kind("lazy", ["-DBIND_DIRECT", "-Wl,-z,lazy"], by_loader=True),
        Kind("now", ["-DBIND_DIRECT", "-Wl,-z,now"], by_loader=True),
        Kind("bind-now", ["-DBIND_DIRECT", "-Wl,-z,lazy"], env={"LD_BIND_NOW": "1"}, by_loader=True),
        Kind("no-plt", ["-DBIND_DIRECT", "-fno-plt", "-fPIE", "-Wl,-z,now"]),
        Kind("non-pie", ["-DBIND_DIRECT", "-fno-pie", "-no-pie", "-Wl,-z,lazy"], by_loader=True),
        Kind("table", ["-DBIND_TABLE", "-fPIE", "-pie"]),
        Kind("non-pie-table", ["-DBIND_TABLE", "-fno-pie", "-no-pie", "-Wl,-z,lazy"]),
        Kind("dlsym", ["-DBIND_DLSYM"], by_loader=True),
        Kind("get-proc-address", ["-DBIND_GETPROC"], by_loader=True),
        Kind("constructor", ["-DBIND_DIRECT", "-DIN_CONSTRUCTOR"], by_loader=True),
    ]


def plugins() -> list[Kind]:
    direct = ["-DBIND_DIRECT"]
    return [
        Kind("plugin-now", [*direct, "-Wl,-z,lazy"], load="now", by_loader=True),
        Kind("plugin-linked-now", [*direct, "-Wl,-z,now"], load="now", by_loader=True),
        Kind("plugin-lazy", [*direct, "-Wl,-z,lazy"], load="lazy", by_loader=True),
        Kind("plugin-no-plt", [*direct, "-fno-plt"], load="now"),
        Kind("plugin-table", ["-DBIND_TABLE"], load="now"),
        Kind("plugin-dlsym", ["-DBIND_DLSYM"], load="now", by_loader=True),
        Kind("plugin-get-proc-address", ["-DBIND_GETPROC"], load="now", by_loader=True),
        Kind("plugin-constructor", [*direct, "-DIN_CONSTRUCTOR"], load="now", by_loader=True),
        Kind("plugin-constructor-no-plt", [*direct, "-DIN_CONSTRUCTOR", "-fno-plt"], load="now"),
        Kind("plugin-deepbind", direct, load="deepbind", by_loader=True),
        Kind("plugin-deepbind-no-plt", [*direct, "-fno-plt"], load="deepbind"),
        Kind("plugin-namespace", direct, load="namespace", by_loader=True),
        Kind("plugin-namespace-no-plt", [*direct, "-fno-plt"], load="namespace"),
    ]


KINDS = [*programs(), *plugins()]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def try_kind(run: Runner, program: Callable[..., Path], standin: Path, kind: Kind) -> dict[str, object]:
    env = {"HIP_LIBRARY": str(standin), **kind.env}
    return run(*kind.command(program), limit="64m", env=env).line


@every_kind
def test_bound_to_the_limit(run: Runner, program: Callable[..., Path], standin: Path, kind: Kind) -> None:
    assert try_kind(run, program, standin, kind) == LIMITED


@every_kind
def test_unbound_without_the_library(run_bare: Runner, program: Callable[..., Path], standin: Path, kind: Kind) -> None:
    assert try_kind(run_bare, program, standin, kind) == UNLIMITED


@pytest.fixture(scope="session")
def patching_shim(built: Path) -> Path:
    """A build that edits the symbol table where it is."""
    return compile_shim(built / "library-patch", defines="-DREDIRECT_WAYS=2")


@pytest.fixture(scope="session")
def second_net(built: Path) -> Path:
    """A build that relies on the loader's la_symbind64 alone."""
    return compile_shim(built / "library-symbind", defines="-DREDIRECT_WAYS=0")


@every_kind
def test_patching_in_place(patching_shim: Path, program: Callable[..., Path], standin: Path, kind: Kind) -> None:
    assert try_kind(Runner(patching_shim), program, standin, kind) == LIMITED


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.by_loader], ids=lambda kind: kind.name)
def test_the_second_net(second_net: Path, program: Callable[..., Path], standin: Path, kind: Kind) -> None:
    assert try_kind(Runner(second_net), program, standin, kind) == LIMITED


def test_patching_leaves_the_pages_protected_as_they_were(patching_shim: Path, standin: Path) -> None:
    """The symbols are read-only data again, or HIP's code would have lost its protection."""
    outcome = Runner(patching_shim).python("script", standin, f"mapped:{standin}", limit="1m")
    bare = Runner(None).python("script", standin, f"mapped:{standin}")
    assert outcome.line["results"] == bare.line["results"]
    assert len(bare.line["results"][0]) > 1


@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_every_kind_of_symbol_hash_table(run: Runner, program: Callable[..., Path], tmp_path: Path, style: str) -> None:
    library = compile_standin_hip(tmp_path, [f"-Wl,--hash-style={style}"])
    env = {"HIP_LIBRARY": str(library)}
    assert run(program("binding", ["-DBIND_DLSYM"], "-dlsym"), limit="64m", env=env).line == LIMITED


def test_python_ctypes(run: Runner, standin: Path) -> None:
    outcome = run.python("script", standin, "info", f"malloc:{64 * MIB}", "malloc:1", "free:1", limit="64m")
    assert outcome.line["results"] == [[64 * MIB, 64 * MIB], 0, 2, 0]


@pytest.mark.parametrize(("style", "count"), [("sysv", 200), *(("gnu", count) for count in (200, 260, 300))])
def test_all_other_functions_are_found_where_they_were(
    run: Runner, run_bare: Runner, tmp_path: Path, style: str, count: int
) -> None:
    """Also the last ones of the symbol table, whose length the library has to work out."""
    more = tmp_path / "more.c"
    names = [f"standin_more_{number}" for number in range(count)]
    more.write_text("".join(f"int {name}(void);int {name}(void){{return 1;}}" for name in names))
    library = compile_standin_hip(tmp_path, [str(more), f"-Wl,--hash-style={style}"])
    hooked = {"hipMalloc", "hipFree", "hipMemGetInfo", "hipDeviceTotalMem", "hipMallocPitch"}
    names += [*hooked, "hipGetDevice", "hipGetErrorString"]
    bare = run_bare.python("symbols", library, *names).line
    seen = run.python("symbols", library, *names, limit="1m").line
    assert len(bare) == len(names)
    assert {name for name in names if seen[name] != bare[name]} == hooked
    assert all(seen[name].startswith("libamvgpu.so+") for name in hooked)
