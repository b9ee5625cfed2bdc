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


async def lock_value(client: KubeClient, node: str) -> str | None:
    """Return the lock annotation of a node as it stands, None when nobody holds it."""
    return annotations(await client.get(node_path(node))).get(NODE_LOCK)


def fenced(item: Json, notes: Mapping[str, str | None]) -> Json:
    """Return a merge patch of annotations that applies to an object only as it was read."""
    fence = {key: item["metadata"][key] for key in ("uid", "resourceVersion")}
    return {"metadata": {**fence, "annotations": dict(notes)}}


async def settle(client: KubeClient, node: str, lock: NodeLock, pod: PodRef | None, remedy: Remedy) -> None:
    """Carry out what is due after a call was answered or refused; trouble with it is only logged.

    Args:
        client: the API server.
        node: this node's name.
        lock: as it was read for the call.
        pod: the lock's holder, if it was found.
        remedy: what is due.
    """
    if remedy is Remedy.NOTHING:
        return
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            if remedy is Remedy.FAIL and pod is not None:
                await _mark_failed(client, pod)
            await _release(client, node, lock)
    except (KubeError, TimeoutError) as error:
        log.warning("node %s stays locked by %s/%s: %s", node, lock.namespace, lock.pod, repr(error))


async def _mark_failed(client: KubeClient, ref: PodRef) -> None:
    await _patch_while(
        client,
        pod_path(ref.namespace, ref.name),
        lambda pod: PodRef.of(pod) == ref and annotations(pod).get(BIND_PHASE) not in {PHASE_SUCCESS, PHASE_FAILED},
        {BIND_PHASE: PHASE_FAILED},
    )


async def _release(client: KubeClient, node: str, lock: NodeLock) -> None:
    # The whole lock is compared, its time too: a new pod of the same name may hold the next one.
    await _patch_while(
        client,
        node_path(node),
        lambda item: decode_lock(annotations(item).get(NODE_LOCK, "")) == lock,
        {NODE_LOCK: None},
    )


async def _patch_while(
    client: KubeClient, path: str, is_due: Callable[[Json], bool], notes: Mapping[str, str | None]
) -> None:
    """Patch an object for as long as it is due, until it is certain; the caller bounds the time."""
    patiently, backoff = Patience(), Backoff()
    while True:
        try:
            item = await patiently(lambda: client.get(path))
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
