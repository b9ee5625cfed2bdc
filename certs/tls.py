"""The server's TLS context: certificates come and go in it while it serves."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from certs.authority import KeyPair


def new_context() -> ssl.SSLContext:
    """Return a server context without a certificate; TLS 1.2 at least."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Serve this certificate from the next handshake on; connections that are open stay as they are.

    A key that does not match leaves a context without any working certificate, so the pair is first tried in a context
    of its own.

    Raises:
        ssl.SSLError: certificate and key do not belong together, or cannot be read; the context is unchanged.
    """
    with _readable(pair.certificate + pair.key) as path:
        new_context().load_cert_chain(path)
        context.load_cert_chain(path)


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """Give content a path, as OpenSSL wants one, without writing a key to any disk."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
