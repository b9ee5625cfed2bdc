"""The webhook's certificates on a real API server, with the rights that the manifests give."""

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certs import bundle
from certs.authority import KeyPair, fingerprint, issue, new_authority
from kube.client import KubeClient
from tests.certs.replicas import (
    CONFIGURATIONS,
    NAMES,
    NAMESPACE,
    PLACE,
    QUICK,
    Load,
    Replicas,
    at_rest,
    bundles,
    control_plane,
    served,
    stored,
)
from tests.certs.test_folder import Mount
from tests.cluster.network import free_port
from tests.cluster.product import manifests
from tests.command import COMMAND

MOST_TO_REPAIR = 10.0
"""Seconds; it takes a fraction of one unless the machine is busy."""


@pytest.fixture(scope="module")
def installed() -> Iterator[Replicas]:
    with control_plane() as cluster:
        yield Replicas(cluster)


@pytest.fixture
async def replicas(installed: Replicas) -> AsyncIterator[Replicas]:
    """An installation as new, behind something that stands in for the Service."""
    await asyncio.to_thread(installed.reset)
    async with installed.forwarder.running():
        yield installed


@pytest.fixture
async def client(replicas: Replicas) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(replicas.cluster.kubeconfig) as client:
        yield client


async def set_bundle(client: KubeClient, path: str, content: bytes) -> None:
    item = await client.get(path)
    for webhook in item["webhooks"]:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(content).decode()
    await client.replace(path, item)


async def create_pods(client: KubeClient, count: int) -> None:
    load = Load(client)
    for number in range(count):
        await load.one(f"one-{number}")
    assert (load.created, load.unmutated, load.failures) == (count, 0, [])


def amd_vgpu(replicas: Replicas, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, *arguments, f"--kubeconfig={replicas.cluster.kubeconfig}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


async def test_a1_two_replicas_that_start_at_once_agree(client: KubeClient, replicas: Replicas) -> None:
    await asyncio.to_thread(replicas.start, "a", "b")
    await at_rest(client, replicas, "ab")
    for name in "ab":
        replicas.forwarder.backends = [replicas.ports[name]]
        await create_pods(client, 20)
    replicas.forwarder.backends = list(replicas.ports.values())
    logs = replicas.log("a") + replicas.log("b")
    assert logs.count("prepare: ") == 1, "one of them makes the authority"
    assert "orbidden" not in logs
    assert "PRIVATE" not in logs


@pytest.mark.parametrize("path", CONFIGURATIONS)
async def test_a3_a_ca_bundle_that_somebody_changed_is_put_right(
    client: KubeClient, replicas: Replicas, path: str
) -> None:
    await asyncio.to_thread(replicas.start, "a")
    await at_rest(client, replicas, "a")
    before = await bundles(client)
    for wrong in (b"", b"garbage", _authority(timedelta(days=1)).certificate):
        await set_bundle(client, path, wrong)
        await at_rest(client, replicas, "a", MOST_TO_REPAIR)
        assert await bundles(client) == before
        await create_pods(client, 1)


async def test_a3_applying_the_shipped_manifests_again_leaves_the_ca_bundle(
    client: KubeClient, replicas: Replicas
) -> None:
    await asyncio.to_thread(replicas.start, "a")
    await at_rest(client, replicas, "a")
    before = [await client.get(path) for path in CONFIGURATIONS]
    shipped = [
        item
        for item in manifests(webhook_port=replicas.port, minor=replicas.cluster.binaries.minor)
        if "webhooks" in item
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": shipped})
    for way in ([], [], ["--server-side", "--force-conflicts"], ["--server-side"]):
        replicas.cluster.kubectl("apply", *way, "--filename", "-", input=text)
    after = [await client.get(path) for path in CONFIGURATIONS]
    for old, new in zip(before, after, strict=True):
        assert bundle.read(new).bundles == bundle.read(old).bundles


async def test_a_configuration_that_is_deleted_and_applied_again_is_trusted_again(
    client: KubeClient, replicas: Replicas
) -> None:
    await asyncio.to_thread(replicas.start, "a")
    await at_rest(client, replicas, "a")
    item = await client.get(CONFIGURATIONS[0])
    await client.delete(CONFIGURATIONS[0])
    for webhook in item["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    body = {**item, "metadata": {"name": item["metadata"]["name"]}}
    await client.create(CONFIGURATIONS[0].rpartition("/")[0], body)
    await at_rest(client, replicas, "a", MOST_TO_REPAIR)
    await create_pods(client, 1)


def _broken(data: dict[str, str], kind: str) -> dict[str, str]:
    """A Secret that somebody edited, or of which a write went wrong."""
    garbage = base64.b64encode(b"garbage").decode()
    return {
        "all": dict.fromkeys(data, garbage),
        "empty": {"tls.crt": "", "tls.key": ""},
        "half a pair": {**data, "tls.key": data["ca.key"]},
        "half an authority": {**data, "ca.key": data["tls.key"]},
        "no certificate": {**data, "tls.crt": ""},
    }[kind]


@pytest.mark.parametrize("kind", ["deleted", "all", "empty", "half a pair", "half an authority", "no certificate"])
async def test_a_secret_that_somebody_spoilt_is_put_right_and_no_creation_fails(
    client: KubeClient, replicas: Replicas, kind: str
) -> None:
    await asyncio.to_thread(replicas.start, "a", "b")
    await at_rest(client, replicas, "ab")
    before = await stored(client)
    load = Load(client, rate=10)
    async with load.running():
        if kind == "deleted":
            await client.delete(PLACE.secret_path)
        else:
            item = await client.get(PLACE.secret_path)
            await client.replace(PLACE.secret_path, {**item, "data": _broken(item["data"], kind)})
        await at_rest(client, replicas, "ab")
    assert (load.failures, load.unmutated) == ([], 0)
    assert load.created > 0
    after = await stored(client)
    assert after.serving != before.serving
    if kind in {"half a pair", "no certificate"}:
        assert after.authority == before.authority, "what is whole stays"


async def test_a_replica_that_comes_later_and_one_that_goes(client: KubeClient, replicas: Replicas) -> None:
    await asyncio.to_thread(replicas.start, "a")
    await at_rest(client, replicas, "a")
    before = await stored(client)
    await asyncio.to_thread(replicas.start, "b")
    await at_rest(client, replicas, "ab")
    await asyncio.to_thread(replicas.stop, "a")
    await at_rest(client, replicas, "b")
    after = await stored(client)
    assert (after.authority, after.serving) == (before.authority, before.serving)


async def test_the_rights_are_enough_and_not_more(client: KubeClient, replicas: Replicas) -> None:
    await asyncio.to_thread(replicas.start, "a")
    await at_rest(client, replicas, "a")
    await set_bundle(client, CONFIGURATIONS[0], b"")
    await at_rest(client, replicas, "a", MOST_TO_REPAIR)
    assert "orbidden" not in replicas.log("a"), "lists and watches by name are allowed too"
    kubeconfig = replicas.cluster.kubeconfig_for_service_account(NAMESPACE, "webhook")
    for question in (
        ("list", "secrets"),
        ("get", "secrets/another"),
        ("delete", f"secrets/{PLACE.secret}"),
        ("update", "leases.coordination.k8s.io/another"),
        ("list", "mutatingwebhookconfigurations"),
        ("update", "validatingwebhookconfigurations/another"),
        ("delete", f"validatingwebhookconfigurations/{PLACE.configuration}"),
    ):
        words = ("auth", "can-i", *question, f"--namespace={NAMESPACE}")
        assert replicas.cluster.kubectl(*words, check=False, kubeconfig=kubeconfig).stdout.strip() == "no", question


@pytest.mark.parametrize("authority", [False, True])
async def test_status_and_rotate(client: KubeClient, replicas: Replicas, authority: bool) -> None:
    await asyncio.to_thread(replicas.start, "a", "b")
    await at_rest(client, replicas, "ab")
    before = await stored(client)
    done = await asyncio.to_thread(amd_vgpu, replicas, "certs", "rotate", *(["--ca"] if authority else []))
    assert done.returncode == 0, done.stderr
    assert "done: 2 replicas serve the new certificate" in done.stdout
    after = await stored(client)
    assert after.serving != before.serving
    assert (after.authority != before.authority) == authority
    await at_rest(client, replicas, "ab")

    done = await asyncio.to_thread(amd_vgpu, replicas, "certs", "status")
    assert done.returncode == 0, done.stderr
    after = await stored(client)
    assert after.authority
    assert after.serving
    of, certificate = fingerprint(after.authority.certificate), fingerprint(after.serving.certificate)
    assert done.stdout.count(f": serves the certificate {certificate[:16]}") == 2
    webhooks = sum([len(bundle.read(await client.get(path)).bundles) for path in CONFIGURATIONS])
    assert done.stdout.count(f"trusts: the authority {of[:16]}") == webhooks
    assert f"serving certificate: CN={NAMES[0]}, signed by CN={PLACE.secret}-ca-" in done.stdout
    assert "days left" in done.stdout
    assert "PRIVATE" not in done.stdout


async def test_rotate_says_when_nobody_does_it(client: KubeClient, replicas: Replicas) -> None:
    done = await asyncio.to_thread(amd_vgpu, replicas, "certs", "rotate")
    assert done.returncode == 1
    assert "not found" in done.stderr
    await asyncio.to_thread(replicas.start, "a")
    await at_rest(client, replicas, "a")
    await asyncio.to_thread(replicas.stop, "a")
    done = await asyncio.to_thread(amd_vgpu, replicas, "certs", "rotate", "--timeout=1")
    assert done.returncode == 1
    assert "is not done after 1 s; it goes on" in done.stderr
    assert "Traceback" not in done.stderr


async def test_short_lives_are_renewed_in_time_and_counted(client: KubeClient, replicas: Replicas) -> None:
    port = free_port()
    lives = ("--cert-life=12s", "--ca-life=30s", f"--metrics-port={port}")
    await asyncio.to_thread(replicas.start, "a", options=(*QUICK, *lives))
    load = Load(client, rate=10)
    async with load.running():
        first = await stored(client)
        async with asyncio.timeout(60):
            while True:
                now = await stored(client)
                if now.authority and first.authority and now.authority != first.authority:
                    break
                await asyncio.sleep(0.2)
    assert (load.failures, load.unmutated) == ([], 0)
    metrics = await scrape(port)
    assert metrics['amd_vgpu_certificate_rotations_total{certificate="serving"}'] >= 3
    assert metrics['amd_vgpu_certificate_rotations_total{certificate="authority"}'] >= 2
    assert 0 < metrics['amd_vgpu_certificate_expiry_seconds{certificate="serving"}'] <= 12
    assert metrics["amd_vgpu_certificate_failures_total"] == 0


async def scrape(port: int) -> dict[str, float]:
    async with (
        asyncio.timeout(10),
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


async def test_certificates_from_a_folder_leave_secret_and_ca_bundle_alone(
    client: KubeClient, replicas: Replicas, tmp_path: Path
) -> None:
    mount = Mount(tmp_path)
    authority, certificate = _from_somebody_else(mount)
    for path in CONFIGURATIONS:
        await set_bundle(client, path, authority)
    before: list[dict[str, Any]] = [await client.get(path) for path in CONFIGURATIONS]
    await asyncio.to_thread(replicas.start, "a", options=(f"--cert-dir={tmp_path}",))
    await create_pods(client, 3)
    assert await served(replicas.ports["a"], authority) == certificate
    assert [await client.get(path) for path in CONFIGURATIONS] == before
    assert replicas.cluster.get(PLACE.secret_path) is None


def _from_somebody_else(mount: Mount) -> tuple[bytes, str]:
    """Put a pair into a folder; return the authority, and the fingerprint of the certificate."""
    life = timedelta(days=1)
    authority = _authority(life)
    pair = issue(authority, NAMES, now=datetime.now(UTC), life=life)
    mount.write(pair.certificate, pair.key)
    return authority.certificate, fingerprint(pair.certificate)


def _authority(life: timedelta) -> KeyPair:
    return new_authority(now=datetime.now(UTC), life=life, name="somebody")
