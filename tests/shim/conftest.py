"""The library, the stand-in HIP runtime and the programs, each compiled once per test session."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.shim.build import (
    HERE,
    compile_client,
    compile_linked,
    compile_shim,
    compile_standin_hip,
    compile_standin_hsa,
)
from tests.shim.real_hip import find_real_hip
from tests.shim.running import Runner


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shim")


@pytest.fixture(scope="session")
def shim(built: Path) -> Path:
    return compile_shim(built / "library")


@pytest.fixture(scope="session")
def standin(built: Path) -> Path:
    folder = built / "hip"
    folder.mkdir()
    return compile_standin_hip(folder)


@pytest.fixture(scope="session")
def client(built: Path, standin: Path) -> Path:
    return compile_client(built / "client", standin)


@pytest.fixture(scope="session")
def below(built: Path) -> Path:
    """The folder of the stand-ins for what lies below HIP."""
    folder = built / "hsa"
    folder.mkdir()
    return compile_standin_hsa(folder)


@pytest.fixture(scope="session")
def real_hip() -> Path:
    return find_real_hip()


@pytest.fixture
def run(shim: Path) -> Runner:
    """Runs programs with the library."""
    return Runner(shim)


@pytest.fixture
def run_bare() -> Runner:
    """Runs programs without it: the proof that a test sees the difference."""
    return Runner(None)


@pytest.fixture(scope="session")
def program(built: Path, standin: Path) -> Callable[..., Path]:
    """Compiles one of the C programs with flags of its own, once."""

    def compile_program(name: str, flags: Sequence[str] = (), suffix: str = "") -> Path:
        out = built / f"{name}{suffix}"
        return out if out.exists() else compile_linked(HERE / "programs" / f"{name}.c", out, standin, flags)

    return compile_program
