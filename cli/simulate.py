"""`amd-vgpu simulate`: what a cluster would do with a load, under several policies side by side."""

import argparse
import json
from pathlib import Path

from cli.files import read_text
from cli.service import StartError
from protocol.policy import Policy
from scheduler.request import Policies
from simulate.engine import Simulation
from simulate.load import LoadError, read_pods
from simulate.nodes import EXAMPLES, NodesError, is_description, read_nodes
from simulate.report import as_json, as_text

_BOTH = ("binpack", "spread")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "simulate", help="what a cluster would do with a load", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--nodes",
        required=True,
        metavar="FILE",
        help="output of `kubectl get nodes -o json`, or lines such as `2 nodes: 4 x MI300X SPX`, or such a line itself",
    )
    parser.add_argument(
        "--pods", required=True, type=Path, metavar="FILE", help="manifests as YAML or JSON, or a trace as *.csv"
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="NODE[/GPU]",
        help="binpack or spread for nodes and, if it is another, for their GPUs; may be given several times "
        "(default: binpack and spread)",
    )
    parser.add_argument("--output", choices=["text", "json"], default="text", help="default: %(default)s")
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    policies = [_policies(text) for text in dict.fromkeys(options.policy or _BOTH)]
    try:
        nodes = read_nodes(_text_or_file(options.nodes))
    except NodesError as error:
        raise StartError(f"--nodes {options.nodes}: {error}") from error
    try:
        pods = read_pods(read_text(options.pods, "--pods"), is_trace=options.pods.suffix == ".csv")
    except LoadError as error:
        raise StartError(f"--pods {options.pods}: {error}") from error
    results = [Simulation(nodes, one).run(pods) for one in policies]
    print(json.dumps(as_json(results), indent=1) if options.output == "json" else as_text(results))
    return 0


def _policies(text: str) -> Policies:
    node, _, gpu = text.partition("/")
    try:
        return Policies(Policy(node), Policy(gpu or node))
    except ValueError as error:
        raise StartError(f"--policy {text}: must be binpack or spread, or two of these with a / between") from error


def _text_or_file(text: str) -> str:
    """Return a description that stands on the command line as it is, else the content of the file of this name."""
    try:
        return read_text(Path(text), "--nodes")
    except StartError as error:
        if is_description(text):
            return text
        raise StartError(f"{error}; a line in place of a file is {EXAMPLES}") from error
