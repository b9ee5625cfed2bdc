"""The options of `amd-vgpu plugin` reach the setting that they are for."""

import argparse

import pytest

from cli.plugin import add_parser, read_settings


@pytest.mark.parametrize(
    ("option", "setting", "expected"),
    [
        ("--hsa", "below_hip", True),
        ("--require-audit", "require_audit", True),
        ("--standalone", "standalone", True),
        ("--integrated", "integrated", True),
        ("--errors-tolerated=3", "errors_tolerated", 3),
        ("--recovery=0", "recovery_seconds", 0),
        ("--allocate-timeout=7", "allocate_seconds", 7),
    ],
)
def test_an_option_reaches_its_setting_and_no_other(option: str, setting: str, expected: object) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    usual = read_settings(parser.parse_args(["plugin", "--node-name=n"]))
    made = read_settings(parser.parse_args(["plugin", "--node-name=n", option]))
    names = [name for name in usual.__dataclass_fields__ if getattr(usual, name) != getattr(made, name)]
    assert names == [setting]
    assert getattr(made, setting) == expected
