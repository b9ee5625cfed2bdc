"""Ways in which Python servers start workers whose environment was reset: workers <way> <program>."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable


def tell() -> None:
    """Become the program that tells; what it is given is what this worker has."""
    os.execve(sys.argv[2], [sys.argv[2]], dict(os.environ))  # noqa: S606


def subprocess_empty(program: str) -> None:
    subprocess.run([program], env={}, check=True)


def subprocess_without_fork(program: str) -> None:
    """A closed descriptor range and a new session rule posix_spawn out, so this is vfork and execve."""
    subprocess.run([program], env={}, check=True, close_fds=True, start_new_session=True)


def subprocess_inheriting(program: str) -> None:
    for name in ("LD_AUDIT", "HSA_CU_MASK", "HIP_DEVICE_MEMORY_LIMIT"):
        os.environ.pop(name)
    subprocess.run([program], check=True)


def posix_spawn(program: str) -> None:
    os.waitpid(os.posix_spawn(program, [program], {}), 0)


def execv_after_clear(program: str) -> None:
    os.environ.clear()
    os.execv(program, [program])  # noqa: S606


def system_after_clear(program: str) -> None:
    os.environ.clear()
    os.system(program)  # noqa: S605 - this is the way that is tried


def multiprocessing_spawn(_: str) -> None:
    """The worker is a new Python, started with what is left of the environment."""
    context = multiprocessing.get_context("spawn")
    search = os.environ["PATH"]
    os.environ.clear()
    os.environ["PATH"] = search
    process = context.Process(target=tell)
    process.start()
    process.join()


def ray(program: str) -> None:
    """A daemon that is forked twice starts the worker; the pipe ends with it."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            subprocess.run([program], env={}, check=True)
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)


WAYS: dict[str, Callable[[str], None]] = {
    "subprocess_empty": subprocess_empty,
    "subprocess_without_fork": subprocess_without_fork,
    "subprocess_inheriting": subprocess_inheriting,
    "posix_spawn": posix_spawn,
    "execv_after_clear": execv_after_clear,
    "system_after_clear": system_after_clear,
    "multiprocessing_spawn": multiprocessing_spawn,
    "ray": ray,
}


def main() -> None:
    """Start one worker."""
    WAYS[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    main()
