"""Certificates that somebody else makes and renews, such as cert-manager, loaded from a folder when they change."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

import watchfiles

from certs import tls
from certs.authority import KeyPair
from certs.metrics import Metrics

log = logging.getLogger(__name__)

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"


class FolderKeeper:
    """The certificate in a folder, kept loaded. Nothing is written anywhere: neither a Secret nor a caBundle.

    Args:
        folder: holds `tls.crt` and `tls.key`; where a Secret is mounted.
        context: the server's TLS context.
        metrics: are told of everything.
        check: seconds between two looks at the folder; changes are seen at once where the system tells of them.
        retry: seconds to wait when the folder cannot be watched.
    """

    def __init__(
        self,
        folder: Path,
        context: ssl.SSLContext,
        metrics: Metrics | None = None,
        *,
        check: float = 60.0,
        retry: float = 2.0,
    ) -> None:
        self._folder = folder
        self._context = context
        self._metrics = metrics or Metrics()
        self._check = check
        self._retry = retry
        self._loaded: KeyPair | None = None
        self._refused: KeyPair | None = None
        self._changed = asyncio.Event()

    async def run(self, ready: asyncio.Event) -> None:
        """Keep the certificate loaded until cancelled; sets `ready` when it first is."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._keep(ready))

    async def _watch(self) -> None:
        while True:
            try:
                async for _ in watchfiles.awatch(self._folder, recursive=False, debounce=200, step=20):
                    self._changed.set()
            except OSError as error:
                log.warning("folder %s cannot be watched: %s", self._folder, error)
            self._changed.set()
            await asyncio.sleep(self._retry)

    async def _keep(self, ready: asyncio.Event) -> None:
        while True:
            self._changed.clear()
            self._load()
            if self._loaded is not None:
                ready.set()
            try:
                async with asyncio.timeout(self._check if ready.is_set() else self._retry):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _load(self) -> None:
        """Load what is there; a pair that cannot be served is told once, and the one before stays."""
        pair = None
        try:
            pair = read_pair(self._folder)
            if pair in (self._loaded, self._refused):
                return
            tls.load(self._context, pair)
            self._metrics.loaded(pair.certificate)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self._refused = pair
            self._metrics.failed()
            log.warning("folder %s: %s; served as before: %s", self._folder, error, self._loaded is not None)
            return
        self._loaded, self._refused = pair, None
        log.info("serving certificate loaded from %s", self._folder)


def read_pair(folder: Path) -> KeyPair:
    """Read both files from one version of the folder.

    A mounted Secret changes by a symbolic link that is turned to another folder. Were each file read by its own name,
    the certificate might be of one version and the key of the next.

    Raises:
        OSError: a file cannot be read.
    """
    version = (folder / _CERTIFICATE).resolve(strict=True).parent
    if not (version / _KEY).exists():
        version = folder
    return KeyPair((version / _CERTIFICATE).read_bytes(), (version / _KEY).read_bytes())
