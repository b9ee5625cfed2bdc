"""Certificates and authorities that rotate while pods are created all the time, on a real API server."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from certs.authority import fingerprint
from certs.status import ask_for_rotation, wait_for_rotation
from kube.client import KubeClient
from tests.certs.replicas import PLACE, Load, Replicas, at_rest, control_plane

Record = Callable[[str, object], None]

log = logging.getLogger(__name__)

ROTATIONS = int(os.environ.get("CERTS_ROTATIONS", "20"))
"""How often the certificate, and how often the authority is rotated."""
KILLS = int(os.environ.get("CERTS_KILLS", "5"))
"""How often a replica is killed in the middle of a rotation."""
RATE = 20.0
LONGEST = 60.0
"""Seconds in which one rotation must be through, on a busy machine too."""
ABOUT_A_KILL = 2.0
"""Seconds around a kill in which a request that was on its way may be lost with its process."""


@pytest.fixture(scope="module")
def replicas() -> Iterator[Replicas]:
    with control_plane() as cluster:
        yield Replicas(cluster)


async def rotate(client: KubeClient, *, authority: bool) -> tuple[str, str]:
    """Rotate; return the fingerprints of the authority and the certificate that every replica now serves."""
    request = await ask_for_rotation(client, PLACE, authority=authority)
    async with asyncio.timeout(LONGEST):
        stored = await wait_for_rotation(client, PLACE, request)
    assert stored.authority
    assert stored.serving
    return fingerprint(stored.authority.certificate), fingerprint(stored.serving.certificate)


async def test_no_creation_fails_while_certificates_and_authorities_rotate(
    replicas: Replicas, record_property: Record
) -> None:
    async with KubeClient.connect(replicas.cluster.kubeconfig) as client, replicas.forwarder.running():
        await asyncio.to_thread(replicas.start, "a", "b")
        await at_rest(client, replicas, "ab")
        load = Load(client, RATE)
        authorities, certificates = set(), set()
        begin = time.monotonic()
        async with load.running():
            for _ in range(ROTATIONS):
                for authority in (False, True):
                    of, certificate = await rotate(client, authority=authority)
                    authorities.add(of)
                    certificates.add(certificate)
            await at_rest(client, replicas, "ab")
        seconds = time.monotonic() - begin
    figures = (
        f"{len(certificates)} certificates of {len(authorities)} authorities, {load.created} pods in {seconds:.0f} s, "
        f"{len(load.failures)} failed, {load.unmutated} unmutated"
    )
    record_property("figures", figures)
    log.info(figures)
    assert load.failures == []
    assert load.unmutated == 0
    assert len(certificates) == 2 * ROTATIONS
    assert len(authorities) == ROTATIONS + 1
    assert load.created > seconds * RATE * 0.8, "the load was as high as it should be"


async def test_a_replica_killed_in_the_middle_leaves_what_the_other_completes(
    replicas: Replicas, record_property: Record
) -> None:
    await asyncio.to_thread(replicas.reset)
    seed = int(os.environ.get("CERTS_SEED", str(time.time_ns())))
    log.info("CERTS_SEED=%d", seed)
    chance = random.Random(seed)  # noqa: S311
    kills: list[float] = []
    async with KubeClient.connect(replicas.cluster.kubeconfig) as client, replicas.forwarder.running():
        await asyncio.to_thread(replicas.start, "a", "b")
        load = Load(client, RATE)
        async with load.running():
            for turn in range(KILLS):
                await at_rest(client, replicas, "ab")
                victim, survivor = chance.sample("ab", 2)
                rotating = asyncio.create_task(rotate(client, authority=turn % 4 != 0))
                # Through all of a rotation, from the request to the end of the authority that was replaced.
                await asyncio.sleep(chance.uniform(0, 3.5))
                await asyncio.to_thread(replicas.stop, victim, 0)
                kills.append(time.monotonic())
                await rotating
                await at_rest(client, replicas, survivor, LONGEST)
                await asyncio.to_thread(replicas.start, victim)
    far = [words for at, words in load.failures if not any(abs(at - kill) < ABOUT_A_KILL for kill in kills)]
    figures = (
        f"{len(kills)} kills, {load.created} pods, {len(load.failures)} lost with a killed process, "
        f"{load.unmutated} unmutated"
    )
    record_property("figures", figures)
    log.info(figures)
    assert far == [], "only what was on its way to a killed process may be lost"
    assert not [words for _, words in load.failures if "x509" in words or "tls:" in words]
    assert load.unmutated == 0
