"""What a kube-scheduler says to its extender and hears from it: a proxy between the two that writes it down."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tests.cluster.network import LOOPBACK, free_port

Json = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """One call: the verb, the body that kube-scheduler sent, and what it got."""

    verb: str
    asked: Json
    answered: Any


class Recorder:
    """Passes calls on to the extender.

    Args:
        extender: its address, such as http://127.0.0.1:8888.
    """

    def __init__(self, extender: str) -> None:
        self.port = free_port()
        self.exchanges: list[Exchange] = []
        self._extender = extender
        self._changed = asyncio.Condition()

    @property
    def address(self) -> str:
        """The `urlPrefix` for kube-scheduler."""
        return f"http://{LOOPBACK}:{self.port}"

    def of(self, verb: str, pod: str) -> list[Exchange]:
        """Return the exchanges of a verb about a pod of this name."""
        return [one for one in self.exchanges if one.verb == verb and _pod_name(one.asked) == pod]

    async def last(self, verb: str, pod: str) -> Exchange:
        """Return the latest exchange of a verb about a pod, when there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.of(verb, pod))
        return self.of(verb, pod)[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(self._extender) as http:

            async def pass_on(request: web.Request) -> web.Response:
                body = await request.read()
                headers = {"Content-Type": request.content_type}
                async with http.post(request.path, data=body, headers=headers) as answer:
                    text = await answer.read()
                    verb = request.match_info["verb"]
                    self.exchanges.append(Exchange(verb, json.loads(body), json.loads(text)))
                    async with self._changed:
                        self._changed.notify_all()
                    return web.Response(status=answer.status, body=text, content_type=answer.content_type)

            app = web.Application(client_max_size=64 * 1024 * 1024)
            app.router.add_post("/{verb}", pass_on)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, LOOPBACK, self.port).start()
                yield
            finally:
                await runner.cleanup()


def _pod_name(asked: Json) -> str:
    pod: Json | None = asked.get("Pod")
    return str(pod["metadata"]["name"]) if pod else str(asked.get("PodName", ""))
