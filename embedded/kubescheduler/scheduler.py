"""The scheduler: one pod after the other is filtered and scored, and bound beside."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from embedded.kubescheduler.calls import ExtenderClient, ExtenderError
from embedded.kubescheduler.config import SchedulerConfig
from embedded.kubescheduler.queue import Queue, Waiting
from embedded.kubescheduler.reports import Reporter
from embedded.kubescheduler.snapshot import NodeInfo, Snapshot
from kube import listwatch, paths
from kube.client import KubeClient, KubeError
from kube.listwatch import list_watch
from protocol.pods import Json, PodRef, is_finished, node_name

_LEAST_NODES: Final = 100
_LEAST_PERCENT: Final = 5
"""Of a large cluster only so many fitting nodes are looked for, but at least 100; see `enough_nodes`."""


class UnschedulableError(Exception):
    """No node can take the pod now; the message says why, as kube-scheduler words it."""


def enough_nodes(total: int) -> int:
    """Return how many fitting nodes are enough to choose among, as kube-scheduler's default has it."""
    if total < _LEAST_NODES:
        return total
    percent = max(50 - total // 125, _LEAST_PERCENT)
    return max(total * percent // 100, _LEAST_NODES)


def no_nodes(total: int, reasons: Mapping[str, int]) -> str:
    """Return kube-scheduler's words for a pod that fits nowhere."""
    if not total:
        return "no nodes available to schedule pods"
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{total} nodes are available: {', '.join(parts)}."


class KubeScheduler:
    """Schedules the pods that name it, until cancelled.

    Args:
        config: its name and extender.
        client: the API server.
        events: whether it writes Events, as a real one does.
    """

    def __init__(self, config: SchedulerConfig, client: KubeClient, *, events: bool = True) -> None:
        self._config = config
        self._client = client
        self._reporter = Reporter(client, config.name, events=events)
        self._snapshot = Snapshot(config.extender.ignored)
        self._queue = Queue()
        self._start = 0
        self._chance = random.Random()  # noqa: S311 - ties between nodes

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with ExtenderClient(self._config.extender) as extender, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(paths.NODES, self._see_nodes))
            tasks.create_task(self._follow(paths.PODS, self._see_pods))
            while True:
                waiting = await self._queue.pop()
                await self._schedule(waiting, extender, tasks)

    async def _schedule(self, waiting: Waiting, extender: ExtenderClient, tasks: asyncio.TaskGroup) -> None:
        pod = waiting.pod
        try:
            node = await self._choose(pod, extender)
        except (UnschedulableError, ExtenderError) as error:
            self._queue.put_back(waiting)
            tasks.create_task(self._reporter.failed(pod, str(error)))
            return
        self._snapshot.assume(pod, node)
        tasks.create_task(self._bind(waiting, node, extender))

    async def _choose(self, pod: Json, extender: ExtenderClient) -> str:
        fitting, reasons = self._feasible(pod)
        is_interested = extender.is_interested(pod)
        if fitting and is_interested:
            filtered = await extender.filter(pod, [info.node for info in fitting])
            reasons.update(filtered.failed.values())
            chosen = set(filtered.names)
            fitting = [info for info in fitting if info.node["metadata"]["name"] in chosen]
        if not fitting:
            raise UnschedulableError(no_nodes(len(self._snapshot.nodes), reasons))
        names = [str(info.node["metadata"]["name"]) for info in fitting]
        if len(names) == 1 or not is_interested:
            return self._chance.choice(names)
        scores = await extender.prioritize(pod, [info.node for info in fitting])
        best = max(scores.get(name, 0) for name in names)
        return self._chance.choice([name for name in names if scores.get(name, 0) == best])

    def _feasible(self, pod: Json) -> tuple[list[NodeInfo], Counter[str]]:
        """Return enough nodes that could take the pod by what is counted here, from where the last search ended on."""
        wanted = self._snapshot.wanted(pod)
        infos = list(self._snapshot.nodes.values())
        enough, fitting = enough_nodes(len(infos)), list[NodeInfo]()
        reasons: Counter[str] = Counter()
        for number in range(len(infos)):
            info = infos[(self._start + number) % len(infos)]
            obstacles = list(info.obstacles(wanted))
            reasons.update(obstacles)
            if not obstacles:
                fitting.append(info)
            if len(fitting) == enough:
                self._start = (self._start + number + 1) % len(infos)
                break
        return fitting, reasons

    async def _bind(self, waiting: Waiting, node: str, extender: ExtenderClient) -> None:
        pod = waiting.pod
        ref = PodRef.of(pod)
        try:
            if extender.binds and extender.is_interested(pod):
                await extender.bind(ref, node)
            else:
                await self._client.create(f"{paths.pod(ref.namespace, ref.name)}/binding", _binding(ref, node))
        except (ExtenderError, KubeError) as error:
            self._snapshot.remove_pod(ref.uid)
            self._queue.put_back(waiting)
            await self._reporter.failed(pod, f"binding rejected: {error}")
            return
        await self._reporter.bound(pod, node)

    async def _follow(self, path: str, see: Callable[[listwatch.Snapshot | listwatch.Change], None]) -> None:
        async with aclosing(list_watch(self._client, path)) as updates:
            async for update in updates:
                see(update)

    def _see_nodes(self, update: listwatch.Snapshot | listwatch.Change) -> None:
        if isinstance(update, listwatch.Snapshot):
            self._snapshot.set_nodes(update.items)
        elif update.kind == "DELETED":
            self._snapshot.remove_node(update.item["metadata"]["name"])
        elif not self._snapshot.set_node(update.item):
            return
        self._queue.something_changed()

    def _see_pods(self, update: listwatch.Snapshot | listwatch.Change) -> None:
        if isinstance(update, listwatch.Snapshot):
            uids = {PodRef.of(pod).uid for pod in update.items}
            self._snapshot.keep_pods(uids)
            self._queue.keep(uids)
            for pod in update.items:
                self._see_pod(pod)
        elif update.kind == "DELETED":
            self._lose_pod(update.item)
        else:
            self._see_pod(update.item)

    def _see_pod(self, pod: Json) -> None:
        if node_name(pod) or is_finished(pod):
            uid = PodRef.of(pod).uid
            self._queue.forget(uid)
            self._snapshot.set_pod(pod)
            if is_finished(pod):
                self._queue.something_changed()
        elif self._is_mine(pod):
            self._queue.see(pod)

    def _lose_pod(self, pod: Json) -> None:
        uid = PodRef.of(pod).uid
        self._queue.forget(uid)
        self._snapshot.remove_pod(uid)
        self._queue.something_changed()

    def _is_mine(self, pod: Json) -> bool:
        is_mine = (pod.get("spec") or {}).get("schedulerName") == self._config.name
        is_new = not self._snapshot.has_pod(PodRef.of(pod).uid)
        return is_mine and is_new and "deletionTimestamp" not in pod["metadata"]


def _binding(ref: PodRef, node: str) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
