"""Certificates from a folder, as the kubelet mounts a Secret, served over real sockets."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certs import tls
from certs.authority import KeyPair
from certs.folder import FolderKeeper
from certs.metrics import Metrics
from tests.certs.test_tls import connected, echoes, new_pair, serving

SECONDS = 20.0


class Mount:
    """A folder as the kubelet makes it: links to files in `..data`, itself a link that is turned by a rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = 0
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(f"..data/{name}")

    def write(self, certificate: bytes, key: bytes) -> None:
        self._versions += 1
        version = self.folder / f"..version-{self._versions}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate)
        (version / "tls.key").write_bytes(key)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        os.replace(link, self.folder / "..data")  # noqa: PTH105 - replaces a link to a folder


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


@asynccontextmanager
async def kept(folder: Path, context: ssl.SSLContext, metrics: Metrics | None = None) -> AsyncIterator[None]:
    ready = asyncio.Event()
    keeping = asyncio.create_task(FolderKeeper(folder, context, metrics, retry=0.1).run(ready))
    try:
        async with asyncio.timeout(SECONDS):
            await ready.wait()
        yield
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


async def served(port: int, authority: KeyPair) -> None:
    """Return as soon as the server has a certificate of this authority."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                async with connected(port, authority) as connection:
                    assert await echoes(*connection)
                    return
            except ssl.SSLCertVerificationError:
                await asyncio.sleep(0.02)


async def test_a_renewed_certificate_is_served_without_a_restart(mount: Mount) -> None:
    (old_ca, old), (new_ca, new) = new_pair(), new_pair()
    mount.write(old.certificate, old.key)
    context = tls.new_context()
    async with kept(mount.folder, context), serving(context) as port, connected(port, old_ca) as before:
        mount.write(new.certificate, new.key)
        await served(port, new_ca)
        assert await echoes(*before)


class Told(Metrics):
    """Sets an event when a failure is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def failed(self) -> None:
        super().failed()
        self.event.set()


async def test_a7_a_pair_that_does_not_match_leaves_the_old_one(mount: Mount, caplog: pytest.LogCaptureFixture) -> None:
    (old_ca, old), (new_ca, new) = new_pair(), new_pair()
    mount.write(old.certificate, old.key)
    context, metrics = tls.new_context(), Told()
    async with kept(mount.folder, context, metrics), serving(context) as port:
        mount.write(new.certificate, old.key)
        async with asyncio.timeout(SECONDS):
            await metrics.event.wait()
        await served(port, old_ca)
        assert "served as before: True" in caplog.text
        assert b"amd_vgpu_certificate_failures_total 1.0" in metrics.render()
        mount.write(new.certificate, new.key)
        await served(port, new_ca)
    assert "PRIVATE" not in caplog.text


async def test_it_waits_for_a_folder_that_comes_later(tmp_path: Path) -> None:
    authority, pair = new_pair()
    folder, context = tmp_path / "later", tls.new_context()

    async def bring() -> None:
        await asyncio.sleep(0.2)
        folder.mkdir()
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)

    bringing = asyncio.create_task(bring())
    async with kept(folder, context), serving(context) as port:
        await served(port, authority)
    await bringing
