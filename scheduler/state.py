"""What the extender knows of the cluster: nodes, their GPUs, and the pods on them, kept by watches.

It answers `filter` and `prioritize`. It is always a little old, so nothing is given away on its word: `bind` reads
again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from kube import paths
from kube.client import KubeClient
from kube.listwatch import Change, Snapshot, list_watch
from protocol.devices import DeviceInfo, RegisterError, decode_register
from protocol.names import NODE_LOCK, NODE_REGISTER
from protocol.pods import Json, PodRef, annotations, asks_for_gpus, node_name
from protocol.usage import GpuUsage, node_usage

log = logging.getLogger(__name__)


class ClusterState:
    """The watched cluster. Written only by `run`, in one task; read by any other in the same event loop."""

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        self._pods_by_node: dict[str, dict[str, Json]] = defaultdict(dict)
        self._usages: dict[str, dict[str, GpuUsage]] = {}
        self._synced: set[str] = set()
        self._changed = asyncio.Condition()

    @property
    def is_synced(self) -> bool:
        """Whether nodes and pods were read at least once."""
        return {paths.NODES, paths.PODS} <= self._synced

    async def run(self, client: KubeClient) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(client, paths.NODES, self.see_nodes))
            tasks.create_task(self._follow(client, paths.PODS, self.see_pods))

    def see_nodes(self, update: Snapshot | Change) -> None:
        """Take in what happened to the nodes."""
        if isinstance(update, Snapshot):
            self._nodes = {_name(item): _slim_node(item) for item in update.items}
            self._usages.clear()
        else:
            self._change_node(update)
        self._synced.add(paths.NODES)

    def see_pods(self, update: Snapshot | Change) -> None:
        """Take in what happened to the pods."""
        if isinstance(update, Snapshot):
            self._pods.clear()
            self._pods_by_node.clear()
            self._usages.clear()
            for item in update.items:
                self._add_pod(item)
        else:
            self._change_pod(update)
        self._synced.add(paths.PODS)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; it is asked again after every change of the cluster."""
        async with self._changed:
            await self._changed.wait_for(condition)

    def node(self, name: str) -> Json | None:
        """Return a node object, or None when there is none of this name."""
        return self._nodes.get(name)

    def shows(self, uid: str) -> bool:
        """Return whether a pod is seen on its node, with what it holds."""
        return uid in self._pods

    def find_pod(self, namespace: str, name: str, node: str) -> Json | None:
        """Return the pod of this name that is bound to the node, or None."""
        pods = self._pods_by_node.get(node, {}).values()
        return next((pod for pod in pods if (ref := PodRef.of(pod)).namespace == namespace and ref.name == name), None)

    def locked_nodes(self) -> list[str]:
        """Return the names of the nodes that have a lock."""
        return [name for name, node in self._nodes.items() if NODE_LOCK in annotations(node)]

    def usages(self, node: str) -> Mapping[str, GpuUsage]:
        """Return the usage of a node's GPUs by device id; empty for a node without registered GPUs."""
        cached = self._usages.get(node)
        if cached is None:
            cached = self._usages[node] = self._count(node)
        return cached

    def _count(self, node: str) -> dict[str, GpuUsage]:
        usages, unreadable = node_usage(devices_of(self._nodes.get(node)), self._pods_by_node.get(node, {}).values())
        for pod in unreadable:
            log.error("node %s: pod %s blocks its GPUs: %s", node, pod.pod, pod.reason)
        return usages

    async def _follow(self, client: KubeClient, path: str, see: Callable[[Snapshot | Change], None]) -> None:
        async with aclosing(list_watch(client, path)) as updates:
            async for update in updates:
                see(update)
                if isinstance(update, Snapshot):
                    log.info("read %d objects of %s", len(update.items), path)
                async with self._changed:
                    self._changed.notify_all()

    def _change_node(self, change: Change) -> None:
        name = _name(change.item)
        old = self._nodes.pop(name, None)
        if change.kind != "DELETED":
            self._nodes[name] = _slim_node(change.item)
        # Kubelets touch their node every few seconds: only another registration makes the count void.
        if register_text(old) != register_text(self._nodes.get(name)):
            self._usages.pop(name, None)

    def _change_pod(self, change: Change) -> None:
        old = self._pods.pop(PodRef.of(change.item).uid, None)
        if old is not None:
            self._pods_by_node[node_name(old)].pop(PodRef.of(old).uid, None)
            self._forget_usage(old)
        if change.kind != "DELETED":
            self._add_pod(change.item)
            self._forget_usage(change.item)

    def _add_pod(self, pod: Json) -> None:
        # Only what sits on a node and asks for GPUs is remembered: a large cluster has many other pods.
        if node_name(pod) and asks_for_gpus(pod):
            uid = PodRef.of(pod).uid
            self._pods[uid] = self._pods_by_node[node_name(pod)][uid] = pod

    def _forget_usage(self, pod: Json) -> None:
        if asks_for_gpus(pod):
            self._usages.pop(node_name(pod), None)


def devices_of(node: Json | None) -> tuple[DeviceInfo, ...]:
    """Return the GPUs that a node registered; none when it has no registration, or one that cannot be read."""
    text = register_text(node)
    if not text:
        return ()
    try:
        return decode_register(text)
    except RegisterError as error:
        log.warning("node %s has no GPUs: annotation %s: %s", _name(node or {}), NODE_REGISTER, error)
        return ()


def register_text(node: Json | None) -> str:
    """Return a node's registration as it stands; the empty string when it has none."""
    return annotations(node or {}).get(NODE_REGISTER, "")


def _name(item: Json) -> str:
    return str((item.get("metadata") or {}).get("name", ""))


def _slim_node(node: Json) -> dict[str, Any]:
    """Keep of a node what the extender reads: its status alone can be 50 KiB of image names."""
    metadata = node.get("metadata") or {}
    return {"metadata": {"name": metadata.get("name"), "annotations": metadata.get("annotations") or {}}}
