"""The manual names every message that the rules can give, and none that they cannot."""

import re
from pathlib import Path

from cli.main import make_parser
from protocol.devices import DeviceInfo, encode_register
from protocol.faults import Fault
from tests.webhook.cases import MALFORMED, REFUSED, REFUSED_AT_THE_END, UPDATES, WARNED
from tests.webhook.makers import gpu_container, pod
from webhook.advice import pod_warnings
from webhook.hints import ClusterHints
from webhook.review import User
from webhook.settings import WebhookSettings
from webhook.shape import shape_faults
from webhook.update import update_faults
from webhook.validate import validate_pod

MANUAL = (Path(__file__).parents[2] / "docs" / "webhook.md").read_text()
SETTINGS = WebhookSettings()


def _rows(heading: str) -> list[list[str]]:
    """Return the cells of all tables of a section."""
    section = MANUAL.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def _pattern(text: str) -> str:
    """Return the expression for a text in which `<name>` stands for anything."""
    return re.sub(r"<\w+>", r"[^ ,]+", re.escape(text))


def _faults() -> list[Fault]:
    """Return every fault of the tables of cases."""
    created = [*REFUSED, *REFUSED_AT_THE_END]
    found = [fault for case in created for fault in validate_pod(case.pod, SETTINGS)]
    found += [fault for case in MALFORMED for fault in shape_faults(case.pod)]
    found += [fault for case in UPDATES for fault in update_faults(case.old, case.new, User(case.user), SETTINGS)]
    return found


def test_the_table_of_messages_is_that_of_the_rules() -> None:
    documented = {(field, kind, text) for field, kind, text, _ in (row for row in _rows("Messages") if len(row) == 4)}
    used = set()
    for fault in _faults():
        matching = {
            (field, kind, text)
            for field, kind, text in documented
            if re.search(_pattern(field) + "$", fault.field)
            and kind == fault.kind
            and re.fullmatch(_pattern(text), fault.expected)
        }
        assert len(matching) == 1, fault
        used |= matching
    assert used == documented


def test_the_table_of_warnings_is_that_of_the_rules() -> None:
    documented = {text for text, _ in (row for row in _rows("Messages") if len(row) == 2)}
    used = set()
    for warning in [*(text for case in WARNED for text in pod_warnings(case.pod, SETTINGS)), *_hints()]:
        matching = {text for text in documented if re.fullmatch(_pattern(text), warning)}
        assert len(matching) == 1, warning
        used |= matching
    assert used == documented


def _hints() -> list[str]:
    manifest = pod(gpu_container(gpu="9", gpumem="9"))
    device = DeviceInfo("GPU-1", 0, 10, 5, 304, "MI300X")
    empty, small = ClusterHints(), ClusterHints()
    empty.replace([])
    small.replace([{"metadata": {"annotations": {"hami.io/node-amd-register": encode_register([device])}}}])
    return [text for hints in (empty, small) for text in pod_warnings(manifest, SETTINGS, hints)]


def test_the_table_of_settings_has_the_defaults_of_the_command() -> None:
    options = vars(make_parser(["webhook"]).parse_args(["webhook"]))
    documented = {row[0]: row[1].partition(":")[0] for row in _rows("Settings")}
    assert len(documented) > 10
    assert documented == {option: _shown(options[option.removeprefix("--").replace("-", "_")]) for option in documented}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return f"{default:g}"
    return "" if default in (None, []) else str(default)
