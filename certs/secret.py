"""The Secret that holds everything about the certificates: the only truth about them.

`ca.crt`, `ca.key`, `tls.crt` and `tls.key` are the authority and the serving certificate in force. Beside them are the
authority that will come next and those that were replaced; which replica serves what stands in annotations.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from certs.authority import KeyPair, fingerprint, is_authority
from certs.bundle import authorities
from kube.client import Json

SERVING: Final = "amd-vgpu.io/serving"
"""Annotation: a JSON object, for each replica the fingerprints of what it serves."""
ROTATE: Final = "amd-vgpu.io/rotate"
"""Annotation: somebody asks for a rotation; `ca/<id>` or `certificate/<id>`."""
ACCEPTED: Final = "amd-vgpu.io/rotate-accepted"
"""Annotation: the request that was carried out last."""
RETIRED: Final = "amd-vgpu.io/retired"
"""Annotation: fingerprints of authorities that nobody needs any more."""
ROTATE_AUTHORITY: Final = "ca/"

_NEXT: Final = "next-ca"
_PREVIOUS: Final = "previous-ca.crt"


@dataclass(frozen=True, slots=True)
class Served:
    """What a replica serves: fingerprints of a certificate and of its authority."""

    certificate: str
    authority: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What the Secret says. Whatever cannot be read is None, or missing.

    Attributes:
        authority: in force: every webhook configuration trusted it before it came here.
        serving: the certificate to serve, signed by `authority`.
        next: the authority that will be in force when every webhook configuration trusts it.
        previous: certificates of authorities that replicas may still serve certificates of.
        replicas: what each replica serves.
        retired: fingerprints of authorities that no replica serves a certificate of; no bundle should have them.
        request: a rotation that somebody asked for; empty when there is none.
        accepted: the request that was carried out last.
    """

    authority: KeyPair | None = None
    serving: KeyPair | None = None
    next: KeyPair | None = None
    previous: tuple[bytes, ...] = ()
    replicas: Mapping[str, Served] = field(default_factory=dict)
    retired: tuple[str, ...] = ()
    request: str = ""
    accepted: str = ""


def decode(secret: Json) -> Stored:
    """Return what a Secret says."""
    data = _data(secret)
    notes: Mapping[str, Any] = (secret.get("metadata") or {}).get("annotations") or {}
    return Stored(
        authority=_authority(data, "ca"),
        serving=_serving(data),
        next=_authority(data, _NEXT),
        previous=tuple(authorities(data.get(_PREVIOUS, b"")).values()),
        replicas=_replicas(notes.get(SERVING, "")),
        retired=tuple(str(notes.get(RETIRED, "")).split()),
        request=str(notes.get(ROTATE, "")),
        accepted=str(notes.get(ACCEPTED, "")),
    )


def encode(secret: Json | None, stored: Stored, *, namespace: str, name: str) -> Json:
    """Return a Secret that says this; what else was in it stays."""
    secret = secret or _new(namespace, name)
    data = dict(secret.get("data") or {})
    for key, value in _contents(stored).items():
        _set(data, key, base64.b64encode(value).decode())
    # The type of the Secret asks for these two, even before there is a certificate.
    data.setdefault("tls.crt", "")
    data.setdefault("tls.key", "")
    notes = dict(secret["metadata"].get("annotations") or {})
    served = {replica: asdict(one) for replica, one in sorted(stored.replicas.items())}
    _set(notes, SERVING, json.dumps(served) if served else "")
    _set(notes, RETIRED, " ".join(stored.retired))
    _set(notes, ROTATE, stored.request)
    _set(notes, ACCEPTED, stored.accepted)
    return {**secret, "metadata": {**secret["metadata"], "annotations": notes}, "data": data}


def _new(namespace: str, name: str) -> Json:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}


def _contents(stored: Stored) -> dict[str, bytes]:
    contents = {_PREVIOUS: b"".join(stored.previous)}
    for name, pair in (("ca", stored.authority), ("tls", stored.serving), (_NEXT, stored.next)):
        contents[f"{name}.crt"] = pair.certificate if pair else b""
        contents[f"{name}.key"] = pair.key if pair else b""
    return contents


def _set(target: dict[str, str], key: str, value: str) -> None:
    """Set a key, or take it away when there is nothing to say."""
    if value:
        target[key] = value
    else:
        target.pop(key, None)


def _data(secret: Json) -> dict[str, bytes]:
    data = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            data[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            continue
    return data


def _authority(data: Mapping[str, bytes], name: str) -> KeyPair | None:
    pair = KeyPair(data.get(f"{name}.crt", b""), data.get(f"{name}.key", b""))
    return pair if is_authority(pair) else None


def _serving(data: Mapping[str, bytes]) -> KeyPair | None:
    pair = KeyPair(data.get("tls.crt", b""), data.get("tls.key", b""))
    try:
        fingerprint(pair.certificate)
    except ValueError:
        return None
    return pair


def _replicas(text: str) -> dict[str, Served]:
    try:
        return {
            str(replica): Served(str(one["certificate"]), str(one["authority"]))
            for replica, one in json.loads(text).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}  # each replica writes its own again
