"""What one webhook process does over TLS: latency and reviews per second. Run: python -m bench.webhook.

The server is a process of its own on one core; the client, on another where there is one, keeps its connections open
as the API server does.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import ssl
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from bench.machine import describe
from certs import tls
from certs.authority import KeyPair, issue, new_authority
from webhook.app import make_app
from webhook.server import serve
from webhook.settings import ServerSettings, WebhookSettings

CONNECTIONS = 8
WARM_UP = 200
RATE = 500

Object = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A review that is sent again and again."""

    name: str
    path: str
    body: bytes
    requests: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="of each run at the fixed rate (default: %(default)s)")
    seconds = parser.parse_args().seconds
    print(describe())
    authority, certificate = _certificates()
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(child, certificate), daemon=True)
    server.start()
    try:
        _use_core(1)
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        asyncio.run(_measure(parent.recv(), context, seconds, server.pid or 0))
    finally:
        server.terminate()
        server.join()


async def _measure(port: int, context: ssl.SSLContext, seconds: int, server: int) -> None:
    print(f"\nas fast as it goes, {CONNECTIONS} connections")
    print(f"{'':34}{'p50':>12}{'p99':>12}{'reviews/s':>12}{'CPU each':>12}")
    for case in _cases():
        async with _Client(port, context, CONNECTIONS) as client:
            await client.burst(case, min(WARM_UP, case.requests))
            begin, cpu_begin = time.perf_counter(), _cpu_seconds(server)
            times = await client.burst(case, case.requests)
            rate = case.requests / (time.perf_counter() - begin)
            each_ms = (_cpu_seconds(server) - cpu_begin) / case.requests * 1000
            print(f"{_row(case.name, times)}{rate:>12.0f}{each_ms:>9.2f} ms")
    print(f"\none at a time\n{'':34}{'p50':>12}{'p99':>12}")
    for case in _cases():
        async with _Client(port, context, 1) as client:
            await client.burst(case, min(WARM_UP, case.requests))
            print(_row(case.name, await client.burst(case, case.requests // 4)))
    print(f"\n{RATE} reviews/s for {seconds} s, counted from when each was due\n{'':34}{'p50':>12}{'p99':>12}")
    for case in _cases():
        if case.requests >= RATE:
            async with _Client(port, context, CONNECTIONS) as client:
                await client.burst(case, WARM_UP)
                print(_row(case.name, await client.steady(case, RATE * seconds)))


def _row(name: str, times: list[float]) -> str:
    p50, p99 = statistics.median(times) * 1000, statistics.quantiles(times, n=100)[98] * 1000
    return f"{name:34}{p50:>9.2f} ms{p99:>9.2f} ms"


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, which other programs of the machine do not lengthen much."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Client:
    """Connections that are kept open, each with one request at a time; no more HTTP than that needs."""

    def __init__(self, port: int, context: ssl.SSLContext, connections: int) -> None:
        self._port = port
        self._context = context
        self._count = connections
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context, limit=2**24)
            self._free.put_nowait((reader, writer))
        return self

    async def __aexit__(self, *_: object) -> None:
        while not self._free.empty():
            (_reader, writer) = self._free.get_nowait()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def burst(self, case: Case, count: int) -> list[float]:
        """Make requests on all connections, the next as soon as one is answered."""

        async def one_connection() -> list[float]:
            return [await self._timed(case, time.perf_counter()) for _ in range(count // self._count)]

        shares = await asyncio.gather(*(one_connection() for _ in range(self._count)))
        return [seconds for share in shares for seconds in share]

    async def steady(self, case: Case, count: int) -> list[float]:
        """Make requests at a fixed rate, whether or not the ones before are answered."""
        begin = time.perf_counter()
        tasks = []
        for number in range(count):
            due = begin + number / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._timed(case, due)))
        return await asyncio.gather(*tasks)

    async def _timed(self, case: Case, begin: float) -> float:
        reader, writer = pair = await self._free.get()
        head = f"POST {case.path} HTTP/1.1\r\nHost: webhook\r\nContent-Length: {len(case.body)}\r\n\r\n"
        writer.write(head.encode() + case.body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        assert b'"allowed": true' in await reader.readexactly(length)
        self._free.put_nowait(pair)
        return time.perf_counter() - begin


def _cases() -> list[Case]:
    gpus = {"limits": {"amd.com/gpu": "1", "amd.com/gpumem": "16384", "amd.com/gpucores": "25"}}
    cpu = {"limits": {"cpu": "2", "memory": "4Gi"}}
    big = [{"name": f"VARIABLE_{number}", "value": "x" * 1000} for number in range(1000)]
    return [
        Case("pod with GPUs, /mutate", "/mutate", _review(_pod(gpus)), 8000),
        Case("pod with GPUs, /validate", "/validate", _review(_pod(gpus)), 8000),
        Case("pod without", "/mutate", _review(_pod(cpu)), 8000),
        Case("1 MiB pod with GPUs, /mutate", "/mutate", _review(_pod(gpus, big)), 400),
        Case("1 MiB pod without", "/mutate", _review(_pod(cpu, big)), 400),
    ]


def _pod(resources: Object, variables: list[Object] | None = None) -> Object:
    """Return a pod as a Deployment's is when it reaches the webhook."""
    token = {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container = {
        "name": "main",
        "image": "rocm/pytorch:latest",
        "command": ["python", "-m", "train", "--epochs", "10"],
        "env": [{"name": f"OPTION_{number}", "value": "value"} for number in range(10)] + (variables or []),
        "resources": resources | {"requests": resources["limits"]},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {**token, "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-5d8f7c9b6", "uid": "0", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "train-5d8f7c9b6-",
            "labels": {"app": "train", "pod-template-hash": "5d8f7c9b6"},
            "ownerReferences": [owner],
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": token["name"], "projected": {"sources": []}}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
    }


def _review(pod: Object) -> bytes:
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["system:nodes"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


def _serve(parent: Connection, certificate: KeyPair) -> None:
    _use_core(0)
    context = tls.new_context()
    tls.load(context, certificate)
    listening: Callable[[int], None] = parent.send
    settings = ServerSettings("127.0.0.1", 0, drain_seconds=0)
    asyncio.run(serve(make_app(WebhookSettings()), context, settings, listening))


def _use_core(number: int) -> None:
    """Keep client and server off each other's core where there are two."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})


def _certificates() -> tuple[KeyPair, KeyPair]:
    now, life = datetime.now(UTC), timedelta(hours=1)
    authority = new_authority(now=now, life=life, name="bench")
    return authority, issue(authority, ["127.0.0.1"], now=now, life=life)


if __name__ == "__main__":
    main()
