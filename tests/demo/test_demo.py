"""The demonstration, as a newcomer runs it."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import demo, main

ROOT = Path(__file__).resolve().parents[2]


def without_moments(text: str) -> set[str]:
    """Return the lines of a story without what differs from run to run."""
    return {re.sub(r"\b[0-9a-f]{8}\b|\d+\.\d s|: \d+, failed", "", line) for line in text.splitlines()}


def test_the_story_is_told_to_its_end_within_a_minute() -> None:
    begin = time.monotonic()
    command = [sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main())", "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - begin < 60
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    shown = (ROOT / "README.md").read_text().partition("```\nThree pods")[2].partition("\n```")[0]
    assert without_moments(f"Three pods{shown}") <= without_moments(text), "README.md shows what it really says"
    assert "\x1b" not in text, "no terminal, no colours"
    assert [line for line in text.splitlines() if len(line) > 80 or line != line.rstrip()] == [], "fits 80 columns"
    for name, mib in (("large", 49152), ("medium", 24576), ("small", 16384)):
        seen = rf"{name} +sees {mib} MiB; all of it: works; one byte more: hipErrorOutOfMemory"
        assert re.search(seen, text)
    assert re.search(r"^ +l{15,}m{8,}s{8,}\.+ *$", text, re.MULTILINE), "three pods on one GPU, side by side"
    assert re.search(r"^ +f+m{8,}s{8,}f+ *$", text, re.MULTILINE), "the fourth around those that stayed"
    assert "for 16Gi write 16384" in " ".join(text.split())
    assert "0/2 nodes are available: 1 GPU compute units: 156 free, 231 asked" in " ".join(text.split())
    counted = re.search(r"pods admitted meanwhile: (\d+), failed admissions: (\d+)", text)
    assert counted is not None
    assert int(counted[1]) > 20
    assert int(counted[2]) == 0
    assert "trusted no longer" in text
    assert text.rstrip().endswith('README.md, "Install"')


def test_outside_of_a_checkout_it_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_CHECKOUT", tmp_path)
    assert main.main(["demo"]) == 1
    assert "run `make demo` in a checkout" in capsys.readouterr().err
