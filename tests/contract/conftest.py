"""Every test here runs twice: on the embedded API server, and on a real one where a cluster can run."""

import json
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, nullcontext

import pytest

from embedded.apiserver.identity import ADMIN
from embedded.apiserver.server import serving
from tests.cluster.availability import running_cluster
from tests.cluster.cluster import Cluster
from tests.contract.api import Api, connected

SPACE = "contract"


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A real API server, without a node."""
    with ExitStack() as stack:
        # The first start may build for minutes, and its progress belongs on the terminal.
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            cluster = stack.enter_context(running_cluster(node=False))
        cluster.create_namespace(SPACE)
        yield cluster


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    if request.param == "embedded":
        async with serving() as server:
            await server.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}])
            async with connected(server.url, SPACE, is_real=False, token=server.token(ADMIN)) as api:
                yield api
        return
    cluster: Cluster = request.getfixturevalue("control_plane")
    context, public = (ssl.create_default_context(cafile=cluster.ca_file) for _ in range(2))
    (admin,) = json.loads(cluster.kubeconfig.read_text())["users"]
    context.load_cert_chain(admin["user"]["client-certificate"], admin["user"]["client-key"])
    async with connected(cluster.server, SPACE, is_real=True, context=context, public=public) as api:
        yield api


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses: the real server is one for all."""
    text = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_"))
    return f"{text[:40].strip('-')}-{secrets.token_hex(3)}"
