"""`amd-vgpu scheduler`: the scheduler extender."""

import argparse
import asyncio

from cli import arguments, service
from kube.client import KubeClient
from protocol.policy import Policy
from scheduler.leader import LeaderSettings
from scheduler.request import Policies
from scheduler.server import SchedulerSettings, run


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    defaults = SchedulerSettings()
    policies = [policy.value for policy in Policy]
    parser = commands.add_parser(
        "scheduler", help="serve kube-scheduler as its extender", description=__doc__, allow_abbrev=False
    )
    service.add_options(parser)
    parser.add_argument("--host", default=defaults.host, help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=arguments.port, default=defaults.port, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument("--health-host", default=defaults.health_host, help="for probes (default: %(default)s)")
    parser.add_argument("--health-port", type=arguments.port, default=defaults.health_port, help="default: %(default)s")
    parser.add_argument(
        "--node-policy",
        choices=policies,
        default=defaults.policies.node.value,
        help="prefer full nodes or empty ones (default: %(default)s)",
    )
    parser.add_argument(
        "--gpu-policy",
        choices=policies,
        default=defaults.policies.gpu.value,
        help="prefer full GPUs of a node or empty ones (default: %(default)s)",
    )
    parser.add_argument(
        "--bind-wait",
        type=float,
        default=defaults.bind_wait_seconds,
        metavar="SECONDS",
        help="how long a bind waits for a node that serves another pod; below the extender's httpTimeout "
        "(default: %(default)g)",
    )
    _add_leader_options(parser)
    parser.set_defaults(command=_command)


def _add_leader_options(parser: argparse.ArgumentParser) -> None:
    defaults = LeaderSettings()
    group = parser.add_argument_group("replicas", "One of them is active, the others stand by.")
    group.add_argument("--namespace", default=defaults.namespace, help="of the Leases (default: %(default)s)")
    group.add_argument("--lease", default=defaults.lease, help="chooses who is active (default: %(default)s)")
    group.add_argument(
        "--lease-duration",
        type=int,
        default=defaults.duration_seconds,
        metavar="SECONDS",
        help="another replica takes over from one that is silent for so long (default: %(default)s)",
    )
    group.add_argument(
        "--kube-scheduler-lease",
        default=defaults.kube_scheduler_lease,
        metavar="NAME",
        help="by which the kube-schedulers choose their leader: the extender beside it is the active one; empty when "
        "kube-scheduler does not run beside (default: %(default)s)",
    )
    group.add_argument(
        "--hostname",
        default=defaults.hostname,
        help="with which the kube-scheduler beside signs that Lease (default: this machine's)",
    )


def _command(options: argparse.Namespace) -> int:
    settings = service.checked(
        lambda: SchedulerSettings(
            host=options.host,
            port=options.port,
            health_host=options.health_host,
            health_port=options.health_port,
            policies=Policies(Policy(options.node_policy), Policy(options.gpu_policy)),
            bind_wait_seconds=options.bind_wait,
            leader=LeaderSettings(
                options.namespace,
                options.lease,
                options.lease_duration,
                options.kube_scheduler_lease,
                options.hostname,
            ),
        )
    )

    async def serve(client: KubeClient, stop: asyncio.Event) -> None:
        await run(settings, client, stop)

    return service.run(options, serve)
