"""A server for the faults that a real API server cannot be made to show on demand: silence, rubbish, broken streams."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from kube.client import KubeClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Connect = Callable[[Handler], AbstractAsyncContextManager[KubeClient]]


@pytest.fixture
def faulty(tmp_path: Path) -> Connect:
    """Return a function that serves a handler under every path and connects a client to it."""

    @asynccontextmanager
    async def connect(handler: Handler) -> AsyncIterator[KubeClient]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        # Handlers that never answer are cancelled when their client gives up, so that the server can end.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            kubeconfig = write_kubeconfig(tmp_path, f"http://127.0.0.1:{runner.addresses[0][1]}")
            async with KubeClient.connect(kubeconfig, timeout=1) as client:
                yield client
        finally:
            await runner.cleanup()

    return connect


def write_kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": "not-a-secret"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path
