"""What the extender knows of the cluster: nodes, their GPUs, the pods on them, and quotas, kept by watches.

It answers `filter` and `prioritize`. It is always a little old, so nothing is given away on its word alone: `bind`
waits until it has shown what the bind itself wrote.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any

from kube import paths
from kube.client import KubeClient
from kube.listwatch import Change, Snapshot, list_watch
from protocol.devices import DeviceInfo, RegisterError, decode_register
from protocol.names import NODE_LOCK, NODE_REGISTER, NODE_SURVIVORS
from protocol.pods import Json, PodRef, annotations, asks_for_gpus, is_finished, node_name, nominated_node
from protocol.survivors import Survivor, SurvivorsError, decode_survivors
from protocol.usage import GpuUsage, node_usage
from scheduler.quota import Quota, read_quota

log = logging.getLogger(__name__)


class ClusterState:
    """The watched cluster. Written only by `run`, in one task; read by any other in the same event loop.

    Attributes:
        touched: nodes whose GPUs or pods changed since somebody took them out of here.
        gone: nodes that were deleted since somebody took them out of here.
        snapshots: how often each collection was read anew, by path: at the start, and after each lost watch.
    """

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self.gone: set[str] = set()
        self.snapshots: Counter[str] = Counter()
        self._nodes: dict[str, Json] = {}
        self._locked: set[str] = set()
        self._pods: dict[str, Json] = {}
        self._pods_by_node: dict[str, dict[str, Json]] = defaultdict(dict)
        self._pods_by_namespace: dict[str, dict[str, Json]] = defaultdict(dict)
        self._pods_version = -1
        self._pod_changes = 0
        self._changed_at: dict[str, int] = {}
        self._nominated: dict[str, Json] = {}
        self._quotas: dict[str, dict[str, Quota]] = defaultdict(dict)
        self._usages: dict[str, dict[str, GpuUsage]] = {}
        self._synced: set[str] = set()
        self._changed = asyncio.Condition()

    @property
    def is_synced(self) -> bool:
        """Whether nodes, pods and quotas were read at least once."""
        return {paths.NODES, paths.PODS, paths.RESOURCE_QUOTAS} <= self._synced

    async def run(self, client: KubeClient) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(client, paths.NODES, self.see_nodes))
            tasks.create_task(self._follow(client, paths.PODS, self.see_pods))
            tasks.create_task(self._follow(client, paths.RESOURCE_QUOTAS, self.see_quotas))

    def see_nodes(self, update: Snapshot | Change) -> None:
        """Take in what happened to the nodes."""
        if isinstance(update, Snapshot):
            self.touched.update(self._nodes)
            before, self._nodes = self._nodes, {_name(item): _slim_node(item) for item in update.items}
            self.gone.update(before.keys() - self._nodes.keys())
            self._locked = {name for name, node in self._nodes.items() if NODE_LOCK in annotations(node)}
            self._usages.clear()
            self.touched.update(self._nodes)
        else:
            self._change_node(update)
        self._synced.add(paths.NODES)

    def see_pods(self, update: Snapshot | Change) -> None:
        """Take in what happened to the pods."""
        if isinstance(update, Snapshot):
            self.touched.update(self._pods_by_node)
            self._pods.clear()
            self._pods_by_node.clear()
            self._pods_by_namespace.clear()
            self._nominated.clear()
            for namespace in self._changed_at:
                self._note_change(namespace)
            self._usages.clear()
            for item in update.items:
                self._add_pod(item)
            self.touched.update(self._pods_by_node)
            self._pods_version = _number(update.version)
        else:
            self._change_pod(update)
            self._pods_version = max(self._pods_version, _number(update.item["metadata"].get("resourceVersion")))
        self._synced.add(paths.PODS)

    def see_quotas(self, update: Snapshot | Change) -> None:
        """Take in what happened to the resource quotas."""
        if isinstance(update, Snapshot):
            self._quotas.clear()
            for item in update.items:
                self._add_quota(item)
        else:
            self._quotas[_namespace(update.item)].pop(_name(update.item), None)
            if update.kind != "DELETED":
                self._add_quota(update.item)
        self._synced.add(paths.RESOURCE_QUOTAS)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; it is asked again after every change of the cluster."""
        async with self._changed:
            await self._changed.wait_for(condition)

    def node(self, name: str) -> Json | None:
        """Return a node object, or None when there is none of this name."""
        return self._nodes.get(name)

    def shows_pods_since(self, pod: Json) -> bool:
        """Return whether the watch has come to this version of a pod, and so has shown all that was written before it.

        A watch gives the changes of a collection in the order in which they were written.
        """
        version = _number(pod["metadata"].get("resourceVersion"))
        return 0 <= version <= self._pods_version

    def shows(self, uid: str) -> bool:
        """Return whether a pod is seen on its node, with what it holds."""
        return uid in self._pods

    def pods_on(self, node: str) -> Mapping[str, Json]:
        """Return the GPU pods on a node, by uid, the finished ones included."""
        return self._pods_by_node.get(node, {})

    def pods_of(self, namespace: str) -> Mapping[str, Json]:
        """Return a namespace's GPU pods that are on a node, by uid, the finished ones included."""
        return self._pods_by_namespace.get(namespace, {})

    def changed_at(self, namespace: str) -> int:
        """Return a number that is another whenever the namespace's pods are."""
        return self._changed_at.get(namespace, 0)

    def nominated(self) -> Collection[Json]:
        """Return the GPU pods that wait for others to end on the node that they are nominated for."""
        return self._nominated.values()

    def quotas(self, namespace: str) -> Collection[Quota]:
        """Return a namespace's quotas over GPU resources."""
        return self._quotas.get(namespace, {}).values()

    def find_pod(self, namespace: str, name: str, node: str) -> Json | None:
        """Return the pod of this name that is bound to the node, or None."""
        pods = self._pods_by_node.get(node, {}).values()
        return next((pod for pod in pods if (ref := PodRef.of(pod)).namespace == namespace and ref.name == name), None)

    def locked_nodes(self) -> list[str]:
        """Return the names of the nodes that have a lock."""
        return sorted(self._locked)

    def usages(self, node: str) -> Mapping[str, GpuUsage]:
        """Return the usage of a node's GPUs by device id; empty for a node without registered GPUs."""
        cached = self._usages.get(node)
        if cached is None:
            cached = self._usages[node] = self._count(node)
        return cached

    def usages_without(self, node: str, uids: Collection[str]) -> dict[str, GpuUsage]:
        """Return what the usage of a node's GPUs would be without some of its pods; the caller may change it."""
        return self._count(node, without=uids)

    def _count(self, node: str, *, without: Collection[str] = ()) -> dict[str, GpuUsage]:
        usages, unreadable = node_usage(
            devices_of(self._nodes.get(node)),
            [pod for uid, pod in self._pods_by_node.get(node, {}).items() if uid not in without],
            survivors_of(self._nodes.get(node)),
        )
        for pod in unreadable:
            log.error("node %s: pod %s blocks its GPUs: %s", node, pod.pod, pod.reason)
        return usages

    async def _follow(self, client: KubeClient, path: str, see: Callable[[Snapshot | Change], None]) -> None:
        async with aclosing(list_watch(client, path)) as updates:
            async for update in updates:
                see(update)
                if isinstance(update, Snapshot):
                    self.snapshots[path] += 1
                    log.info("read %d objects of %s", len(update.items), path)
                async with self._changed:
                    self._changed.notify_all()

    def _change_node(self, change: Change) -> None:
        name = _name(change.item)
        old = self._nodes.pop(name, None)
        self._locked.discard(name)
        if change.kind == "DELETED":
            self.gone.add(name)
        else:
            self._nodes[name] = _slim_node(change.item)
            if NODE_LOCK in annotations(change.item):
                self._locked.add(name)
        # Kubelets touch their node every few seconds: only what is counted by makes the count void.
        if _counted_by(old) != _counted_by(self._nodes.get(name)):
            self._usages.pop(name, None)
            self.touched.add(name)

    def _change_pod(self, change: Change) -> None:
        self._nominated.pop(PodRef.of(change.item).uid, None)
        old = self._pods.pop(PodRef.of(change.item).uid, None)
        if old is not None:
            self._pods_by_node[node_name(old)].pop(PodRef.of(old).uid, None)
            self._pods_by_namespace[_namespace(old)].pop(PodRef.of(old).uid, None)
            self._note_change(_namespace(old))
            self._forget_usage(old)
        if change.kind != "DELETED":
            self._add_pod(change.item)
            self._forget_usage(change.item)

    def _add_pod(self, pod: Json) -> None:
        # Only what sits on a node and asks for GPUs is remembered: a large cluster has many other pods.
        if node_name(pod) and asks_for_gpus(pod):
            uid = PodRef.of(pod).uid
            for pods in (self._pods, self._pods_by_node[node_name(pod)], self._pods_by_namespace[_namespace(pod)]):
                pods[uid] = pod
            self._note_change(_namespace(pod))
        elif nominated_node(pod) and asks_for_gpus(pod) and not is_finished(pod):
            self._nominated[PodRef.of(pod).uid] = pod

    def _note_change(self, namespace: str) -> None:
        self._pod_changes += 1
        self._changed_at[namespace] = self._pod_changes

    def _add_quota(self, item: Json) -> None:
        quota = read_quota(item)
        if quota is not None:
            self._quotas[quota.namespace][quota.name] = quota

    def _forget_usage(self, pod: Json) -> None:
        if asks_for_gpus(pod) and node_name(pod):
            self._usages.pop(node_name(pod), None)
            self.touched.add(node_name(pod))

    def counts(self) -> dict[str, int]:
        """Return how many objects are kept, by kind."""
        quotas = sum(map(len, self._quotas.values()))
        return {"nodes": len(self._nodes), "pods": len(self._pods), "quotas": quotas}


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


def survivors_of(node: Json | None) -> tuple[Survivor, ...]:
    """Return the pods that are over and still have processes on a node, as its device plugin says.

    What cannot be read may hold anything, so it keeps the node closed.
    """
    try:
        return decode_survivors(annotations(node or {}).get(NODE_SURVIVORS, ""))
    except SurvivorsError as error:
        log.warning("node %s is closed: annotation %s: %s", _name(node or {}), NODE_SURVIVORS, error)
        return (Survivor(PodRef("unknown", "unknown", "unknown"), None),)


def _counted_by(node: Json | None) -> tuple[str, str]:
    return register_text(node), annotations(node or {}).get(NODE_SURVIVORS, "")


def _number(version: object) -> int:
    """Return a resource version as a number; versions of one collection can be compared so. -1 for an odd one."""
    text = str(version)
    return int(text) if text.isascii() and text.isdecimal() else -1


def register_text(node: Json | None) -> str:
    """Return a node's registration as it stands; the empty string when it has none."""
    return annotations(node or {}).get(NODE_REGISTER, "")


def _name(item: Json) -> str:
    return str((item.get("metadata") or {}).get("name", ""))


def _namespace(item: Json) -> str:
    return str((item.get("metadata") or {}).get("namespace", ""))


def _slim_node(node: Json) -> dict[str, Any]:
    """Keep of a node what the extender reads: its status alone can be 50 KiB of image names."""
    metadata = node.get("metadata") or {}
    return {"metadata": {"name": metadata.get("name"), "annotations": metadata.get("annotations") or {}}}
