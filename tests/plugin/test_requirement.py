"""`--require-audit` against real processes, in real cgroups; the compute device is a null device of its name."""

import asyncio
import logging
import os
import signal
import stat
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kube.client import KubeClient
from plugin.ledger import Entry, Ledger
from plugin.requirement import Requirement
from plugin.settings import PluginSettings
from plugin.unaudited import Unaudited, find_unaudited, kill
from protocol.pods import PodRef
from tests.plugin.standin_api import StandInApi
from tests.shim.build import compile_c, compile_shim

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
BASE = CGROUPS if (CGROUPS / "cgroup.controllers").exists() else CGROUPS / "pids"
NULL = os.makedev(1, 3)
SOURCE = Path(__file__).parent / "programs" / "opens.c"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes and cgroups: needs root")


@pytest.fixture(scope="module")
def shim() -> Path:
    return compile_shim()


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c([SOURCE], tmp_path_factory.mktemp("dynamic") / "opens")


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c([SOURCE], tmp_path_factory.mktemp("static") / "opens", ["-static"])


@pytest.fixture
def kfd(tmp_path: Path) -> Path:
    path = tmp_path / "dev" / "kfd"
    path.parent.mkdir()
    os.mknod(path, stat.S_IFCHR | 0o666, NULL)
    return path


@contextmanager
def running(program: Path, device: Path, library: Path | None = None) -> Iterator["subprocess.Popen[str]"]:
    env = {} if library is None else {"LD_AUDIT": str(library)}
    with subprocess.Popen(
        [program, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def in_pod(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Put a process into a cgroup as a pod's container, and yield the pod's uid."""
    uid = str(uuid.uuid4())
    container = BASE / f"pod{uid}" / "container"
    container.mkdir(parents=True)
    try:
        (container / "cgroup.procs").write_text(str(process.pid))
        yield uid
    finally:
        process.kill()
        process.wait()
        container.rmdir()
        container.parent.rmdir()


def test_a_static_program_is_found_though_it_has_the_variable(static: Path, kfd: Path, shim: Path) -> None:
    with running(static, kfd, shim) as process:
        found = find_unaudited(PROC, process.pid, NULL)
        assert found is not None
        assert (found.pid, found.program) == (process.pid, str(static))


def test_a_program_that_lost_the_variable_is_found(dynamic: Path, kfd: Path) -> None:
    with running(dynamic, kfd) as process:
        assert find_unaudited(PROC, process.pid, NULL) is not None


def test_a_program_with_the_library_is_left_alone(dynamic: Path, kfd: Path, shim: Path) -> None:
    with running(dynamic, kfd, shim) as process:
        assert find_unaudited(PROC, process.pid, NULL) is None
        assert not kill(Unaudited(process.pid, "made"), PROC, NULL)
        assert process.poll() is None


def test_a_library_that_was_replaced_since_counts(dynamic: Path, kfd: Path, shim: Path, tmp_path: Path) -> None:
    """The plugin puts a new one in its place while programs run with the old one."""
    copy = tmp_path / "libamvgpu.so"
    copy.write_bytes(shim.read_bytes())
    with running(dynamic, kfd, copy) as process:
        copy.unlink()
        assert b"(deleted)" in (PROC / str(process.pid) / "maps").read_bytes()
        assert find_unaudited(PROC, process.pid, NULL) is None


def test_a_program_without_the_gpu_is_left_alone(static: Path, tmp_path: Path, kfd: Path) -> None:
    other = tmp_path / "null"
    os.mknod(other, stat.S_IFCHR | 0o666, NULL)
    with running(static, other) as process:
        assert find_unaudited(PROC, process.pid, NULL) is None
    with running(static, kfd) as process:
        assert find_unaudited(PROC, process.pid, os.makedev(1, 5)) is None


def test_a_process_that_ended_meanwhile(static: Path, kfd: Path) -> None:
    with running(static, kfd) as process:
        found = find_unaudited(PROC, process.pid, NULL)
    assert found is not None
    assert not kill(found, PROC, NULL)
    assert find_unaudited(PROC, process.pid, NULL) is None


@pytest.fixture
def real(settings: PluginSettings, kfd: Path) -> PluginSettings:
    return replace(settings, cgroup_root=CGROUPS, dev_root=kfd.parent)


async def test_what_cannot_be_held_is_killed_and_the_pod_says_why(
    real: PluginSettings, client: KubeClient, api: StandInApi, static: Path, kfd: Path
) -> None:
    ledger = Ledger(real.run_dir)
    with running(static, kfd) as process, in_pod(process) as uid:
        await Requirement(real, client).look()
        assert process.poll() is None, "not a pod that was given anything here"
        ledger.record(Entry(PodRef("ml", "alpine", uid), {}, {}))
        await Requirement(real, client).look()
        assert await asyncio.to_thread(process.wait, 10) == -signal.SIGKILL
    (event,) = [item for path, item in api.objects.items() if "/ml/events/" in path]
    assert event["involvedObject"]["uid"] == uid
    assert (event["type"], event["reason"]) == ("Warning", "WithoutMemoryLimit")
    assert event["message"] == f"{static} used a GPU without libamvgpu.so, which holds programs to their limit: killed"


async def test_what_is_held_runs_on(
    real: PluginSettings, client: KubeClient, api: StandInApi, dynamic: Path, kfd: Path, shim: Path
) -> None:
    with running(dynamic, kfd, shim) as process, in_pod(process) as uid:
        Ledger(real.run_dir).record(Entry(PodRef("ml", "ubuntu", uid), {}, {}))
        await Requirement(real, client).look()
        assert process.poll() is None
    assert not [path for path in api.objects if "/events/" in path]


async def test_it_is_killed_also_while_the_api_server_is_away(
    real: PluginSettings, client: KubeClient, api: StandInApi, static: Path, kfd: Path
) -> None:
    api.refusing = 503
    with running(static, kfd) as process, in_pod(process) as uid:
        Ledger(real.run_dir).record(Entry(PodRef("ml", "alpine", uid), {}, {}))
        await Requirement(real, client).look()
        assert await asyncio.to_thread(process.wait, 10) == -signal.SIGKILL


async def test_without_the_hosts_processes_it_says_so_once(
    settings: PluginSettings, client: KubeClient, kfd: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = tmp_path / "cgroup" / "kubepods" / "poduid-1"
    pod.mkdir(parents=True)
    (tmp_path / "cgroup" / "cgroup.controllers").write_text("pids\n")
    (pod / "cgroup.events").write_text("populated 1\n")
    (pod / "cgroup.procs").write_text("0\n0\n")
    Ledger(settings.run_dir).record(Entry(PodRef("ml", "a", "uid-1"), {}, {}))
    requirement = Requirement(replace(settings, dev_root=kfd.parent), client)
    with caplog.at_level(logging.ERROR):
        await requirement.look()
        await requirement.look()
    assert caplog.text.count("needs hostPID: true") == 1
