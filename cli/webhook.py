"""`amd-vgpu webhook`: the admission webhook and its certificates."""

import argparse
import asyncio
import ssl
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from certs import metrics, tls
from certs.folder import FolderKeeper
from certs.keeper import CertificateKeeper, Keeper
from certs.metrics import Metrics
from certs.settings import CertSettings, Times, format_duration, parse_duration
from cli import arguments, service
from cli.certs import add_place_options
from kube.client import KubeClient
from webhook.app import make_app
from webhook.hints import ClusterHints, watch_nodes
from webhook.server import serve
from webhook.settings import ServerSettings, WebhookSettings, own_users


@dataclass(frozen=True, slots=True)
class _Settings:
    rules: WebhookSettings
    server: ServerSettings
    certificates: CertSettings
    cert_dir: Path | None
    metrics_port: int | None


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    rules, server = WebhookSettings(), ServerSettings("0.0.0.0")  # noqa: S104 - the API server comes from outside the pod
    parser = commands.add_parser("webhook", help="serve the admission webhook", description=__doc__, allow_abbrev=False)
    service.add_options(parser)
    parser.add_argument("--host", default=server.host, help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=arguments.port, default=server.port, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--drain",
        type=arguments.seconds,
        default=server.drain_seconds,
        metavar="SECONDS",
        help="how long to serve on after SIGTERM (default: %(default)g)",
    )
    add_place_options(parser)
    parser.add_argument("--service", default="webhook", help="the certificate is for its name (default: %(default)s)")
    parser.add_argument(
        "--cert-name",
        action="append",
        default=[],
        metavar="NAME",
        help="one more DNS name or IP address for the certificate; may be given several times",
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
    parser.add_argument(
        "--trusted-user",
        action="append",
        default=[],
        metavar="USER",
        help="may write what a pod holds, beside this project's own service accounts, such as "
        "system:serviceaccount:kube-system:hami-scheduler; may be given several times",
    )
    _add_certificate_options(parser)
    parser.set_defaults(command=_command)


def _add_certificate_options(parser: argparse.ArgumentParser) -> None:
    times = Times()
    group = parser.add_argument_group("certificates", "Durations are written as 90d, 12h, 5m or 30s.")
    group.add_argument(
        "--cert-dir",
        type=Path,
        metavar="FOLDER",
        help="serve tls.crt and tls.key of this folder, which somebody else renews, such as cert-manager; "
        "no Secret and no caBundle is written, and the options below have no effect",
    )
    group.add_argument("--lease", default="amd-vgpu-webhook", help="chooses who renews (default: %(default)s)")
    for option, default, words in (
        ("--ca-life", times.ca_life, "of an authority"),
        ("--cert-life", times.cert_life, "of a serving certificate"),
        ("--settle", times.settle, "until every API server knows a changed webhook configuration"),
        ("--retention", times.retention, "how long an authority stays trusted at least after it was replaced"),
        ("--absence", times.absence, "a replica that does not take a new certificate for so long is gone"),
    ):
        text = f"{words} (default: {format_duration(default)})"
        group.add_argument(option, type=_duration, default=default, metavar="DURATION", help=text)
    group.add_argument(
        "--lease-duration",
        type=int,
        default=times.lease,
        metavar="SECONDS",
        help="another replica takes over the renewal from one that is silent for so long (default: %(default)s)",
    )
    group.add_argument(
        "--metrics-port",
        type=arguments.port,
        metavar="PORT",
        help="serve GET /metrics over plain HTTP; by default it is not",
    )


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except (ValueError, OverflowError) as error:
        wanted = "must be a number and one of s, m, h, d, such as 90d, 12h, 5m or 30s"
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: {wanted}") from error


def _command(options: argparse.Namespace) -> int:
    settings = service.checked(lambda: _read(options))

    async def run(client: KubeClient, stop: asyncio.Event) -> None:
        await _run(settings, client, stop)

    return service.run(options, run)


def _read(options: argparse.Namespace) -> _Settings:
    return _Settings(
        WebhookSettings(
            options.scheduler_name,
            options.library_dir,
            not options.no_library_volume,
            own_users(options.namespace) | frozenset(options.trusted_user),
        ),
        ServerSettings(options.host, options.port, options.drain),
        CertSettings(
            namespace=options.namespace,
            secret=options.secret,
            configuration=options.configuration,
            names=(f"{options.service}.{options.namespace}.svc", *options.cert_name),
            lease=options.lease,
            times=Times(
                ca_life=options.ca_life,
                cert_life=options.cert_life,
                settle=options.settle,
                retention=options.retention,
                absence=options.absence,
                lease=options.lease_duration,
            ),
        ),
        options.cert_dir,
        options.metrics_port,
    )


async def _run(settings: _Settings, client: KubeClient, stop: asyncio.Event) -> None:
    """Serve as soon as there is a certificate that the API server trusts, until `stop` is set."""
    context, measured, hints = tls.new_context(), Metrics(), ClusterHints()
    keeper = _keeper(settings, client, context, measured)
    trusted = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(keeper.run(trusted)),
            tasks.create_task(watch_nodes(client, hints)),
            tasks.create_task(_measure(settings, measured)),
        ]
        starting = tasks.create_task(trusted.wait())
        stopping = tasks.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if trusted.is_set():
            serving = tasks.create_task(serve(make_app(settings.rules, hints), context, settings.server))
            await stopping
            serving.cancel()
            await asyncio.wait({serving})
        # Not before the server has closed: until then others must know which certificate is served.
        for task in background:
            task.cancel()


def _keeper(settings: _Settings, client: KubeClient, context: ssl.SSLContext, measured: Metrics) -> Keeper:
    if settings.cert_dir is not None:
        return FolderKeeper(settings.cert_dir, context, measured)
    return CertificateKeeper(client, settings.certificates, context, measured)


async def _measure(settings: _Settings, measured: Metrics) -> None:
    if settings.metrics_port is not None:
        await metrics.serve(measured, settings.server.host, settings.metrics_port)
