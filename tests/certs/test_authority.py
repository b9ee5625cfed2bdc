"""Certificates as strict verifiers want them."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.authority import KeyPair, is_authority, is_due, is_issued_by, issue, new_authority, renewal_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("webhook.amd-vgpu.svc", "127.0.0.1")
YEAR = timedelta(days=365)


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return new_authority(now=NOW, life=10 * YEAR, name="test-ca")


def parsed(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def verify(pair: KeyPair, authority: KeyPair, name: str, now: datetime = NOW) -> None:
    subject = x509.DNSName(name) if not name[0].isdigit() else x509.IPAddress(ipaddress.ip_address(name))
    builder = PolicyBuilder().store(Store([parsed(authority)])).time(now)
    builder.build_server_verifier(subject).verify(parsed(pair), [])


@pytest.mark.parametrize("name", NAMES)
def test_a6_a_strict_verifier_accepts_every_name(authority: KeyPair, name: str) -> None:
    verify(issue(authority, NAMES, now=NOW, life=YEAR), authority, name)


def test_a_name_that_was_not_asked_for_is_not_covered(authority: KeyPair) -> None:
    with pytest.raises(VerificationError):
        verify(issue(authority, NAMES, now=NOW, life=YEAR), authority, "other.amd-vgpu.svc")


def test_a5_a_verifier_whose_clock_is_behind_accepts_it(authority: KeyPair) -> None:
    verify(issue(authority, NAMES, now=NOW, life=YEAR), authority, NAMES[0], NOW - timedelta(minutes=55))


def test_a_serving_certificate_ends_with_its_authority(authority: KeyPair) -> None:
    late = NOW + 9 * YEAR
    certificate = parsed(issue(authority, NAMES, now=late, life=5 * YEAR))
    assert certificate.not_valid_after_utc == parsed(authority).not_valid_after_utc


def test_a_serving_certificate_serves_and_signs_nothing(authority: KeyPair) -> None:
    extensions = parsed(issue(authority, NAMES, now=NOW, life=YEAR)).extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False


def test_it_is_renewed_after_two_thirds_of_its_life(authority: KeyPair) -> None:
    pair = issue(authority, NAMES, now=NOW, life=timedelta(days=90))
    age = renewal_time(pair.certificate) - NOW
    assert timedelta(days=90) * (2 / 3 - 0.05) <= age <= timedelta(days=60)
    assert not is_due(pair.certificate, NOW + age - timedelta(seconds=1))
    assert is_due(pair.certificate, NOW + age)


def test_the_time_of_renewal_varies_and_every_replica_finds_the_same(authority: KeyPair) -> None:
    pairs = [issue(authority, NAMES, now=NOW, life=timedelta(days=90)) for _ in range(5)]
    times = [renewal_time(pair.certificate) for pair in pairs]
    assert len(set(times)) > 1
    assert times == [renewal_time(pair.certificate) for pair in pairs]


def test_a_life_of_seconds_is_measured_from_now(authority: KeyPair) -> None:
    pair = issue(authority, NAMES, now=NOW, life=timedelta(seconds=6))
    assert timedelta(seconds=3) < renewal_time(pair.certificate) - NOW <= timedelta(seconds=4)


def test_a5_a_certificate_from_a_clock_that_was_ahead_is_due(authority: KeyPair) -> None:
    assert is_due(issue(authority, NAMES, now=NOW + timedelta(hours=2), life=YEAR).certificate, NOW)


def test_an_authority_is_a_certificate_with_its_key(authority: KeyPair) -> None:
    serving = issue(authority, NAMES, now=NOW, life=YEAR)
    assert is_authority(authority)
    assert not is_authority(serving)
    assert not is_authority(KeyPair(authority.certificate, serving.key))
    assert not is_authority(KeyPair(authority.certificate, b"garbage"))
    assert not is_authority(KeyPair(b"", b""))


def test_only_the_right_pair_for_the_right_names_counts(authority: KeyPair) -> None:
    pair = issue(authority, NAMES, now=NOW, life=YEAR)
    other = new_authority(now=NOW, life=YEAR, name="test-ca")
    assert is_issued_by(pair, authority, NAMES)
    assert is_issued_by(pair, authority, tuple(reversed(NAMES)))
    assert not is_issued_by(pair, other, NAMES)
    assert not is_issued_by(pair, authority, NAMES[:1])
    assert not is_issued_by(KeyPair(pair.certificate, other.key), authority, NAMES)
    assert not is_issued_by(KeyPair(b"x", b"y"), authority, NAMES)


def test_a_key_is_not_shown(authority: KeyPair) -> None:
    assert "PRIVATE" not in f"{authority!r}{authority}"
    assert ssl.PEM_cert_to_DER_cert(authority.certificate.decode())
