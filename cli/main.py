"""Entry point of the command `amd-vgpu`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from cli import certs, plugin, scheduler, webhook
from cli.service import StartError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="amd-vgpu", description="Several Kubernetes pods share one AMD GPU.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {metadata.version('amd-vgpu')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (webhook, scheduler, plugin, certs):
        module.add_parser(commands)
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except StartError as error:
        print(f"amd-vgpu: {error}", file=sys.stderr)
        return 1
