"""The node lock as the plugin uses it: who holds it, and leaving nothing behind that would make others wait.

Should the API server be away for what is done here, the scheduler finds the evidence and does it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from kube.client import ConflictError, Json, KubeClient, KubeError, NotFoundError
from kube.paths import node as node_path
from kube.paths import pod as pod_path
from plugin.holder import Remedy
from plugin.patience import Backoff, Patience
from protocol.lock import NodeLock, decode_lock
from protocol.names import BIND_PHASE, NODE_LOCK, PHASE_FAILED, PHASE_SUCCESS
from protocol.pods import PodRef, annotations

log = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 5


def lock_of(node: Json) -> NodeLock | None:
    """Return who holds a node, None when nobody does."""
    return decode_lock(annotations(node).get(NODE_LOCK, ""))


def fenced(item: Json, notes: Mapping[str, str | None]) -> Json:
    """Return a merge patch of annotations that applies to an object only as it was read."""
    fence = {key: item["metadata"][key] for key in ("uid", "resourceVersion")}
    return {"metadata": {**fence, "annotations": dict(notes)}}


async def settle(client: KubeClient, node: Json, pod: PodRef | None, remedy: Remedy) -> None:
    """Carry out what is due after a call was answered or refused; trouble with it is only logged.

    Args:
        client: the API server.
        node: this node, as it was read for the call: its lock is the one that goes.
        pod: the lock's holder, if it was found.
        remedy: what is due.
    """
    lock = lock_of(node)
    if remedy is Remedy.NOTHING or lock is None:
        return
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            if remedy is Remedy.FAIL and pod is not None:
                await _mark_failed(client, pod)
            await _release(client, node, lock)
    except (KubeError, TimeoutError) as error:
        name = node["metadata"]["name"]
        log.warning("node %s stays locked by %s/%s: %s", name, lock.namespace, lock.pod, repr(error))


async def _mark_failed(client: KubeClient, ref: PodRef) -> None:
    await _patch_while(
        client,
        pod_path(ref.namespace, ref.name),
        lambda pod: PodRef.of(pod) == ref and annotations(pod).get(BIND_PHASE) not in {PHASE_SUCCESS, PHASE_FAILED},
        {BIND_PHASE: PHASE_FAILED},
    )


async def _release(client: KubeClient, node: Json, lock: NodeLock) -> None:
    # The whole lock is compared, its time too: a new pod of the same name may hold the next one.
    path = node_path(node["metadata"]["name"])
    await _patch_while(client, path, lambda item: lock_of(item) == lock, {NODE_LOCK: None}, known=node)


async def _patch_while(
    client: KubeClient,
    path: str,
    is_due: Callable[[Json], bool],
    notes: Mapping[str, str | None],
    *,
    known: Json | None = None,
) -> None:
    """Patch an object for as long as it is due, until it is certain; the caller bounds the time.

    Args:
        client: the API server.
        path: of the object.
        is_due: whether to patch it, as it is.
        notes: the annotations to set, or with None to take away.
        known: the object as it was read a moment ago. Most often nothing has happened to it, and one call is enough.
    """
    patiently, backoff = Patience(), Backoff()
    while True:
        try:
            item = await patiently(lambda: client.get(path)) if known is None else known
            known = None
            if is_due(item):
                await client.patch(path, fenced(item, notes))
        except NotFoundError:
            return
        except ConflictError:
            pass  # a node's state is reported every few seconds: read it again
        except KubeError as error:
            patiently.note(error)
        else:
            return
        await asyncio.sleep(backoff.next())
