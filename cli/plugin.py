"""`amd-vgpu plugin`: the device plugin of one node."""

import argparse
import asyncio
import os
from pathlib import Path

from cli import service
from kube.client import KubeClient
from plugin.cdi import CdiError
from plugin.counts import DEFAULT_COUNT, read_count
from plugin.library import LibraryError
from plugin.lifecycle import run
from plugin.metrics import PortError
from plugin.settings import PluginSettings
from plugin.sockets import SocketPathError


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    defaults = PluginSettings(node_name="-", library=Path("/opt/amd-vgpu/libamvgpu.so"))
    parser = commands.add_parser(
        "plugin", help="serve a node's kubelet as its device plugin", description=__doc__, allow_abbrev=False
    )
    service.add_options(parser)
    node = os.environ.get("NODE_NAME")
    parser.add_argument("--node-name", default=node, required=node is None, help="default: environment NODE_NAME")
    parser.add_argument(
        "--namespace",
        default=defaults.namespace,
        help="of the Lease that tells the scheduler that this plugin lives (default: %(default)s)",
    )
    parser.add_argument(
        "--library",
        type=Path,
        default=defaults.library,
        help="the audit library to install on the host (default: %(default)s)",
    )
    parser.add_argument(
        "--library-dir",
        type=Path,
        default=defaults.library_dir,
        help="where to install it, the same path here and on the host (default: %(default)s)",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        default=defaults.run_dir,
        help="where pods with GPUs get a folder, the same path here and on the host (default: %(default)s)",
    )
    parser.add_argument(
        "--cdi",
        type=Path,
        nargs="?",
        const=Path("/var/run/cdi"),
        metavar="FOLDER",
        help="let the container runtime add the devices, by a CDI spec in this folder (%(const)s if none is named)",
    )
    parser.add_argument(
        "--hsa",
        action="store_true",
        help="count memory that programs take below HIP too: OpenCL, OpenMP offload (AMVGPU_HSA=1 in containers)",
    )
    parser.add_argument(
        "--require-audit",
        action="store_true",
        help="kill programs that use a GPU without the audit library (static, musl); needs the host's PID namespace",
    )
    parser.add_argument(
        "--cgroup-root", type=Path, default=defaults.cgroup_root, help="the host's cgroups (default: %(default)s)"
    )
    parser.add_argument(
        "--pod-resources",
        type=Path,
        default=defaults.pod_resources,
        help="socket of the kubelet's PodResources API (default: %(default)s)",
    )
    parser.add_argument(
        "--kubelet-dir", type=Path, default=defaults.kubelet_dir, help="folder of kubelet.sock (default: %(default)s)"
    )
    parser.add_argument("--sysfs-root", type=Path, default=defaults.sysfs_root, help="default: %(default)s")
    parser.add_argument("--dev-root", type=Path, default=defaults.dev_root, help="default: %(default)s")
    parser.add_argument(
        "--count",
        action="append",
        default=[],
        metavar="[TYPE=]NUMBER",
        help="how many pods may share one GPU, or one of a type, such as MI300X=20; may be given several times "
        f"(default: {defaults.count})",
    )
    parser.add_argument("--integrated", action="store_true", help="offer GPUs that are part of a processor too")
    parser.add_argument(
        "--errors-tolerated",
        type=int,
        default=defaults.errors_tolerated,
        metavar="NUMBER",
        help="uncorrectable errors that a block of a healthy GPU may have counted (default: %(default)s)",
    )
    parser.add_argument(
        "--recovery",
        type=float,
        default=defaults.recovery_seconds,
        metavar="SECONDS",
        help="how long a GPU that was unhealthy must be well before it is given out again (default: %(default)g)",
    )
    parser.add_argument(
        "--standalone",
        action="store_true",
        help="give whole GPUs to pods that neither our scheduler nor HAMi's has placed; by default they fail",
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve GET /metrics over plain HTTP; by default it is not"
    )
    parser.add_argument(
        "--allocate-timeout",
        type=float,
        default=defaults.allocate_seconds,
        metavar="SECONDS",
        help="how long Allocate waits for the API server (default: %(default)g)",
    )
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    settings = service.checked(lambda: read_settings(options))

    async def serve(client: KubeClient, stop: asyncio.Event) -> None:
        try:
            await run(settings, client, stop)
        except (CdiError, LibraryError, PortError, SocketPathError) as error:
            raise service.StartError(str(error)) from error

    return service.run(options, serve)


def read_settings(options: argparse.Namespace) -> PluginSettings:
    """Return the settings that the options make.

    Raises:
        ValueError: with the name of a setting that cannot work.
    """
    counts = dict(read_count(text) for text in options.count)
    return PluginSettings(
        node_name=options.node_name,
        namespace=options.namespace,
        library=options.library,
        library_dir=options.library_dir,
        run_dir=options.run_dir,
        cdi_dir=options.cdi,
        below_hip=options.hsa,
        require_audit=options.require_audit,
        cgroup_root=options.cgroup_root,
        pod_resources=options.pod_resources,
        kubelet_dir=options.kubelet_dir,
        sysfs_root=options.sysfs_root,
        dev_root=options.dev_root,
        count=counts.pop("", DEFAULT_COUNT),
        count_by_type=counts,
        integrated=options.integrated,
        errors_tolerated=options.errors_tolerated,
        recovery_seconds=options.recovery,
        standalone=options.standalone,
        metrics_port=options.metrics_port,
        allocate_seconds=options.allocate_timeout,
    )
