"""What the certificates are like, in words; and asking the replicas for a rotation. Needs no key and makes none."""

import asyncio
import secrets
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from certs import bundle, secret
from certs.authority import describe, expiry, fingerprint, renewal_time
from certs.bundle import Configuration
from certs.secret import ROTATE, ROTATE_AUTHORITY, Served, Stored
from kube import paths
from kube.client import KubeClient, NotFoundError
from kube.listwatch import list_watch

_CERTIFICATE: Final = "certificate/"
_SHOWN: Final = 16
"""Digits of a fingerprint that are shown."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where certificates are kept: the Secret, and the name of both webhook configurations."""

    namespace: str
    secret: str
    configuration: str

    @property
    def secret_path(self) -> str:
        """Path of the Secret."""
        return paths.named(paths.secrets(self.namespace), self.secret)


async def status(client: KubeClient, place: Place, now: datetime) -> list[str]:
    """Return what is stored, served and trusted, line by line.

    Raises:
        KubeError: the API server refused or could not be asked, or there is no Secret.
    """
    stored = secret.decode(await client.get(place.secret_path))
    lines = [f"secret {place.namespace}/{place.secret}", *_stored_lines(stored, now)]
    names = _names(stored)
    for kind, collection in (("mutating", paths.MUTATING_WEBHOOKS), ("validating", paths.VALIDATING_WEBHOOKS)):
        try:
            found = await client.get(paths.named(collection, place.configuration))
        except NotFoundError:
            lines.append(f"{kind} configuration {place.configuration}: not there")
            continue
        lines += [f"{kind} configuration {place.configuration}", *_trust_lines(bundle.read(found), names)]
    return lines


async def ask_for_rotation(client: KubeClient, place: Place, *, authority: bool) -> str:
    """Ask the replicas for a new certificate, or a new authority and then a certificate of it; return the request.

    Raises:
        KubeError: the API server refused or could not be asked, or there is no Secret.
    """
    request = f"{ROTATE_AUTHORITY if authority else _CERTIFICATE}{secrets.token_hex(8)}"
    await client.patch(place.secret_path, {"metadata": {"annotations": {ROTATE: request}}})
    return request


async def wait_for_rotation(client: KubeClient, place: Place, request: str) -> Stored:
    """Wait until a request was carried out and every replica serves the new certificate; return the outcome."""
    collection = paths.secrets(place.namespace)
    found: Stored | None = None
    async with aclosing(list_watch(client, collection, field_selector=f"metadata.name={place.secret}")) as changes:
        async for _ in changes:
            found = secret.decode(await client.get(place.secret_path))
            if _is_done(found, request):
                return found
    raise asyncio.CancelledError  # the loop ends only when it is closed


def _is_done(stored: Stored, request: str) -> bool:
    if stored.accepted != request or stored.next is not None or not (stored.authority and stored.serving):
        return False
    wanted = Served(fingerprint(stored.serving.certificate), fingerprint(stored.authority.certificate))
    return all(one == wanted for one in stored.replicas.values())


def _stored_lines(stored: Stored, now: datetime) -> list[str]:
    parts = (("authority", stored.authority), ("serving certificate", stored.serving), ("next authority", stored.next))
    lines = [f"  {name}: {_about(pair.certificate, now)}" for name, pair in parts if pair is not None]
    lines += [f"  {name}: missing or unreadable" for name, pair in parts[:2] if pair is None]
    lines += [f"  previous authority: {_about(certificate, now)}" for certificate in stored.previous]
    if stored.request:
        lines.append(f"  rotation asked for: {stored.request}")
    return lines + [_replica_line(name, one, stored) for name, one in sorted(stored.replicas.items())]


def _about(certificate: bytes, now: datetime) -> str:
    subject, issuer = describe(certificate)
    signer = "itself" if issuer == subject else issuer
    end, renewal = expiry(certificate), renewal_time(certificate)
    left = "expired" if end <= now else f"{(end - now).total_seconds() / 86400:.1f} days left"
    return (
        f"{subject}, signed by {signer}, until {end:%Y-%m-%d %H:%M:%S}Z ({left}), renewed from {renewal:%Y-%m-%d}, "
        f"sha256 {fingerprint(certificate)[:_SHOWN]}"
    )


def _replica_line(name: str, served: Served, stored: Stored) -> str:
    current = stored.serving is not None and served.certificate == fingerprint(stored.serving.certificate)
    return f"  replica {name}: serves {'the' if current else 'another'} certificate {served.certificate[:_SHOWN]}"


def _names(stored: Stored) -> dict[str, str]:
    names = {fingerprint(certificate): "a previous authority" for certificate in stored.previous}
    for name, pair in (("the next authority", stored.next), ("the authority", stored.authority)):
        if pair is not None:
            names[fingerprint(pair.certificate)] = name
    return names


def _trust_lines(configuration: Configuration, names: dict[str, str]) -> list[str]:
    lines = []
    for index, content in enumerate(configuration.bundles):
        trusted = [f"{names.get(one, 'UNKNOWN')} {one[:_SHOWN]}" for one in bundle.authorities(content)]
        lines.append(f"  webhook {index} trusts: {', '.join(trusted) or 'NOTHING'}")
    return lines
