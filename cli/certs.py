"""`amd-vgpu certs`: look at the webhook's certificates, or have them renewed now."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from certs.status import Place, ask_for_rotation, status, wait_for_rotation
from cli import arguments
from cli.service import unreachable
from kube.client import KubeClient, KubeError

Action = Callable[[KubeClient], Awaitable[int]]


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where certificates are kept."""
    parser.add_argument("--namespace", default="amd-vgpu", help="of the service and the Secret (default: %(default)s)")
    parser.add_argument(
        "--secret", default="amd-vgpu-webhook-tls", help="keeps the certificates (default: %(default)s)"
    )
    parser.add_argument(
        "--configuration", default="amd-vgpu", help="name of both webhook configurations (default: %(default)s)"
    )


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    parser = commands.add_parser("certs", help="the webhook's certificates", description=__doc__, allow_abbrev=False)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    shown = actions.add_parser("status", help="what is stored, served and trusted, until when", allow_abbrev=False)
    rotated = actions.add_parser("rotate", help="renew now, and wait until it is done", allow_abbrev=False)
    rotated.add_argument("--ca", action="store_true", help="the authority too, not only the serving certificate")
    rotated.add_argument(
        "--timeout",
        type=arguments.seconds,
        default=180.0,
        metavar="SECONDS",
        help="how long to wait (default: %(default)g); the rotation goes on after it",
    )
    for one in (shown, rotated):
        one.add_argument(
            "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, or the pod's own"
        )
        add_place_options(one)
    shown.set_defaults(command=_status)
    rotated.set_defaults(command=_rotate)


def _status(options: argparse.Namespace) -> int:
    async def show(client: KubeClient) -> int:
        print("\n".join(await status(client, _place(options), datetime.now(UTC))))
        return 0

    return _run(options, show)


def _rotate(options: argparse.Namespace) -> int:
    async def rotate(client: KubeClient) -> int:
        place = _place(options)
        request = await ask_for_rotation(client, place, authority=options.ca)
        try:
            async with asyncio.timeout(options.timeout):
                stored = await wait_for_rotation(client, place, request)
        except TimeoutError:
            print(
                f"amd-vgpu: rotation {request} is not done after {options.timeout:g} s; it goes on. "
                "See `amd-vgpu certs status` and the webhook's log",
                file=sys.stderr,
            )
            return 1
        print(f"done: {len(stored.replicas)} replicas serve the new certificate")
        if stored.previous:
            print("the authority that was replaced stays trusted for the retention time")
        return 0

    return _run(options, rotate)


def _place(options: argparse.Namespace) -> Place:
    return Place(options.namespace, options.secret, options.configuration)


def _run(options: argparse.Namespace, action: Action) -> int:
    return asyncio.run(_connected(_kubeconfig(options.kubeconfig), action))


async def _connected(kubeconfig: Path | None, action: Action) -> int:
    try:
        async with KubeClient.connect(kubeconfig) as client:
            return await action(client)
    except KubeError as error:
        raise unreachable(error, kubeconfig) from error


def _kubeconfig(given: Path | None) -> Path | None:
    """Return the kubeconfig that kubectl would take; None: the pod's service account."""
    if given is not None:
        return given
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    usual = Path.home() / ".kube/config"
    if named:
        return Path(named)
    return usual if usual.exists() else None
