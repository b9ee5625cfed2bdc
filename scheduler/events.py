"""Events: what `kubectl describe` shows of a pod or a node.

Each trouble of each object is told once in half an hour, and all together at most a few times a second, however often
it is noted. What does not fit any more is dropped and counted: an Event is a courtesy, the log and the metrics have
everything.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from kube import paths
from kube.client import KubeClient, KubeError
from protocol.pods import PodRef

log = logging.getLogger(__name__)

CONTROLLER: Final = "amd-vgpu.io/scheduler"
_AGAIN_SECONDS: Final = 1800.0
_LEAST_PAUSE: Final = 0.2
_KEPT: Final = 10_000
_WAITING: Final = 1_000
_NOTE_LENGTH: Final = 1024
_NAME_LENGTH: Final = 200

Importance = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class About:
    """The object that an Event is about.

    Attributes:
        kind: `Pod` or `Node`.
        name: of it.
        namespace: empty for a node.
        uid: of a pod; a node's Events carry its name there, as the kubelet's do.
    """

    kind: Literal["Pod", "Node"]
    name: str
    namespace: str
    uid: str

    @classmethod
    def pod(cls, ref: PodRef) -> "About":
        """Return a pod."""
        return cls("Pod", ref.name, ref.namespace, ref.uid)

    @classmethod
    def node(cls, name: str) -> "About":
        """Return a node."""
        return cls("Node", name, "", name)


@dataclass(frozen=True, slots=True)
class _Event:
    about: About
    reason: str
    action: str
    note: str
    importance: Importance


class Events:
    """Takes notes at any time and writes them when `run` gets to it.

    Args:
        client: the API server.
        instance: name of this process among its replicas.
        written: called with the reason of each Event that was written.
        dropped: called for each that was not, for want of room or because the API server refused it.
        monotonic: seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        instance: str,
        *,
        written: Callable[[str], None] = lambda _: None,
        dropped: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._instance = instance
        self._written = written
        self._dropped = dropped
        self._monotonic = monotonic
        self._noted: OrderedDict[tuple[str, About], float] = OrderedDict()
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_WAITING)

    def note(self, about: About, reason: str, action: str, text: str, importance: Importance = "Warning") -> None:
        """Have an Event written, unless this object had one for this reason a short while ago.

        Args:
            about: the object.
            reason: in CamelCase, one word for all Events of the kind.
            action: what was being done, in CamelCase.
            text: for people; may hold what users wrote.
            importance: `Warning` asks for attention.
        """
        key, now = (reason, about), self._monotonic()
        if now - self._noted.get(key, float("-inf")) < _AGAIN_SECONDS:
            return
        try:
            self._queue.put_nowait(_Event(about, reason, action, _readable(text), importance))
        except asyncio.QueueFull:
            self._dropped()
            return
        self._noted[key] = now
        self._noted.move_to_end(key)
        if len(self._noted) > _KEPT:
            self._noted.popitem(last=False)

    async def run(self) -> None:
        """Write what is noted until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._client.create(paths.events(_namespace(event.about)), self._body(event))
            except KubeError as error:
                self._dropped()
                log.info("no Event for %s %s: %s", event.about.kind, event.about.name, error)
            else:
                self._written(event.reason)
            await asyncio.sleep(_LEAST_PAUSE)

    def _body(self, event: _Event) -> dict[str, Any]:
        about = event.about
        regarding = {"apiVersion": "v1", "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            regarding["namespace"] = about.namespace
        name = f"{about.name[:_NAME_LENGTH].rstrip('.-')}.{secrets.token_hex(8)}"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _namespace(about)},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:_NAME_LENGTH] or "-",
            "action": event.action,
            "reason": event.reason,
            "regarding": regarding,
            "note": event.note,
            "type": event.importance,
        }


def _namespace(about: About) -> str:
    """Return where the Event goes: those about objects without a namespace belong in `default`."""
    return about.namespace or "default"


def _readable(text: str) -> str:
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    # The limit is one of bytes.
    return shown.encode()[:_NOTE_LENGTH].decode(errors="ignore")
