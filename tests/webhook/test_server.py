import asyncio
import logging
import socket
import ssl

import aiohttp
import pytest

from tests.webhook.https import PATIENCE, Running, TlsContexts, running
from tests.webhook.makers import gpu_container, pod
from webhook.app import READINESS, make_app
from webhook.server import address_text, serve
from webhook.settings import ServerSettings, WebhookSettings

FOR_EVER = 3600.0


async def _begin_shutdown(server: Running) -> None:
    """Cancel the server, and return when it has noticed."""
    server.task.cancel()
    async with asyncio.timeout(PATIENCE):
        while not server.app[READINESS].obstacle:
            await server.get("/healthz")


async def test_the_bound_port_is_reported_and_logged(tls: TlsContexts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "webhook.server")
    async with running(tls, WebhookSettings()) as server:
        assert server.port > 0
        assert f"listening on 127.0.0.1:{server.port}" in caplog.messages


async def test_a_client_that_does_not_know_the_certificate_refuses_it(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings()) as server:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
        async with aiohttp.ClientSession(connector=connector) as stranger:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await stranger.get(f"https://127.0.0.1:{server.port}/healthz")


async def test_a12_requests_are_served_while_it_drains(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings(), drain_seconds=FOR_EVER) as server:
        await _begin_shutdown(server)
        assert await server.get("/readyz") == (503, "server: shutting down")
        assert await server.get("/healthz") == (200, "ok")
        assert (await server.ask("/mutate", pod(gpu_container(gpu="1"))))["allowed"] is True
        assert not server.task.done()
        server.task.cancel()  # a second time: enough waited
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(server.task, PATIENCE)


async def test_a12_clients_are_sent_elsewhere_only_while_it_drains(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings(), drain_seconds=FOR_EVER) as server:
        async with server.session.get("/healthz") as response:
            assert response.headers.get("Connection") != "close"
        await _begin_shutdown(server)
        async with server.session.get("/healthz") as response:
            assert response.headers["Connection"] == "close"
        server.task.cancel()


async def test_the_port_is_closed_after_the_drain_time(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings(), drain_seconds=0.01) as server:
        server.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(server.task, PATIENCE)
        with pytest.raises(aiohttp.ClientConnectionError):
            await server.get("/healthz")


async def test_a_request_that_never_ends_does_not_stop_the_shutdown(tls: TlsContexts) -> None:
    async with running(tls, WebhookSettings(), close_seconds=0.01) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls.client)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        server.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(server.task, PATIENCE)
        writer.close()


async def test_requests_without_a_decision_are_not_logged(tls: TlsContexts, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tls, WebhookSettings()) as server:
        caplog.set_level(logging.INFO)
        assert await server.get("/readyz") == (200, "ok")
        assert (await server.ask("/mutate", pod()))["allowed"] is True
        assert caplog.messages == []


@pytest.mark.parametrize(("host", "text"), [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")])
def test_addresses_are_logged_as_in_urls(host: str, text: str) -> None:
    assert address_text(host, 80) == text


async def test_not_ready_before_it_listens_and_no_drain_when_it_cannot(tls: TlsContexts) -> None:
    app = make_app(WebhookSettings())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ServerSettings("127.0.0.1", taken.getsockname()[1], FOR_EVER)
        with pytest.raises(OSError, match="in use"):
            await asyncio.wait_for(serve(app, tls.server, settings), PATIENCE)
    assert app[READINESS].obstacle == "server: not listening yet"
