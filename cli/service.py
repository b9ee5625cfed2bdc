"""What every service command shares: options, logging, signals, the API client, errors in words."""

import argparse
import asyncio
import errno
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from kube.client import ConfigurationError, KubeClient, KubeError

Service = Callable[[KubeClient, asyncio.Event], Awaitable[None]]
T = TypeVar("T")

_NO_ADDRESS = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES})


class StartError(Exception):
    """The service cannot start, for a reason that its operator can mend."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every service has."""
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="how to reach the API server; inside a cluster leave it out"
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="default: %(default)s"
    )


def checked(build: Callable[[], T]) -> T:
    """Return the settings that `build` makes.

    Raises:
        StartError: a setting that cannot work, which settings tell by a ValueError.
    """
    try:
        return build()
    except ValueError as error:
        raise StartError(str(error)) from error


def unreachable(error: KubeError, kubeconfig: Path | None) -> StartError:
    """Return what to say when the API server cannot be found or asked."""
    if kubeconfig is None and isinstance(error, ConfigurationError):
        return StartError(f"{str(error).rstrip('.')}: outside a cluster name one with --kubeconfig")
    return StartError(str(error))


def run(options: argparse.Namespace, service: Service) -> int:
    """Run a service until SIGTERM or SIGINT and return the exit status."""
    logging.basicConfig(
        level=options.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    return asyncio.run(_run(options.kubeconfig, service))


async def _run(kubeconfig: Path | None, service: Service) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    try:
        async with KubeClient.connect(kubeconfig) as client:
            await service(client, stop)
    except ConfigurationError as error:
        raise unreachable(error, kubeconfig) from error
    except (OSError, ExceptionGroup) as error:
        for cause in _leaves(error):
            if isinstance(cause, OSError) and cause.errno in _NO_ADDRESS:
                raise StartError(f"{cause.strerror}; choose another address or port") from error
        raise
    return 0


def _leaves(error: Exception) -> Iterator[Exception]:
    """Yield what an exception group is made of, however deep, or the exception itself."""
    if isinstance(error, ExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
