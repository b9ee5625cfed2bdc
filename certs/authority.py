"""Making certificates: a certificate authority, and serving certificates that it signs. Pure but for random keys.

Every extension that Python 3.13's and Go's verifiers ask for is there: the CA has critical basic constraints and key
usage, the serving certificate has its names, key identifiers and the server usage.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATE: Final = timedelta(hours=1)
"""How long before now a certificate begins, for verifiers whose clocks are behind."""
RENEW_AT: Final = 2 / 3
"""The part of a certificate's life after which it is renewed, at the latest."""
JITTER: Final = 0.05
"""Up to this part of its life earlier, so that clusters installed at once do not renew at once for ever."""
_JITTER_STEPS: Final = 1000


class CertificateError(ValueError):
    """The PEM text is not a certificate and its key."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM. The key is secret: the type's text does not show it."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def new_authority(*, now: datetime, life: timedelta, name: str) -> KeyPair:
    """Return a self-signed certificate authority.

    Args:
        now: with a time zone.
        life: how long it is valid from now.
        name: its common name.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _builder(subject, subject, key.public_key(), now=now, end=now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _key_pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, names: Sequence[str], *, now: datetime, life: timedelta) -> KeyPair:
    """Return a serving certificate for DNS names and IP addresses; it ends with its authority at the latest."""
    ca = _load(authority.certificate)
    ca_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is no elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = (
        _builder(subject, ca.subject, key.public_key(), now=now, end=min(now + life, ca.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return _key_pair(builder.sign(ca_key, hashes.SHA256()), key)


def renewal_time(certificate: bytes) -> datetime:
    """Return when a certificate should be renewed: after two thirds of its life, or a little earlier.

    How much earlier follows from its serial number, so every replica comes to the same answer.
    """
    parsed = _load(certificate)
    end = parsed.not_valid_after_utc
    begin = min(parsed.not_valid_before_utc + BACKDATE, end)
    jitter = JITTER * (parsed.serial_number % _JITTER_STEPS) / _JITTER_STEPS
    return begin + (end - begin) * (RENEW_AT - jitter)


def is_due(certificate: bytes, now: datetime) -> bool:
    """Return whether a certificate should be renewed, or was made by a clock that was ahead."""
    return not _load(certificate).not_valid_before_utc <= now < renewal_time(certificate)


def expiry(certificate: bytes) -> datetime:
    """Return when a certificate's life ends."""
    return _load(certificate).not_valid_after_utc


def describe(certificate: bytes) -> tuple[str, str]:
    """Return a certificate's subject and issuer, as people write them."""
    parsed = _load(certificate)
    return parsed.subject.rfc4514_string(), parsed.issuer.rfc4514_string()


def fingerprint(certificate: bytes) -> str:
    """Return a certificate's SHA-256, in hexadecimal digits."""
    return _load(certificate).fingerprint(hashes.SHA256()).hex()


def is_authority(pair: KeyPair) -> bool:
    """Return whether this is an authority's certificate and the key to sign with it."""
    try:
        certificate, key = _load(pair.certificate), serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return (
        isinstance(key, ec.EllipticCurvePrivateKey)
        and key.public_key() == certificate.public_key()
        and is_authority_certificate(pair.certificate)
    )


def is_authority_certificate(certificate: bytes) -> bool:
    """Return whether this is the certificate of an authority."""
    try:
        constraints = _load(certificate).extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return constraints.ca


def is_issued_by(pair: KeyPair, authority: KeyPair, names: Sequence[str]) -> bool:
    """Return whether a serving certificate is this authority's, belongs to its key, and covers just these names."""
    try:
        certificate, ca = _load(pair.certificate), _load(authority.certificate)
        certificate.verify_directly_issued_by(ca)
        key = serialization.load_pem_private_key(pair.key, password=None)
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is to be replaced
        return False
    return set(covered) == {_general_name(name) for name in names} and key.public_key() == certificate.public_key()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


@lru_cache(maxsize=64)
def _load(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise CertificateError(f"no PEM certificate: {error}") from error
