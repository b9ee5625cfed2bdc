"""Two calls side by side."""

import asyncio

import pytest

from kube.client import NotFoundError, UnreachableError
from plugin.patience import both


async def test_two_calls_run_side_by_side() -> None:
    there, back = asyncio.Event(), asyncio.Event()

    async def ask() -> int:
        there.set()
        await back.wait()
        return 1

    async def answer() -> str:
        await there.wait()
        back.set()
        return "2"

    async with asyncio.timeout(10):
        assert await both(ask(), answer()) == (1, "2")


@pytest.mark.parametrize("error", [NotFoundError("gone", status=404), UnreachableError("away")])
async def test_the_first_error_ends_both_and_is_the_one_that_is_raised(error: Exception) -> None:
    ended = asyncio.Event()

    async def fail() -> None:
        raise error

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(type(error)) as caught:
        await both(wait(), fail())
    assert caught.value is error
    assert ended.is_set()


async def test_a_timeout_ends_both() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await both(asyncio.Event().wait(), asyncio.Event().wait())
