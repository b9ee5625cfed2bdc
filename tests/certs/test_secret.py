"""What the Secret says, and what it keeps of others."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from certs import secret
from certs.authority import KeyPair, issue, new_authority
from certs.secret import Served, Stored
from kube.client import Json

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AUTHORITY = new_authority(now=NOW, life=timedelta(days=10), name="one")
NEXT = new_authority(now=NOW, life=timedelta(days=10), name="two")
SERVING = issue(AUTHORITY, ["localhost"], now=NOW, life=timedelta(days=1))
WHOLE = Stored(
    authority=AUTHORITY,
    serving=SERVING,
    next=NEXT,
    previous=(new_authority(now=NOW, life=timedelta(days=10), name="zero").certificate,),
    replicas={"a": Served("c", "d")},
    retired=("e", "f"),
    request="ca/1",
    accepted="ca/0",
)


def encoded(stored: Stored, before: Json | None = None) -> Json:
    return secret.encode(before, stored, namespace="amd-vgpu", name="tls")


@pytest.mark.parametrize("stored", [WHOLE, Stored(), Stored(authority=AUTHORITY, serving=SERVING)])
def test_it_says_what_was_written(stored: Stored) -> None:
    assert secret.decode(encoded(stored)) == stored


def test_its_keys_are_those_that_every_version_reads() -> None:
    item = encoded(WHOLE)
    assert item["type"] == "kubernetes.io/tls"
    assert base64.b64decode(item["data"]["ca.crt"]) == AUTHORITY.certificate
    assert base64.b64decode(item["data"]["ca.key"]) == AUTHORITY.key
    assert base64.b64decode(item["data"]["tls.crt"]) == SERVING.certificate
    assert base64.b64decode(item["data"]["tls.key"]) == SERVING.key


def test_the_type_has_its_keys_even_before_there_is_a_certificate() -> None:
    data = encoded(Stored(next=NEXT))["data"]
    assert {key: data[key] for key in ("tls.crt", "tls.key")} == {"tls.crt": "", "tls.key": ""}


def test_what_others_wrote_stays_and_what_is_over_goes() -> None:
    before = encoded(WHOLE)
    before["metadata"]["labels"] = {"team": "a"}
    before["metadata"]["annotations"]["note"] = "b"
    before["data"]["more"] = "AAAA"
    after = encoded(Stored(authority=AUTHORITY, serving=SERVING), before)
    assert after["metadata"]["labels"] == {"team": "a"}
    assert after["metadata"]["annotations"] == {"note": "b"}
    assert set(after["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key", "more"}
    assert before["data"]["next-ca.key"], "the object that was read is not changed"


@pytest.mark.parametrize("key", ["ca.crt", "ca.key", "tls.crt", "next-ca.crt", "next-ca.key"])
@pytest.mark.parametrize("value", ["", "AAAA", "no base64"])
def test_what_cannot_be_read_is_missing_and_the_rest_is_not(key: str, value: str) -> None:
    item = encoded(WHOLE)
    item["data"][key] = value
    found = secret.decode(item)
    assert [found.authority, found.serving, found.next].count(None) == 1
    assert found.previous == WHOLE.previous


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "{}", '{"a": 1}', '{"a": {"certificate": "x"}}', "null"])
def test_replicas_that_cannot_be_read_are_none(text: str) -> None:
    item = encoded(WHOLE)
    item["metadata"]["annotations"][secret.SERVING] = text
    assert secret.decode(item).replicas == {}


def test_an_authority_without_its_own_key_is_none() -> None:
    assert secret.decode(encoded(Stored(authority=KeyPair(AUTHORITY.certificate, NEXT.key)))).authority is None


def test_annotations_hold_no_key() -> None:
    assert "PRIVATE" not in json.dumps(encoded(WHOLE)["metadata"])
