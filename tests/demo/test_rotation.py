"""What the demonstration counts while certificates rotate."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from demo.rotation import Load
from kube.client import Json, KubeClient, KubeError


class Answers(KubeClient):
    """A stand-in for an API server that admits, forgets the webhook, and refuses, by turns."""

    def __init__(self) -> None:
        super().__init__(None, timeout=1)
        self.calls = 0
        self.enough = asyncio.Event()

    async def create(self, path: str, body: Mapping[str, Any]) -> Json:
        assert path.endswith("?dryRun=All"), "nothing is to be stored"
        self.calls += 1
        if self.calls == 6:
            self.enough.set()
            await asyncio.Event().wait()
        if self.calls % 3 == 0:
            raise KubeError("failed calling webhook", status=500)
        scheduler = "amd-vgpu-scheduler" if self.calls % 3 == 1 else "default-scheduler"
        return {"spec": {"schedulerName": scheduler, "body": dict(body)}}


async def test_failures_are_counted_and_only_completed_pods_are_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.rotation._PAUSE_SECONDS", 0)
    client = Answers()
    load = Load(client, {})
    async with asyncio.timeout(5), load.running():
        await client.enough.wait()
    # Of five answers two were completed by the webhook, two passed it by, one was a refusal.
    assert (load.admitted, load.failed) == (2, 3)
