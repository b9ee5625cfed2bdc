"""Keeping the webhook's certificates: valid in the Secret, trusted by the API server, served by this process."""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from certs import tls
from certs.inject import inject_ca
from certs.store import Certificates, CertificateStore
from kube.client import KubeClient, KubeError

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
"""How often everything is looked at again. By the wall clock, as monotonic timers stand still in a paused machine."""
_RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class CertSettings:
    """Where certificates are kept, and for whom they are.

    Attributes:
        namespace: of the Secret and of the webhook's Service.
        secret: name of the Secret.
        configuration: name of both webhook configurations.
        names: DNS names and IP addresses of the server.
    """

    namespace: str
    secret: str
    configuration: str
    names: tuple[str, ...]


class CertificateKeeper:
    """Certificates of one server process.

    Args:
        client: the API server.
        settings: see CertSettings.
        context: the server's TLS context, kept loaded with the certificate in force.
    """

    def __init__(self, client: KubeClient, settings: CertSettings, context: ssl.SSLContext) -> None:
        self._client = client
        self._settings = settings
        self._context = context
        self._store = CertificateStore(client, settings.namespace, settings.secret, settings.names)
        self._loaded: Certificates | None = None

    async def run(self, ready: asyncio.Event) -> None:
        """Keep the certificates until cancelled; sets `ready` when they are first served and trusted."""
        while True:
            try:
                await self._check()
            except (KubeError, ssl.SSLError) as error:
                # What is served and trusted stays so: only the renewal waits.
                log.warning("certificates: next try in %.0f s: %s", _RETRY_SECONDS, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            ready.set()
            await asyncio.sleep(CHECK_SECONDS)

    async def _check(self) -> None:
        certificates = await self._store.ensure(datetime.now(UTC))
        # The API server must trust an authority before its certificate is served.
        await inject_ca(self._client, self._settings.configuration, certificates.authority.certificate)
        if certificates != self._loaded:
            tls.load(self._context, certificates.serving)
            self._loaded = certificates
            log.info("serving certificate loaded")
