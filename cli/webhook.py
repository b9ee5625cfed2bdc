"""`amd-vgpu webhook`: the admission webhook and its certificates."""

import argparse
import asyncio
from dataclasses import dataclass

from certs import tls
from certs.keeper import CertificateKeeper, CertSettings
from cli import service
from kube.client import KubeClient
from webhook.app import make_app
from webhook.server import serve
from webhook.settings import ServerSettings, WebhookSettings


@dataclass(frozen=True, slots=True)
class _Settings:
    rules: WebhookSettings
    server: ServerSettings
    certificates: CertSettings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    rules, server = WebhookSettings(), ServerSettings("0.0.0.0")  # noqa: S104 - the API server comes from outside the pod
    parser = commands.add_parser("webhook", help="serve the admission webhook", description=__doc__, allow_abbrev=False)
    service.add_options(parser)
    parser.add_argument("--host", default=server.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=server.port, help="0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--drain",
        type=float,
        default=server.drain_seconds,
        metavar="SECONDS",
        help="how long to serve on after SIGTERM (default: %(default)g)",
    )
    parser.add_argument("--namespace", default="amd-vgpu", help="of the service and the Secret (default: %(default)s)")
    parser.add_argument("--service", default="webhook", help="the certificate is for its name (default: %(default)s)")
    parser.add_argument(
        "--cert-name",
        action="append",
        default=[],
        metavar="NAME",
        help="one more DNS name or IP address for the certificate; may be given several times",
    )
    parser.add_argument(
        "--secret", default="amd-vgpu-webhook-tls", help="keeps the certificates (default: %(default)s)"
    )
    parser.add_argument(
        "--configuration", default="amd-vgpu", help="name of both webhook configurations (default: %(default)s)"
    )
    parser.add_argument("--scheduler-name", default=rules.scheduler_name, help="default: %(default)s")
    parser.add_argument(
        "--library-dir",
        default=rules.library_dir,
        help="folder of the audit library on the hosts (default: %(default)s)",
    )
    parser.add_argument(
        "--no-library-volume",
        action="store_true",
        help="do not add the hostPath volume to pods; the device plugin mounts the library",
    )
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    settings = service.checked(lambda: _read(options))

    async def run(client: KubeClient, stop: asyncio.Event) -> None:
        await _run(settings, client, stop)

    return service.run(options, run)


def _read(options: argparse.Namespace) -> _Settings:
    return _Settings(
        WebhookSettings(options.scheduler_name, options.library_dir, not options.no_library_volume),
        ServerSettings(options.host, options.port, options.drain),
        CertSettings(
            namespace=options.namespace,
            secret=options.secret,
            configuration=options.configuration,
            names=(f"{options.service}.{options.namespace}.svc", *options.cert_name),
        ),
    )


async def _run(settings: _Settings, client: KubeClient, stop: asyncio.Event) -> None:
    """Serve as soon as there is a certificate that the API server trusts, until `stop` is set."""
    context = tls.new_context()
    keeper = CertificateKeeper(client, settings.certificates, context)
    trusted = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(keeper.run(trusted))
        starting = tasks.create_task(trusted.wait())
        stopping = tasks.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if trusted.is_set():
            serving = tasks.create_task(serve(make_app(settings.rules), context, settings.server))
            await stopping
            serving.cancel()
            await asyncio.wait({serving})
        keeping.cancel()
