"""Webhook replicas on a real API server, and pods that are created through them all the time.

The services run beside the cluster, as the harness has no kube-proxy: a TCP forwarder stands in for the Service.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from certs import bundle, secret
from certs.authority import fingerprint
from certs.secret import Stored
from certs.status import Place
from certs.world import target, wanted_bundle
from kube import paths
from kube.client import KubeClient, KubeError, NotFoundError
from protocol.names import RESOURCE_GPU, SCHEDULER_NAME
from tests.cluster.availability import running_cluster
from tests.cluster.cluster import Cluster
from tests.cluster.network import free_port, free_ports
from tests.cluster.process import Service
from tests.cluster.product import manifests
from tests.command import COMMAND

NAMESPACE: Final = "amd-vgpu"
PODS: Final = "load"
PLACE: Final = Place(NAMESPACE, "amd-vgpu-webhook-tls", "amd-vgpu")
LEASE: Final = paths.named(paths.leases(NAMESPACE), "amd-vgpu-webhook")
CONFIGURATIONS: Final = (
    paths.named(paths.MUTATING_WEBHOOKS, PLACE.configuration),
    paths.named(paths.VALIDATING_WEBHOOKS, PLACE.configuration),
)
NAMES: Final = (f"webhook.{NAMESPACE}.svc", "127.0.0.1")
QUICK: Final = ("--settle=1s", "--retention=1s", "--absence=3s", "--lease-duration=2")
SECONDS: Final = 30.0


@contextmanager
def control_plane() -> Iterator[Cluster]:
    """Run a cluster without a node."""
    with running_cluster(node=False) as cluster:
        cluster.create_namespace(PODS)
        yield cluster


class Forwarder:
    """Stands in for the Service: each connection goes to one of the backends that listen."""

    def __init__(self, port: int, backends: Sequence[int]) -> None:
        self.port = port
        self.backends = list(backends)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._forward(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for port in random.sample(self.backends, len(self.backends)):
                try:
                    to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    continue
                await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))
                return
        finally:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            await writer.wait_closed()


class Replicas:
    """The product's manifests on a cluster, and webhook processes with the rights that those give them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = free_port()
        self.ports = dict(zip("ab", free_ports(2), strict=True))
        self.forwarder = Forwarder(self.port, list(self.ports.values()))
        self._running: set[str] = set()
        self._log_begins: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """An installation as new: no replica, no Secret, no Lease, no caBundle."""
        for name in tuple(self._running):
            self.stop(name)
        objects = manifests(webhook_port=self.port, minor=self.cluster.binaries.minor)
        self.cluster.kubectl("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
        self.cluster.apply(objects)
        for kind, name in (("secret", PLACE.secret), ("lease", "amd-vgpu-webhook")):
            self.cluster.kubectl("delete", kind, name, f"--namespace={NAMESPACE}", "--ignore-not-found")
        self.cluster.wait_for_service_account(NAMESPACE, "webhook")

    def begin(self, name: str, *options: str) -> Service:
        """Start a replica without waiting for it."""
        kubeconfig = self.cluster.kubeconfig_for_service_account(NAMESPACE, "webhook")
        arguments = [
            f"--kubeconfig={kubeconfig}",
            "--host=127.0.0.1",
            f"--port={self.ports[name]}",
            "--cert-name=127.0.0.1",
            "--drain=0",
            *(options or QUICK),
        ]
        self._running.add(name)
        log = self._log_file(name)
        self._log_begins[name] = log.stat().st_size if log.exists() else 0
        return self.cluster.start_process(f"webhook-{name}", [*COMMAND, "webhook", *arguments])

    def start(self, *names: str, options: Sequence[str] = ()) -> None:
        """Start replicas at once and wait until they serve."""
        services = [self.begin(name, *options) for name in names]
        for name, service in zip(names, services, strict=True):
            service.wait_ready(f"https://127.0.0.1:{self.ports[name]}/readyz")

    def stop(self, name: str, grace: float | None = None) -> None:
        """End a replica; a grace time of 0 kills it."""
        self._running.discard(name)
        self.cluster.stop_process(f"webhook-{name}", grace)

    def log(self, name: str) -> str:
        """What a replica has logged since it was last started."""
        return self._log_file(name).read_bytes()[self._log_begins[name] :].decode()

    def _log_file(self, name: str) -> Path:
        return self.cluster.log_folder / f"webhook-{name}.log"


async def stored(client: KubeClient) -> Stored:
    """What the Secret says; nothing when there is none."""
    try:
        return secret.decode(await client.get(PLACE.secret_path))
    except NotFoundError:
        return Stored()


async def bundles(client: KubeClient) -> set[bytes]:
    """The CA bundles of all webhooks: one, when they agree."""
    return {content for path in CONFIGURATIONS for content in bundle.read(await client.get(path)).bundles}


async def fault(client: KubeClient, replicas: Replicas, names: str) -> str:
    """What is not yet as it should be at rest: nothing left to do, everything trusted, everybody serves it."""
    found, trusted = await stored(client), await bundles(client)
    wanted = target(found, NAMES)
    if wanted is None or found.next or found.previous:
        return "the Secret is in the middle of something"
    if trusted != {wanted_bundle(found)}:
        return "the bundles differ"
    # One that was killed after it took this certificate is noticed when it does not take the next.
    if len(found.replicas) < len(names) or set(found.replicas.values()) != {wanted}:
        return f"the Secret says that replicas serve {found.replicas}"
    for name in names:
        if await served(replicas.ports[name], next(iter(trusted))) != wanted.certificate:
            return f"replica {name} serves another certificate"
    return ""


async def at_rest(client: KubeClient, replicas: Replicas, names: str, seconds: float = SECONDS) -> float:
    """Wait until everything is as it should be at rest; return how long that took."""
    begin = time.monotonic()
    reason = "not looked at"
    while time.monotonic() - begin < seconds:
        reason = await fault(client, replicas, names)
        if not reason:
            return time.monotonic() - begin
        await asyncio.sleep(0.05)
    raise AssertionError(f"not at rest after {seconds:.0f} s: {reason}")


async def served(port: int, trusted: bytes) -> str:
    """Return the fingerprint of what a replica serves to somebody who trusts these authorities."""
    context = ssl.create_default_context(cadata=trusted.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with asyncio.timeout(SECONDS):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return fingerprint(ssl.DER_cert_to_PEM_cert(der).encode())


@dataclass
class Load:
    """Pods created at a steady rate, looked at and deleted. Bounded by the time of its block."""

    client: KubeClient
    rate: float = 20.0
    created: int = 0
    unmutated: int = 0
    failures: list[tuple[float, str]] = field(default_factory=list)
    _number: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Create pods for as long as the block lasts; afterwards all of them are through."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run(stop, tasks))
            try:
                yield
            finally:
                stop.set()

    async def _run(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        due = time.monotonic()
        while not stop.is_set():
            self._number += 1
            tasks.create_task(self.one(f"pod-{self._number}"))
            due += 1 / self.rate
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, due - time.monotonic()))

    async def one(self, name: str) -> None:
        """Create one pod, look at it, delete it."""
        begin = time.monotonic()
        try:
            pod = await self.client.create(paths.pods(PODS), _pod(name))
        except KubeError as error:
            self.failures.append((begin, str(error)))
            return
        self.created += 1
        self.unmutated += pod["spec"].get("schedulerName") != SCHEDULER_NAME
        with suppress(NotFoundError):
            await self.client.delete(paths.pod(PODS, name))


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {RESOURCE_GPU: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }
