"""The kubelet of one node: its Node object, its pods, its device plugins."""

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from embedded.kubelet.devices import DeviceManager, serving
from embedded.kubelet.pods import PodWorker
from embedded.kubelet.runtime import Runtime
from kube import paths
from kube.client import ConflictError, Json, KubeClient, KubeError
from kube.listwatch import Snapshot, list_watch
from protocol.pods import PodRef, is_finished

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Settings of one kubelet.

    Attributes:
        node: name of its node.
        folder: its own, short enough for sockets; `device-plugins` and `pod-resources` are made in it.
        version: that it says it has.
        labels: of the node.
    """

    node: str
    folder: Path
    version: str = "v1.31.0"
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def plugins(self) -> Path:
        """Folder of device plugins' sockets."""
        return self.folder / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """Socket of the PodResources API."""
        return self.folder / "pod-resources" / "kubelet.sock"


class Kubelet:
    """Runs a node until cancelled; its containers end with it."""

    def __init__(self, settings: KubeletSettings, client: KubeClient, runtime: Runtime) -> None:
        self._settings = settings
        self._client = client
        self._runtime = runtime
        self._devices_changed = asyncio.Event()
        self._manager = DeviceManager(settings.plugins, self._devices_changed.set)
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Serve until cancelled; sets `ready` when plugins can register."""
        for folder in (self._settings.plugins, self._settings.pod_resources.parent):
            folder.mkdir(parents=True, exist_ok=True)
        async with serving(self._manager, self._settings.plugins, self._settings.pod_resources):
            await self._create_node()
            if ready is not None:
                ready.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_status())
                tasks.create_task(self._follow_pods(tasks))

    async def _create_node(self) -> None:
        labels = {"kubernetes.io/hostname": self._settings.node, **self._settings.labels}
        metadata = {"name": self._settings.node, "labels": labels}
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "nodeInfo": {"kubeletVersion": self._settings.version},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        with suppress(ConflictError):
            await self._client.create(paths.NODES, body)

    async def _keep_status(self) -> None:
        """Write the devices into the node's status whenever they change."""
        while True:
            await self._devices_changed.wait()
            self._devices_changed.clear()
            counts = self._manager.capacity()
            capacity = {name: str(listed) for name, (listed, _) in counts.items()}
            allocatable = {name: str(healthy) for name, (_, healthy) in counts.items()}
            body = {"status": {"capacity": capacity, "allocatable": allocatable}}
            try:
                await self._client.patch(f"{paths.node(self._settings.node)}/status", body)
            except KubeError as error:
                log.warning("status of node %s: %s", self._settings.node, error)
                self._devices_changed.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_pods(self, tasks: asyncio.TaskGroup) -> None:
        selector = f"spec.nodeName={self._settings.node}"
        async with aclosing(list_watch(self._client, paths.PODS, field_selector=selector)) as updates:
            async for update in updates:
                if isinstance(update, Snapshot):
                    self._take_over(update.items, tasks)
                elif update.kind == "DELETED":
                    self._end(PodRef.of(update.item).uid, 0)
                else:
                    self._see(update.item, tasks)

    def _take_over(self, pods: tuple[Json, ...], tasks: asyncio.TaskGroup) -> None:
        there = {PodRef.of(pod).uid for pod in pods}
        for uid in self._workers.keys() - there:
            self._end(uid, 0)
        for pod in pods:
            self._see(pod, tasks)

    def _see(self, pod: Json, tasks: asyncio.TaskGroup) -> None:
        uid = PodRef.of(pod).uid
        if uid not in self._workers and not is_finished(pod):
            worker = PodWorker(self._client, self._manager, self._runtime, pod)
            task = tasks.create_task(worker.run())
            self._workers[uid] = (worker, task)
            task.add_done_callback(lambda _task: self._workers.pop(uid, None))
        if "deletionTimestamp" in pod["metadata"]:
            self._end(uid, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))

    def _end(self, uid: str, grace: float) -> None:
        if uid in self._workers:
            self._workers[uid][0].delete(grace)
