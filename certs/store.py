"""The Secret that holds the authority and the serving certificate: the only truth about them.

Any number of webhook replicas may start at once: whoever writes first wins, and the others take what is there.
"""

import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from certs.authority import CertificateError, KeyPair, is_issued_by, issue, new_authority, renewal_time
from kube import paths
from kube.client import ConflictError, Json, KubeClient, NotFoundError

log = logging.getLogger(__name__)

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=90)
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the Secret holds: the authority, and the serving certificate that it signed."""

    authority: KeyPair
    serving: KeyPair


class CertificateStore:
    """The Secret `name` in `namespace`, with the keys `ca.crt`, `ca.key`, `tls.crt` and `tls.key`.

    Args:
        client: the API server.
        namespace: of the Secret.
        name: of the Secret.
        names: DNS names and IP addresses that the serving certificate must cover.
    """

    def __init__(self, client: KubeClient, namespace: str, name: str, names: tuple[str, ...]) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._names = names

    async def ensure(self, now: datetime) -> Certificates:
        """Return valid certificates: those in the Secret, renewed or made where that is due.

        Raises:
            KubeError: the API server refused, could not be asked, or others changed the Secret all the time.
        """
        for _ in range(_ATTEMPTS):
            secret = await self._read()
            found = _decode(secret)
            wanted = self._renewed(found, now)
            if wanted == found and found is not None:
                return found
            try:
                await self._write(secret, wanted)
            except ConflictError:
                continue  # another replica was first; take what it wrote
            log.info("wrote secret=%s/%s, new authority: %s", self._namespace, self._name, _is_new(found, wanted))
            return wanted
        raise ConflictError(f"secret {self._namespace}/{self._name} changed {_ATTEMPTS} times", status=409)

    def _renewed(self, found: Certificates | None, now: datetime) -> Certificates:
        authority = found.authority if found is not None else None
        if authority is None or renewal_time(authority) <= now:
            authority = new_authority(now=now, life=AUTHORITY_LIFE, name=f"{self._name}-ca")
        serving = found.serving if found is not None else None
        if serving is None or not is_issued_by(serving, authority, self._names) or renewal_time(serving) <= now:
            serving = issue(authority, self._names, now=now, life=SERVING_LIFE)
        return Certificates(authority, serving)

    async def _read(self) -> Json | None:
        try:
            return await self._client.get(paths.named(paths.secrets(self._namespace), self._name))
        except NotFoundError:
            return None

    async def _write(self, secret: Json | None, certificates: Certificates) -> None:
        collection = paths.secrets(self._namespace)
        if secret is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}
            await self._client.create(collection, {**body, "data": _encode(certificates)})
        else:
            data = {**(secret.get("data") or {}), **_encode(certificates)}
            await self._client.replace(paths.named(collection, self._name), {**secret, "data": data})


def _encode(certificates: Certificates) -> dict[str, str]:
    pairs = {
        "ca.crt": certificates.authority.certificate,
        "ca.key": certificates.authority.key,
        "tls.crt": certificates.serving.certificate,
        "tls.key": certificates.serving.key,
    }
    return {key: base64.b64encode(value).decode() for key, value in pairs.items()}


def _decode(secret: Json | None) -> Certificates | None:
    """Return what the Secret holds, or None when that is not a whole set of readable certificates."""
    data: Mapping[str, str] = (secret or {}).get("data") or {}
    try:
        parts = [base64.b64decode(data[key], validate=True) for key in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
        found = Certificates(KeyPair(parts[0], parts[1]), KeyPair(parts[2], parts[3]))
        renewal_time(found.authority)
        renewal_time(found.serving)
    except (KeyError, binascii.Error, CertificateError):
        return None
    return found


def _is_new(found: Certificates | None, wanted: Certificates) -> bool:
    return found is None or found.authority != wanted.authority
