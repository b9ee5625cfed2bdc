"""Durations as operators write them, and settings that cannot work."""

from datetime import timedelta

import pytest

from certs.settings import CertSettings, Times, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90d", timedelta(days=90)),
        ("12h", timedelta(hours=12)),
        ("5m", timedelta(minutes=5)),
        ("30s", timedelta(seconds=30)),
        ("0.5s", timedelta(seconds=0.5)),
        ("0s", timedelta()),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration
    assert format_duration(duration) == text


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1w", "1d12h", " 1d", "nan s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="cert_life must not be greater than ca_life"):
        Times(ca_life=timedelta(days=1), cert_life=timedelta(days=2))
    with pytest.raises(ValueError, match="ca_life must be greater than 0"):
        Times(ca_life=timedelta())
    with pytest.raises(ValueError, match="settle must not be negative"):
        Times(settle=timedelta(seconds=-1))
    with pytest.raises(ValueError, match="absence must not be less than settle"):
        Times(absence=timedelta(seconds=29))
    with pytest.raises(ValueError, match="lease must be at least 1 second"):
        Times(lease=0)


def test_a_replica_has_a_name() -> None:
    assert CertSettings("amd-vgpu", "tls", "amd-vgpu", ("localhost",)).replica
