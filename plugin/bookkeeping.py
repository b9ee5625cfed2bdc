"""What the ledger, the cluster, the kernel and the kubelet say about a node's pods, held against each other. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from plugin.ledger import Books, Entry
from plugin.podresources import KubeletShare
from protocol.pods import PodRef
from protocol.survivors import Survivor

_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done about the ledger.

    Attributes:
        lost: entries that are missing or damaged, and can be written again from the pods' annotations.
        survivors: pods that are over and whose processes still run.
        ended: uids of pods that are over and have no process any more, if the cluster confirms it.
        standing: entries of the pods that are not over.
    """

    lost: tuple[Entry, ...]
    survivors: tuple[Survivor, ...]
    ended: tuple[str, ...]
    standing: tuple[Entry, ...]


def judge(books: Books, live: Mapping[str, Entry | None], running: Collection[str]) -> Verdict:
    """Return what is to be done.

    Args:
        books: the ledger.
        live: by uid, for the pods that are not over what the ledger should say; None for a pod that holds no GPU yet.
        running: uids of the pods that have processes.
    """
    over = [uid for uid in (*books.entries, *books.faulty) if uid not in live]
    return Verdict(
        lost=tuple(entry for uid, entry in live.items() if entry is not None and uid not in books.entries),
        survivors=tuple(_survivor(books, uid) for uid in over if uid in running),
        ended=tuple(uid for uid in over if uid not in running),
        standing=tuple(entry for uid, entry in books.entries.items() if uid in live),
    )


def still_listed(entries: Iterable[Entry], shares: Collection[KubeletShare]) -> frozenset[str]:
    """Return the uids of the pods of which the kubelet still counts a container as a holder of its devices.

    The kubelet tells names only, and a pod of the same name may have come after; it has not the same devices.
    """
    held = {(share.namespace, share.pod, share.container, share.device_ids) for share in shares}
    return frozenset(entry.pod.uid for entry in entries if any(key in held for key in _keys(entry)))


def disagreements(books: Books, shares: Iterable[KubeletShare]) -> tuple[str, ...]:
    """Return, in words, which containers have devices that this plugin never gave them."""
    keys = [key for entry in books.entries.values() for key in _keys(entry)]
    # An entry that was written again while the kubelet was silent has no ids: nothing can be said of that pod.
    silent = {(entry.pod.namespace, entry.pod.name) for entry in books.entries.values() if not entry.kubelet_ids}
    names = {key[:3] for key in keys}
    owners = {key[3]: "/".join(key[:3]) for key in keys}
    return tuple(
        _complaint(share, owners.get(share.device_ids))
        for share in shares
        if (share.namespace, share.pod, share.container) not in names and (share.namespace, share.pod) not in silent
    )


def _complaint(share: KubeletShare, owner: str | None) -> str:
    holder = f"container {share.namespace}/{share.pod}/{share.container}"
    if owner is None:
        return f"{holder} has GPU devices of the kubelet, and was never answered for by this plugin"
    return f"{holder} has the GPU devices that were meant for {owner}, and so its share"


def _keys(entry: Entry) -> Iterator[tuple[str, str, str, frozenset[str]]]:
    for container, ids in entry.kubelet_ids.items():
        yield entry.pod.namespace, entry.pod.name, container, ids


def _survivor(books: Books, uid: str) -> Survivor:
    entry = books.entries.get(uid)
    return Survivor(PodRef(_UNKNOWN, _UNKNOWN, uid), None) if entry is None else Survivor(entry.pod, entry.parts)
