"""`amd-vgpu demo`: the whole product in one process, shown in the terminal. It runs from a checkout."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from cli.service import StartError

_CHECKOUT: Final = Path(__file__).resolve().parents[1]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "demo",
        help="see the product work: no root, no GPU, no cluster; from a checkout",
        description=__doc__,
        allow_abbrev=False,
    )
    parser.set_defaults(command=_command)


def _command(_options: argparse.Namespace) -> int:
    if not (_CHECKOUT / "demo/__main__.py").exists():
        raise StartError(
            f"the demonstration is not in {_CHECKOUT}: it needs the tests' stand-ins for a GPU; run `make demo` in a "
            "checkout of the repository"
        )
    # A process of its own, as neither the demonstration nor the stand-ins are installed with the product.
    return subprocess.run([sys.executable, "-m", "demo"], cwd=_CHECKOUT, check=False).returncode
