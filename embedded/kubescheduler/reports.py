"""What the scheduler says of a pod: its condition PodScheduled, and Events."""

import logging
import uuid
from datetime import UTC, datetime

from kube import paths
from kube.client import KubeClient, KubeError
from protocol.pods import Json, PodRef

log = logging.getLogger(__name__)


class Reporter:
    """Writes conditions and Events; what cannot be written is only logged, as scheduling does not depend on it.

    Args:
        client: the API server.
        name: of the scheduler.
        events: whether to write Events too.
    """

    def __init__(self, client: KubeClient, name: str, *, events: bool) -> None:
        self._client = client
        self._name = name
        self._events = events

    async def bound(self, pod: Json, node: str) -> None:
        """Say where a pod goes."""
        note = f"Successfully assigned {PodRef.of(pod)} to {node}"
        await self._event(pod, kind="Normal", reason="Scheduled", note=note, action="Binding")

    async def failed(self, pod: Json, message: str) -> None:
        """Say why a pod waits."""
        before = (pod.get("status") or {}).get("conditions") or ()
        if not any(one.get("message") == message for one in before):
            await self._condition(pod, message)
        await self._event(pod, kind="Warning", reason="FailedScheduling", note=message, action="Scheduling")

    async def _condition(self, pod: Json, message: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "reason": "Unschedulable",
            "message": message,
        }
        ref = PodRef.of(pod)
        body = {"metadata": {"uid": ref.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(f"{paths.pod(ref.namespace, ref.name)}/status", body)
        except KubeError as error:
            log.info("condition of pod %s: %s", ref, error)

    async def _event(self, pod: Json, *, kind: str, reason: str, note: str, action: str) -> None:
        if not self._events:
            return
        ref = PodRef.of(pod)
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{ref.name}.{uuid.uuid4().hex[:16]}", "namespace": ref.namespace},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._name,
            "reportingInstance": self._name,
            "regarding": {"kind": "Pod", "namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
            "type": kind,
            "reason": reason,
            "note": note,
            "action": action,
        }
        try:
            await self._client.create(paths.events(ref.namespace), event)
        except KubeError as error:
            log.info("event of pod %s: %s", ref, error)
