"""A small client for the API server: JSON over TLS, and waiting by watching."""

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from tests.cluster.pki import KeyPair

Object: TypeAlias = dict[str, Any]
Predicate: TypeAlias = Callable[[Object | None], bool]

# A watch ends after this time so that its caller can look whether everything is still alive.
WATCH_SECONDS = 2


class ApiClient:
    """Speaks as the cluster's administrator."""

    def __init__(self, server: str, ca_file: Path, identity: KeyPair) -> None:
        self._server = server
        context = ssl.create_default_context(cafile=ca_file)
        context.load_cert_chain(identity.certificate, identity.key)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def is_ready(self) -> bool:
        try:
            with self._open("/readyz", 2.0):
                return True
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        return False

    def get(self, path: str) -> Object | None:
        """Return the object at `path`, or None if there is none."""
        try:
            with self._open(path, 30.0) as response:
                answer: Object = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise

    def post(self, path: str, body: Object) -> Object:
        data = json.dumps(body).encode()
        with self._open(path, 30.0, data) as response:
            answer: Object = json.load(response)
            return answer

    def wait(
        self, collection: str, name: str, predicate: Predicate, timeout: float, alive: Callable[[], None]
    ) -> tuple[bool, Object | None]:
        """Watch one object until it fits; return whether it did and how it looked last (None: it is not there)."""
        deadline = time.monotonic() + timeout
        last: Object | None = None
        while True:
            for last in self._states(collection, name):
                if predicate(last):
                    return True, last
                if time.monotonic() > deadline:
                    return False, last
            alive()
            if time.monotonic() > deadline:
                return False, last

    def _states(self, collection: str, name: str) -> Iterator[Object | None]:
        """Yield the object as it is now and after each change, for a short time."""
        query = {"fieldSelector": f"metadata.name={name}"}
        listing = self.get(f"{collection}?{urllib.parse.urlencode(query)}") or {"items": [], "metadata": {}}
        yield from listing["items"] or [None]
        query |= {
            "watch": "1",
            "timeoutSeconds": str(WATCH_SECONDS),
            "resourceVersion": listing["metadata"].get("resourceVersion", ""),
        }
        with self._open(f"{collection}?{urllib.parse.urlencode(query)}", 10.0 * WATCH_SECONDS) as stream:
            for line in stream:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield None if event["type"] == "DELETED" else event["object"]

    def _open(self, path: str, timeout: float, data: bytes | None = None) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        return self._opener.open(urllib.request.Request(self._server + path, data, headers), timeout=timeout)  # noqa: S310
