"""Entry point of the command `amd-vgpu`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Final

from cli.service import StartError

COMMANDS: Final = ("webhook", "scheduler", "plugin", "certs", "validate", "demo", "simulate")
"""Each is a module of this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return the exit status.

    Args:
        arguments: of the command line; None for this process's.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = make_parser(_needed(words)).parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except StartError as error:
        print(f"amd-vgpu: {error}", file=sys.stderr)
        return 1


def make_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of a command line with these sub-commands."""
    parser = argparse.ArgumentParser(
        prog="amd-vgpu", description="Several Kubernetes pods share one AMD GPU.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {metadata.version('amd-vgpu')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in names:
        import_module(f"cli.{name}").add_parser(commands)
    return parser


def _needed(words: Sequence[str]) -> Sequence[str]:
    """Return the sub-commands that the parser must know: the one that is named, else all.

    A service would keep the others' modules in memory, 13 MiB.
    """
    return words[:1] if words and words[0] in COMMANDS else COMMANDS
