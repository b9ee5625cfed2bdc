"""One pod on its node: admission, its containers' lives, its status, its end."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from embedded.kubelet.devices import AdmissionError, ContainerRef, DeviceManager
from embedded.kubelet.runtime import Container, ContainerSpec, ImageError, Runtime
from kube import paths
from kube.client import KubeClient, KubeError, NotFoundError
from protocol.demand import ContainerField, Role, containers
from protocol.pods import Json, PodRef
from protocol.quantity import parse_integer

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A container and what it is started from."""

    field: ContainerField
    spec: ContainerSpec


@dataclass(slots=True)
class _Running:
    """A container's state as its pod's status tells it."""

    name: str
    image: str
    state: dict[str, Any] = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "state": self.state,
            "lastState": {},
            "ready": "running" in self.state,
            "restartCount": 0,
        }


class PodWorker:
    """Runs one pod until it ends or is deleted. Containers are not started again when they end.

    Args:
        client: the API server.
        manager: gives devices.
        runtime: starts containers.
        pod: as the API server has it.
    """

    def __init__(self, client: KubeClient, manager: DeviceManager, runtime: Runtime, pod: Json) -> None:
        self.ref = PodRef.of(pod)
        self._client = client
        self._manager = manager
        self._runtime = runtime
        self._pod = pod
        self._deleted = asyncio.Event()
        self._grace = 0.0
        self._started: list[Container] = []
        fields = list(containers(pod["spec"]))
        self._init = [_running(one) for one in fields if one.role is Role.INIT]
        self._apps = [_running(one) for one in fields if one.role is not Role.INIT]

    def delete(self, grace_seconds: float) -> None:
        """Say that the pod is to end."""
        self._grace = grace_seconds
        self._deleted.set()

    async def run(self) -> None:
        """Run the pod to its end."""
        deleted = asyncio.create_task(self._deleted.wait())
        living = asyncio.create_task(self._live())
        try:
            await asyncio.wait({deleted, living}, return_when=asyncio.FIRST_COMPLETED)
            if not self._deleted.is_set():
                await living
                await self._deleted.wait()
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
            await self._stop()
            await self._finish()
        finally:
            for task in (deleted, living):
                task.cancel()
            await asyncio.gather(deleted, living, return_exceptions=True)
            if not self._deleted.is_set():  # the machine ends, not the pod
                self._grace = 0
                await self._stop()
            self._manager.forget(self.ref.uid)

    async def _live(self) -> None:
        try:
            async with self._manager.admission():
                prepared = [await self._prepare(field) for field in containers(self._pod["spec"])]
        except AdmissionError as error:
            await self._report("Failed", reason="UnexpectedAdmissionError", message=str(error))
            return
        try:
            phase = await self._run_all(prepared)
        except ImageError as error:
            await self._report("Pending", message=str(error))
            return
        self._manager.forget(self.ref.uid)
        await self._report(phase)

    async def _run_all(self, prepared: list[Prepared]) -> str:
        """Run init containers one after the other, then the others at once; return the pod's last phase."""
        inits = (one for one in prepared if one.field.role is Role.INIT)
        for running, one in zip(self._init, inits, strict=True):
            if await self._run_one(running, one) != 0:
                return "Failed"
        apps = [one for one in prepared if one.field.role is not Role.INIT]
        started = [await self._start(running, one) for running, one in zip(self._apps, apps, strict=True)]
        await self._report("Running")
        pairs = zip(self._apps, started, strict=True)
        statuses = await asyncio.gather(*(self._ended(running, container) for running, container in pairs))
        return "Failed" if any(statuses) else "Succeeded"

    async def _run_one(self, running: _Running, one: Prepared) -> int:
        container = await self._start(running, one)
        await self._report("Pending")
        return await self._ended(running, container)

    async def _start(self, running: _Running, one: Prepared) -> Container:
        try:
            container = await self._runtime.start(one.spec)
        except ImageError as error:
            running.state = {"waiting": {"reason": "ErrImagePull", "message": str(error)}}
            raise
        self._started.append(container)
        running.state = {"running": {"startedAt": _now()}}
        return container

    @staticmethod
    async def _ended(running: _Running, container: Container) -> int:
        status = await container.wait()
        reason = "Error" if status else "Completed"
        running.state = {"terminated": {"exitCode": status, "reason": reason, "finishedAt": _now()}}
        return status

    async def _prepare(self, field: ContainerField) -> Prepared:
        """Ask the plugins for what the container gets."""
        name, body = str(field.body["name"]), field.body
        ref = ContainerRef(self.ref.uid, self.ref.namespace, self.ref.name, name, field.role is Role.INIT)
        env = {one["name"]: str(one.get("value", "")) for one in body.get("env") or ()}
        mounts = _volume_mounts(self._pod["spec"], body)
        for resource, count in _extended(body, self._manager.capacity()):
            response = await self._manager.allocate(ref, resource, count)
            env |= dict(response.envs)
            mounts |= {mount.container_path: mount.host_path for mount in response.mounts}
        full_name = f"{self.ref.namespace}_{self.ref.name}_{name}"
        command = (*(body.get("command") or ()), *(body.get("args") or ()))
        return Prepared(field, ContainerSpec(full_name, body.get("image", ""), command, env, mounts))

    async def _stop(self) -> None:
        await asyncio.gather(*(container.stop(self._grace) for container in self._started))

    async def _report(self, phase: str, *, reason: str = "", message: str = "") -> None:
        """Write the pod's status."""
        parts = {
            "phase": phase,
            "reason": reason,
            "message": message,
            "initContainerStatuses": [one.status() for one in self._init],
            "containerStatuses": [one.status() for one in self._apps],
        }
        status = {key: value for key, value in parts.items() if value}
        path = f"{paths.pod(self.ref.namespace, self.ref.name)}/status"
        while True:
            try:
                await self._client.patch(path, {"metadata": {"uid": self.ref.uid}, "status": status})
            except NotFoundError:
                return
            except KubeError as error:
                log.warning("status of pod %s: %s", self.ref, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            return

    async def _finish(self) -> None:
        """Take the pod's object away: only now nothing of it runs any more."""
        path = f"{paths.pod(self.ref.namespace, self.ref.name)}?gracePeriodSeconds=0"
        with suppress(NotFoundError):
            await self._client.delete(path)


def _running(field: ContainerField) -> _Running:
    return _Running(str(field.body["name"]), str(field.body.get("image", "")))


def _extended(body: Mapping[str, Any], known: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Yield the resources that a plugin of this node serves, and how many of them a container asks for."""
    for name, quantity in ((body.get("resources") or {}).get("limits") or {}).items():
        if name in known:
            yield name, parse_integer(quantity)


def _volume_mounts(spec: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, str]:
    """Return the host's paths by the container's; other volumes than those of the host are not there."""
    folders = {one["name"]: one["hostPath"]["path"] for one in spec.get("volumes") or () if "hostPath" in one}
    mounts = body.get("volumeMounts") or ()
    return {one["mountPath"]: folders[one["name"]] for one in mounts if one["name"] in folders}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
