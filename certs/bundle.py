"""`caBundle` of the webhook configurations: which authorities the API server trusts."""

import base64
import binascii
import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from certs.authority import CertificateError, fingerprint, is_authority_certificate
from kube.client import Json

_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a webhook configuration says about trust.

    Attributes:
        version: changes with every change of its content.
        bundles: the CA bundle of each of its webhooks, PEM.
    """

    version: str
    bundles: tuple[bytes, ...]

    def trusts(self, authority: str) -> bool:
        """Return whether every webhook of it trusts the authority of this fingerprint."""
        return all(authority in authorities(bundle) for bundle in self.bundles)


def read(item: Json) -> Configuration:
    """Return what a MutatingWebhookConfiguration or ValidatingWebhookConfiguration says about trust."""
    metadata = item.get("metadata") or {}
    version = f"{metadata.get('uid')}/{metadata.get('generation') or metadata.get('resourceVersion')}"
    return Configuration(version, tuple(_bundle(webhook) for webhook in item.get("webhooks") or ()))


def with_bundle(item: Json, bundle: bytes) -> Json:
    """Return a webhook configuration with this CA bundle in each of its webhooks.

    It is a raw object, so that fields of newer servers stay.
    """
    wanted = copy.deepcopy(item)
    for webhook in wanted.get("webhooks") or ():
        webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
    return wanted


def authorities(bundle: bytes) -> dict[str, bytes]:
    """Return the authorities of a bundle by fingerprint; whatever else is in it is passed over, as API servers do."""
    found = {}
    for block in _BLOCK.findall(bundle):
        certificate = block + b"\n"
        try:
            if is_authority_certificate(certificate):
                found[fingerprint(certificate)] = certificate
        except CertificateError:
            continue
    return found


def join(certificates: Iterable[bytes]) -> bytes:
    """Return a bundle of these certificates, each once, in an order that does not follow from who is in force."""
    return b"".join(certificate for _, certificate in sorted({fingerprint(one): one for one in certificates}.items()))


def _bundle(webhook: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "", validate=True)
    except (binascii.Error, ValueError):
        return b""
