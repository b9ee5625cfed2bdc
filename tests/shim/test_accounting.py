"""What all processes of a container hold together."""

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.shim.running import MIB, Runner
from tests.shim.tenants import Container, Tenant, container

LIMIT = 1024 * MIB
PAGE = 4096
STEPS = 10_000
PROCESSES = 8

Program = Callable[..., Path]


@pytest.fixture
def one(run: Runner, program: Program) -> Iterator[Container]:
    with container(run, program("tenant"), "1024m") as made:
        yield made


def test_two_processes_share_the_limit(one: Container) -> None:
    first, second = one.start(), one.start()
    piece = first.malloc(700 * MIB)
    assert piece is not None
    assert second.malloc(400 * MIB) is None
    assert second.malloc(324 * MIB) is not None
    assert (first.left(), second.left()) == (0, 0)
    first.free(piece)
    assert (first.left(), second.left()) == (700 * MIB, 700 * MIB)


def test_each_gpu_has_the_limit_for_itself(one: Container) -> None:
    first, second = one.start(), one.start()
    assert first.malloc(LIMIT, device=0) is not None
    assert second.left(device=1) == LIMIT
    assert second.malloc(LIMIT, device=1) is not None
    assert first.malloc(1, device=1) is None


def test_a_gpu_is_the_same_whatever_its_number(one: Container) -> None:
    """Workers are shown the GPUs in another order, or only one of them."""
    first, second = one.start(env={"HIP_VISIBLE_DEVICES": "1,0"}), one.start(env={"HIP_VISIBLE_DEVICES": "1"})
    assert first.malloc(1000 * MIB, device=0) is not None
    assert second.left() == 24 * MIB
    assert one.start().left(device=0) == LIMIT


def test_gpus_without_a_name_are_told_apart_by_number(one: Container) -> None:
    first = one.start(env={"STANDIN_HIP_NAMELESS": "1"})
    second = one.start(env={"STANDIN_HIP_NAMELESS": "1"})
    assert first.malloc(1000 * MIB, device=1) is not None
    assert (second.left(device=0), second.left(device=1)) == (LIMIT, 24 * MIB)


def test_what_a_killed_process_held_is_there_for_the_next_allocation(one: Container) -> None:
    """Although it is still a zombie."""
    first, second = one.start(), one.start()
    assert first.malloc(LIMIT) is not None
    assert second.malloc(1) is None
    first.kill()
    assert second.malloc(LIMIT) is not None


def test_what_a_killed_process_held_is_reported_as_free_within_a_second(one: Container) -> None:
    first, second = one.start(), one.start()
    assert first.malloc(LIMIT) is not None
    first.kill()
    killed = time.monotonic()
    while second.left() != LIMIT:
        assert time.monotonic() - killed < 1


def test_what_an_ended_process_held_is_there_again(one: Container) -> None:
    first = one.start()
    assert first.malloc(LIMIT) is not None
    first.end()
    one.tenants.remove(first)
    assert one.start().malloc(LIMIT) is not None


def test_a_process_whose_first_thread_ended_still_holds_its_memory(one: Container) -> None:
    """It looks like a zombie."""
    first, second = one.start(), one.start()
    assert first.malloc(1000 * MIB) is not None
    assert first.ask("leave") == "left"
    assert first.ask("pid") == str(first.process.pid)
    assert second.malloc(100 * MIB) is None
    assert second.malloc(24 * MIB) is not None
    assert first.malloc(1) is None


def test_a_forked_child_has_an_account_of_its_own(one: Container) -> None:
    first, second = one.start(), one.start()
    assert first.malloc(500 * MIB) is not None
    assert first.ask("fork") == "child"
    assert first.left() == 524 * MIB
    assert first.malloc(600 * MIB) is None
    assert first.malloc(400 * MIB) is not None
    assert second.left() == 124 * MIB
    kill_child(first)
    first.expect("back")
    assert first.malloc(524 * MIB) is not None
    assert second.malloc(1) is None


def kill_child(parent: Tenant) -> None:
    subprocess.run(["kill", "-9", parent.ask("pid")], check=True)


def test_exec_gives_everything_back(one: Container) -> None:
    first, second = one.start(), one.start()
    assert first.malloc(1000 * MIB) is not None
    assert first.ask("exec") == "ready"
    assert second.malloc(1000 * MIB) is not None
    assert first.left() == 24 * MIB


@pytest.fixture
def pid_namespace() -> list[str]:
    return ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def test_processes_in_other_pid_namespaces_count_as_long_as_they_live(one: Container, pid_namespace: list[str]) -> None:
    """Their process ids mean nothing outside, and may be those of others."""
    inner, outer = one.start(*pid_namespace), one.start()
    assert inner.malloc(1000 * MIB) is not None
    assert outer.malloc(100 * MIB) is None
    assert outer.malloc(10 * MIB) is not None
    other = one.start(*pid_namespace)
    assert other.left() == 14 * MIB
    assert other.malloc(100 * MIB) is None
    inner.process.kill()
    asked = 0
    while other.malloc(1000 * MIB) is None:
        asked += 1
        assert asked < 10**6


def test_containers_do_not_share(run: Runner, program: Program) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(container(run, program("tenant"), "1024m")).start() for _ in range(2))
        assert first.malloc(LIMIT) is not None
        assert second.malloc(LIMIT) is not None


OWN_SHM = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$0" "$@"']
# A container's root: what it writes lies elsewhere, so the root is another file system.
OWN_ROOT = [
    "unshare", "--mount", "sh", "-ec",
    """mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
    mount --rbind /proc /mnt/root/proc && mount --rbind /dev /mnt/root/dev && mount --rbind /tmp /mnt/root/tmp
    exec chroot /mnt/root "$0" "$@" """,
]  # fmt: skip


def test_without_a_folder_containers_are_told_apart_by_their_root(one: Container) -> None:
    """Those of a pod have /dev/shm in common."""
    nowhere: dict[str, str | None] = {"AMVGPU_REGION": None}
    first = one.start(*OWN_SHM, env=nowhere)
    pod = ["nsenter", "--mount", "--target", str(first.process.pid)]
    second, other = one.start(*pod, env=nowhere), one.start(*pod, *OWN_ROOT, env=nowhere)
    assert first.malloc(1000 * MIB) is not None
    assert second.malloc(100 * MIB) is None
    assert other.left() == LIMIT
    assert other.malloc(LIMIT) is not None
    assert second.left() == 24 * MIB


def charged(size: int) -> int:
    return -(-size // PAGE) * PAGE


class Model:
    """What the processes have to find."""

    def __init__(self, one: Container, seed: int) -> None:
        self.one = one
        self.chooser = random.Random(seed)  # noqa: S311
        self.held: dict[Tenant, list[tuple[int, int]]] = {one.start(): [] for _ in range(PROCESSES)}
        self.unseen = 0  # of killed processes, perhaps not credited yet
        self.granted = self.refused = self.killed = 0

    @property
    def left(self) -> int:
        return LIMIT - sum(size for pieces in self.held.values() for _, size in pieces)

    def malloc(self, tenant: Tenant) -> None:
        size = self.chooser.choice([self.left + 1, max(self.left, 1), *(self.chooser.randrange(1, 60 * MIB),) * 8])
        fits = charged(size) <= self.left
        number = tenant.malloc(size)
        assert (number is not None) is fits, f"{size} of {self.left}"
        if number is not None:
            self.held[tenant].append((number, charged(size)))
        self.granted, self.refused = self.granted + fits, self.refused + (not fits)
        self.unseen = self.unseen if fits else 0

    def free(self, tenant: Tenant) -> None:
        pieces = self.held[tenant]
        if pieces:
            tenant.free(pieces.pop(self.chooser.randrange(len(pieces)))[0])

    def kill(self, tenant: Tenant) -> None:
        tenant.kill()
        self.unseen += sum(size for _, size in self.held.pop(tenant))
        self.held[self.one.start()] = []
        self.killed += 1

    def step(self) -> None:
        tenant = self.chooser.choice(list(self.held))
        action = self.chooser.choices([self.malloc, self.free, self.kill], [60, 39, 1])[0]
        action(tenant)
        if self.chooser.random() < 0.1:
            seen = self.chooser.choice(list(self.held)).left()
            assert self.left - self.unseen <= seen <= self.left


@pytest.mark.parametrize("seed", [1, 2])
def test_random_steps_agree_with_a_model(one: Container, seed: int) -> None:
    """10,000 of them, over 8 processes."""
    model = Model(one, seed)
    for _ in range(STEPS):
        model.step()
    assert model.granted > STEPS // 10
    assert model.refused > STEPS // 10
    assert model.killed > STEPS // 200


def test_a_file_that_is_no_region_is_made_anew(one: Container) -> None:
    for content in (b"", b"garbage", b"\xff" * 300_000, bytes(300_000), b"\xff" * (1 << 20)):
        one.file.write_bytes(content)
        first, second = one.start(), one.start()
        assert first.malloc(1000 * MIB) is not None
        assert second.left() == 24 * MIB
        first.kill()
        second.kill()


@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x7f"])
def test_a_file_that_is_overwritten_in_use_is_repaired(one: Container, fill: bytes) -> None:
    first, second = one.start(), one.start()
    assert first.malloc(600 * MIB) is not None
    assert second.malloc(300 * MIB) is not None
    with one.file.open("r+b") as file:
        file.write(fill * one.file.stat().st_size)
    # Each repairs its part when it next needs it.
    first.left()
    second.left()
    assert first.malloc(200 * MIB) is None
    assert second.malloc(100 * MIB) is not None
    assert one.start().malloc(100 * MIB) is None


def test_processes_of_other_users_can_open_the_file(one: Container) -> None:
    assert one.start("sh", "-c", 'umask 077; exec "$0"').malloc(MIB) is not None
    assert one.file.stat().st_mode & 0o777 == 0o666


def test_a_read_only_folder_is_as_good_as_none(run: Runner, standin: Path) -> None:
    env = {"AMVGPU_REGION": "/proc/sys"}
    outcome = run.python("script", standin, f"malloc:{LIMIT + 1}", f"malloc:{LIMIT}", limit="1024m", env=env)
    assert outcome.line["results"] == [2, 0]
    assert "/proc/sys/region', which cannot be opened" in outcome.stderr


def test_a_file_that_is_removed_is_made_anew(one: Container) -> None:
    first = one.start()
    assert first.malloc(1000 * MIB) is not None
    one.file.unlink()
    assert one.start().malloc(LIMIT) is not None
    assert first.malloc(100 * MIB) is None


def unusable(one: Container, kind: str) -> None:
    if kind == "folder":
        one.file.mkdir()
    elif kind == "pipe":
        subprocess.run(["mkfifo", one.file], check=True)
    elif kind == "link":
        one.file.symlink_to("/etc/passwd")
    else:
        one.region.rmdir()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "missing"])
def test_without_a_usable_folder_the_limit_still_holds(run: Runner, standin: Path, one: Container, kind: str) -> None:
    unusable(one, kind)
    words = [f"malloc:{LIMIT + 1}", f"malloc:{LIMIT}", "malloc:1"]
    env = {"AMVGPU_REGION": str(one.region)}
    outcome = run.python("script", standin, *words, limit="1024m", env=env)
    assert outcome.line["results"] == [2, 0, 2]
    (warning,) = outcome.stderr.splitlines()
    assert warning.startswith(f"amd-vgpu: warning: memory cannot be counted in '{one.file}', which ")
