"""The manual names every message that the rules can give, and none that they cannot."""

import dataclasses
import re
from pathlib import Path

from tests.webhook.cases import REFUSED
from tests.webhook.makers import gpu_container, pod
from webhook.advice import pod_warnings
from webhook.settings import ServerSettings, WebhookSettings
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


def test_the_table_of_messages_is_that_of_the_rules() -> None:
    documented = {(field, kind, text) for field, kind, text, _ in (row for row in _rows("Messages") if len(row) == 4)}
    used = set()
    for case in REFUSED:
        for fault in validate_pod(case.pod, SETTINGS):
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


def test_the_warning_is_in_the_manual() -> None:
    (warning,) = pod_warnings(pod(gpu_container(gpu="1"), schedulerName="volcano"), SETTINGS)
    ((text, _),) = [row for row in _rows("Messages") if len(row) == 2]
    assert re.fullmatch(_pattern(text), warning)


def test_the_table_of_settings_is_that_of_the_code() -> None:
    fields = [*dataclasses.fields(WebhookSettings), *dataclasses.fields(ServerSettings)]
    defaults = {field.name: field.default for field in fields}
    documented = {name: default for name, default, _ in _rows("Settings")}
    assert documented == {
        name: "" if default is dataclasses.MISSING else _shown(default) for name, default in defaults.items()
    }


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0")
