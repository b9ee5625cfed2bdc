"""What monitoring reads."""

import asyncio
from datetime import UTC, datetime, timedelta

import aiohttp

from certs import metrics
from certs.authority import issue, new_authority
from certs.metrics import Metrics
from certs.secret import Stored
from certs.world import Kind

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_seconds_until_expiry_and_counts() -> None:
    authority = new_authority(now=NOW, life=timedelta(days=10), name="ca")
    pair = issue(authority, ["localhost"], now=NOW, life=timedelta(days=1))
    measured = Metrics(now=(NOW + timedelta(hours=1)).timestamp)
    measured.stored(Stored(authority=authority, serving=pair))
    measured.loaded(pair.certificate)
    for kind in (Kind.ISSUE, Kind.PROMOTE, Kind.TRUST):
        measured.done(kind)
    measured.failed()
    lines = measured.render().decode().splitlines()
    assert f'amd_vgpu_certificate_expiry_seconds{{certificate="serving"}} {23 * 3600.0}' in lines
    assert f'amd_vgpu_certificate_expiry_seconds{{certificate="authority"}} {(10 * 24 - 1) * 3600.0}' in lines
    assert 'amd_vgpu_certificate_rotations_total{certificate="serving"} 2.0' in lines
    assert 'amd_vgpu_certificate_rotations_total{certificate="authority"} 1.0' in lines
    assert "amd_vgpu_certificate_loads_total 1.0" in lines
    assert "amd_vgpu_certificate_trust_writes_total 1.0" in lines
    assert "amd_vgpu_certificate_failures_total 1.0" in lines


async def test_they_are_served_over_http() -> None:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(metrics.serve(Metrics(), "127.0.0.1", 0, port.set_result))
    async with asyncio.timeout(10):
        url = f"http://127.0.0.1:{await port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/plain")
            assert "amd_vgpu_certificate_failures_total 0.0" in await response.text()
    serving.cancel()
    await asyncio.wait({serving})
