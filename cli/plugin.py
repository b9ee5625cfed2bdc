"""`amd-vgpu plugin`: the device plugin of one node."""

import argparse
import asyncio
import os
from pathlib import Path

from cli import service
from kube.client import KubeClient
from plugin.library import LibraryError
from plugin.lifecycle import run
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
        "--kubelet-dir", type=Path, default=defaults.kubelet_dir, help="folder of kubelet.sock (default: %(default)s)"
    )
    parser.add_argument("--sysfs-root", type=Path, default=defaults.sysfs_root, help="default: %(default)s")
    parser.add_argument("--dev-root", type=Path, default=defaults.dev_root, help="default: %(default)s")
    parser.add_argument(
        "--count", type=int, default=defaults.count, help="how many pods may share one GPU (default: %(default)s)"
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
    settings = service.checked(
        lambda: PluginSettings(
            node_name=options.node_name,
            library=options.library,
            library_dir=options.library_dir,
            kubelet_dir=options.kubelet_dir,
            sysfs_root=options.sysfs_root,
            dev_root=options.dev_root,
            count=options.count,
            allocate_seconds=options.allocate_timeout,
        )
    )

    async def serve(client: KubeClient, stop: asyncio.Event) -> None:
        try:
            await run(settings, client, stop)
        except (LibraryError, SocketPathError) as error:
            raise service.StartError(str(error)) from error

    return service.run(options, serve)
