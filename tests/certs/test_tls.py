"""Changing the certificate of a server that serves, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import tls
from certs.authority import KeyPair, issue, new_authority

LIFE = timedelta(days=30)
NOW = datetime.now(UTC)


def new_pair() -> tuple[KeyPair, KeyPair]:
    authority = new_authority(now=NOW, life=LIFE, name="ca")
    return authority, issue(authority, ["localhost"], now=NOW, life=LIFE)


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def connected(port: int, authority: KeyPair) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost")
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"hello\n")
    return await reader.readline() == b"hello\n"


async def test_new_handshakes_get_the_new_certificate_and_open_connections_stay() -> None:
    (old_ca, old), (new_ca, new) = new_pair(), new_pair()
    context = tls.new_context()
    tls.load(context, old)
    async with serving(context) as port, connected(port, old_ca) as before:
        tls.load(context, new)
        async with connected(port, new_ca) as after:
            assert await echoes(*after)
        assert await echoes(*before)
        with pytest.raises(ssl.SSLCertVerificationError):
            async with connected(port, old_ca):
                pass


async def test_a7_a_pair_that_does_not_match_changes_nothing() -> None:
    (authority, good), (_, other) = new_pair(), new_pair()
    context = tls.new_context()
    tls.load(context, good)
    with pytest.raises(ssl.SSLError):
        tls.load(context, KeyPair(other.certificate, good.key))
    with pytest.raises(ssl.SSLError):
        tls.load(context, KeyPair(b"-----BEGIN", b""))
    async with serving(context) as port, connected(port, authority) as connection:
        assert await echoes(*connection)


def test_no_key_touches_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    tls.load(tls.new_context(), new_pair()[1])
    assert not list(tmp_path.iterdir())
