"""What this plugin gave to each pod of the node, in files: `held.json` in the pod's folder.

The API server forgets a pod that is deleted by force, and so what its processes hold while they still run. An entry is
written before the kubelet gets its answer, and removed when the pod is over and its processes are gone. Every pod has a
file of its own, replaced at once, so no write can harm another pod's entry.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plugin.files import replace_file
from plugin.podfolders import make_folder, pod_folder, pods_with_folder, remove_folder
from protocol.claim import pod_claims
from protocol.pods import Holding, PodRef
from protocol.survivors import Part, SurvivorsError, decode_parts, encode_parts

_FILE: Final = "held.json"
_MODE: Final = 0o600
_MOST_BYTES: Final = 1024**2


_Version = tuple[int, int, int]


class LedgerError(ValueError):
    """An entry cannot be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a pod was given.

    Attributes:
        pod: which.
        parts: of each GPU, by device id.
        kubelet_ids: by container, the ids that the kubelet chose for it; who was not served yet is missing.
    """

    pod: PodRef
    parts: Mapping[str, Part]
    kubelet_ids: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, pod: PodRef, holding: Holding) -> "Entry":
        """Return the entry of a pod by its annotations, with no container served."""
        claims = pod_claims([demand.role for demand in holding.demands], holding.segments)
        parts = {key: Part(claim.memory_mib, holding.cus.get(key, ())) for key, claim in claims.items()}
        return cls(pod, parts, {})

    def served(self, container: str, device_ids: Iterable[str]) -> "Entry":
        """Return the entry with one more container served."""
        return Entry(self.pod, self.parts, {**self.kubelet_ids, container: frozenset(device_ids)})


@dataclass(frozen=True, slots=True)
class Books:
    """All entries, as they were read together.

    Attributes:
        entries: by pod uid.
        faulty: by pod uid, why its entry cannot be read.
    """

    entries: Mapping[str, Entry]
    faulty: Mapping[str, str]


class Ledger:
    """The entries of one node. Every call works on files and may block.

    Args:
        run_dir: where the pods' folders are.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._known: dict[str, tuple[_Version, Entry]] = {}

    def record(self, entry: Entry) -> None:
        """Write an entry; containers that were served before stay so.

        Raises:
            OSError: it cannot be written.
        """
        folder = pod_folder(self._run_dir, entry.pod.uid)
        make_folder(folder)
        try:
            before = self._read(entry.pod.uid).kubelet_ids
        except LedgerError:
            before = {}
        merged = Entry(entry.pod, entry.parts, {**before, **entry.kubelet_ids})
        replace_file(folder / _FILE, _encode(merged), mode=_MODE)

    def read(self) -> Books:
        """Return all entries.

        Raises:
            OSError: the pods' folders cannot be listed.
        """
        entries: dict[str, Entry] = {}
        faulty: dict[str, str] = {}
        for uid in pods_with_folder(self._run_dir):
            try:
                entries[uid] = self._read(uid)
            except LedgerError as error:
                faulty[uid] = str(error)
        self._known = {uid: known for uid, known in self._known.items() if uid in entries}
        return Books(entries, faulty)

    def forget(self, uid: str) -> None:
        """Remove a pod's entry and all else in its folder.

        Raises:
            OSError: it cannot be removed.
        """
        remove_folder(self._run_dir, uid)

    def _read(self, uid: str) -> Entry:
        path = pod_folder(self._run_dir, uid) / _FILE
        try:
            version = _version(path)
            if uid in self._known and self._known[uid][0] == version:
                return self._known[uid][1]
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError as error:
            raise LedgerError(f"{path}: {error.strerror}") from error
        try:
            entry = _decode(content)
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"{path}: {error}") from error
        if entry.pod.uid != uid:
            raise LedgerError(f"{path}: uid: {entry.pod.uid[:80]!r}: must be the folder's name")
        # Read after its version: what is replaced in between is read again the next time.
        self._known[uid] = version, entry
        return entry


def _version(path: Path) -> _Version:
    """Return what is another once the file was replaced or changed.

    Raises:
        OSError: there is none.
    """
    status = path.stat()
    return status.st_ino, status.st_ctime_ns, status.st_size


def _encode(entry: Entry) -> bytes:
    body = {
        "namespace": entry.pod.namespace,
        "name": entry.pod.name,
        "uid": entry.pod.uid,
        "gpus": encode_parts(entry.parts),
        "kubeletIds": {name: sorted(ids) for name, ids in entry.kubelet_ids.items()},
    }
    return json.dumps(body, indent=1).encode()


def _decode(content: bytes) -> Entry:
    body = json.loads(content)
    if not isinstance(body, dict):
        raise LedgerError("must be a JSON object")
    names = [body.get(key) for key in ("namespace", "name", "uid")]
    if not all(isinstance(name, str) and name for name in names):
        raise LedgerError("must have namespace, name and uid")
    try:
        parts = decode_parts(body.get("gpus"))
    except SurvivorsError as error:
        raise LedgerError(str(error)) from error
    return Entry(PodRef(*map(str, names)), parts, _decode_ids(body.get("kubeletIds")))


def _decode_ids(value: object) -> dict[str, frozenset[str]]:
    if not isinstance(value, dict) or not all(isinstance(ids, list) for ids in value.values()):
        raise LedgerError(f"kubeletIds: {str(value)[:80]!r}: must be an object of lists")
    return {str(name): frozenset(map(str, ids)) for name, ids in value.items()}
