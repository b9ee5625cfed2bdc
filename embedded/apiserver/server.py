"""The server's life: listen on loopback, tell others how to reach it, stop."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from embedded.apiserver.admission import Admission
from embedded.apiserver.callout import Caller, Services
from embedded.apiserver.core import Call, Core
from embedded.apiserver.http import make_app
from embedded.apiserver.identity import ADMIN, Tokens, User
from embedded.apiserver.resources import RESOURCES, Target
from embedded.apiserver.store import Store

_STOP_SECONDS: Final = 0.2
_NAMESPACES: Final = ("default", "kube-system")


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server.

    Attributes:
        url: where it listens.
        core: its verbs, for those who share its process.
    """

    url: str
    core: Core
    _tokens: dict[str, User]

    @property
    def store(self) -> Store:
        """The objects."""
        return self.core.store

    def token(self, user: User) -> str:
        """Return a token that stands for a user from now on."""
        token = secrets.token_urlsafe()
        self._tokens[token] = user
        return token

    def write_kubeconfig(self, path: Path, user: User = ADMIN) -> Path:
        """Write a kubeconfig for a user, readable by its owner alone, and return its path."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "user", "user": {"token": self.token(user)}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "user"}}],
            "current-context": "embedded",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path

    async def apply(self, objects: Sequence[Mapping[str, Any]], namespace: str = "default") -> None:
        """Create objects as the administrator; those of kinds that there are not here are passed over.

        Raises:
            ApiError: one of them is refused.
        """
        by_kind = {(one.api_version, one.kind): one for one in RESOURCES}
        for item in objects:
            resource = by_kind.get((item["apiVersion"], item["kind"]))
            if resource is not None:
                space = (item["metadata"].get("namespace") or namespace) if resource.namespaced else ""
                await self.core.create(Target(resource, space), dict(item), Call(ADMIN))


@asynccontextmanager
async def serving(services: Services | None = None, *, history: int = 10_000) -> AsyncIterator[ApiServer]:
    """Run an API server on a free port of loopback; all is forgotten at the end.

    Args:
        services: where webhooks' Services really listen, by namespace and name; may be added to later.
        history: how many changes of each resource watches can be served from.
    """
    tokens: dict[str, User] = {}
    async with Caller({} if services is None else services) as caller:
        store = Store(history=history)
        core = Core(store, Admission(store, caller))
        # Watches end only when their clients go, so nothing is gained by waiting for them.
        runner = web.AppRunner(make_app(core, Tokens(tokens)), access_log=None, shutdown_timeout=_STOP_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            server = ApiServer(f"http://{host}:{port}", core, tokens)
            await server.apply([_namespace(name) for name in _NAMESPACES])
            yield server
        finally:
            await runner.cleanup()


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
