"""What the documents promise is there: linked files and headings, named paths, make targets, options of commands."""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cli.main import make_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "shim/README.md", ROOT / "tests/cluster/README.md"])
TOP = "bench|certs|cli|demo|docs|embedded|kube|manifests|plugin|protocol|scheduler|shim|simulate|tests|webhook"

# Options of other programs that the documents name: kubectl, kube-scheduler, valgrind, the benchmarks.
OTHERS = {"--churn", "--force", "--for", "--grace-period", "--help", "--run-libc-freeres", "--subresource", "--tail"}
OTHERS |= {"--pod-max-in-unschedulable-pods-duration"}

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
MAKE = re.compile(r"(?:^|[`\s])make ([a-z][a-z-]*)", re.MULTILINE)
# Not a namespace or a name that stands behind an option or "/", as in `kubectl -n amd-vgpu get pods`.
COMMAND = re.compile(r"(?:^|`|/bin/|\| )amd-vgpu (?=[a-z])([^`\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PATH = re.compile(rf"(?<![\w/.~-])(?:{TOP})/[\w./*-]*\w/?")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def code(page: Path) -> str:
    return "\n".join(CODE.findall(page.read_text()))


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    titles = HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


@cache
def options() -> dict[str, frozenset[str]]:
    """Return the long options of each command, by its words such as `certs rotate`."""
    return {
        one.prog.removeprefix("amd-vgpu").strip(): frozenset(
            word for action in one._actions for word in action.option_strings if word.startswith("--")
        )
        for one in parsers(make_parser())
    }


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


@each_page
def test_every_named_path_is_in_the_repository(page: Path) -> None:
    made = ("shim/build",)  # by make
    missing = [
        path
        for path in PATH.findall(code(page))
        if not path.startswith(made) and not list(ROOT.glob(path.rstrip("/"))) and not list(ROOT.glob(f"{path}.*"))
    ]
    assert missing == []


@each_page
def test_every_make_target_exists(page: Path) -> None:
    folder = page.parent if (page.parent / "Makefile").exists() else ROOT
    rules = "\n".join((one / "Makefile").read_text() for one in {folder, ROOT})
    assert set(MAKE.findall(code(page))) <= set(re.findall(r"^([a-z-]+):", rules, re.MULTILINE))


@each_page
def test_every_command_with_its_options_exists(page: Path) -> None:
    for words in COMMAND.findall(code(page)):
        command = max((name for name in options() if f"{words} ".startswith(f"{name} ")), key=len, default=None)
        assert command, f"{page.name}: amd-vgpu {words}"
        assert set(OPTION.findall(words)) <= options()[command], f"{page.name}: amd-vgpu {words}"


@each_page
def test_every_named_option_is_one_of_some_command(page: Path) -> None:
    known = frozenset().union(*options().values())
    assert set(OPTION.findall(code(page))) - known <= OTHERS


@pytest.mark.parametrize("command", sorted(set(options()) - {""}))
def test_every_option_is_documented(command: str) -> None:
    named = {option for page in ROOT.glob("docs/*.md") for option in OPTION.findall(code(page))}
    assert options()[command] - named <= {"--help"}
