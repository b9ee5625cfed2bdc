"""`amd-vgpu validate`: judge what the pods of manifests/examples/validate measured on a node's GPUs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.files import read_text
from cli.measured import Report, ReportError, read_reports
from cli.service import StartError
from cli.verdict import Outcome, Point, judge


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "validate",
        help="judge measurements of the GPUs and compute units that pods really run on",
        description=__doc__,
        allow_abbrev=False,
    )
    parser.add_argument("logs", nargs="*", type=Path, help="logs of the pods (default: standard input)")
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    reports = _read(options.logs)
    if not reports:
        raise StartError("no measurement in the logs: are the pods validate-one and validate-two running?")
    points = judge(reports)
    print(render(reports, points))
    return 0 if all(point.outcome is Outcome.HOLDS for point in points) else 1


def render(reports: Sequence[Report], points: Sequence[Point]) -> str:
    """Return the verdict as Markdown, to be pasted into a report."""
    holding = sum(point.outcome is Outcome.HOLDS for point in points)
    kinds = sorted({gpu.arch for report in reports for gpu in report.gpus})
    rows = [f"| {number} | {one.name} | {one.outcome.value} | {one.seen} |" for number, one in enumerate(points, 1)]
    return "\n".join(
        [
            f"amd-vgpu validate: {holding} of {len(points)} points hold, on {', '.join(kinds)}",
            "",
            "| | point | verdict | seen |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _read(logs: Sequence[Path]) -> tuple[Report, ...]:
    try:
        return read_reports(_lines(logs))
    except ReportError as error:
        raise StartError(f"logs: {error}") from error


def _lines(logs: Sequence[Path]) -> list[str]:
    if not logs:
        return sys.stdin.read().splitlines()
    return [line for log in logs for line in read_text(log, "logs").splitlines()]
