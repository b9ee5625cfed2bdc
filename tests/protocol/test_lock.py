"""The node lock's value."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from protocol.lock import NodeLock, decode_lock

SINCE = datetime(2026, 6, 14, 15, 5, 3, tzinfo=UTC)


def test_decode_of_encode_is_the_same() -> None:
    lock = NodeLock(SINCE, "default", "gang-pod-1")
    assert lock.encode() == "2026-06-14T15:05:03Z,default,gang-pod-1"
    assert decode_lock(lock.encode()) == lock


def test_another_writers_time_zone_is_read() -> None:
    lock = decode_lock("2026-06-14T17:05:03+02:00,default,a")
    assert lock is not None
    assert lock.since == SINCE
    assert (
        NodeLock(SINCE.astimezone(timezone(timedelta(hours=9))), "n", "p").encode().startswith("2026-06-14T15:05:03Z")
    )


def test_b9_owners_are_compared_whole() -> None:
    lock = NodeLock(SINCE, "default", "abc-123")
    assert lock.held_by("default", "abc-123")
    assert not lock.held_by("default", "abc")
    assert not lock.held_by("other", "abc-123")


def test_b9_a_pod_that_came_after_the_lock_is_another_of_its_name() -> None:
    lock = NodeLock(SINCE, "default", "web-0")
    assert lock.is_older_than(SINCE + timedelta(minutes=5))
    assert not lock.is_older_than(SINCE + timedelta(seconds=30)), "the clocks may differ"
    assert not lock.is_older_than(SINCE - timedelta(hours=1))


@pytest.mark.parametrize(
    ("age", "due"), [(-3600, True), (-61, True), (-59, False), (0, False), (29, False), (30, True)]
)
def test_a_lock_of_a_time_to_come_is_due_like_one_that_is_too_old(age: int, *, due: bool) -> None:
    lock, now = NodeLock(SINCE, "default", "a"), SINCE + timedelta(seconds=age)
    assert lock.is_due(now, timedelta(seconds=30)) is due


@pytest.mark.parametrize(
    "value",
    [
        "",
        "foo,bar",
        "2026-06-14T15:05:03Z",
        "2026-06-14T15:05:03Z,a,b,c",
        "x,a,b",
        "2026-06-14T15:05:03Z,,b",
        "2026-06-14T15:05:03Z,..,b",
        "2026-06-14T15:05:03Z,a,b/../c",
        "2026-06-14T15:05:03Z,A,b",
        "9999-12-31T23:59:59Z,a,b",
        "0001-01-01T00:00:00+23:59,a,b",
    ],
)
def test_b9_an_unreadable_lock_is_nobodys(value: str) -> None:
    assert decode_lock(value) is None
