"""A TCP line that can be cut: what a network between two real processes may do to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.cluster.network import free_port


class Line:
    """Forwards each connection to a port of this machine, for as long as it is not down.

    Attributes:
        port: where to connect to.
        target: the port behind it; 0 for nobody.
        down: take no new connections.
    """

    def __init__(self, target: int = 0) -> None:
        self.port = free_port()
        self.target = target
        self.down = False
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Line"]:
        """Accept connections while the block lasts."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        try:
            yield self
        finally:
            self.down = True
            server.close()
            self.cut()

    def cut(self) -> None:
        """Break every open connection, without a goodbye."""
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down or not self.target:
            writer.transport.abort()
            return
        try:
            behind, to_behind = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, to_behind}
        self._open |= both
        try:
            await asyncio.gather(_pump(reader, to_behind), _pump(behind, writer))
        finally:
            self._open -= both
            for end in both:
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    # The other direction has nothing to say to somebody who is gone.
    writer.transport.abort()
