"""The calls to an extender, in the form of `k8s.io/kube-scheduler/extender/v1`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from embedded.kubescheduler.config import Extender
from protocol.demand import containers
from protocol.pods import Json, PodRef

_MAX_SCORE: Final = 100
_EXTENDER_MAX_SCORE: Final = 10


class ExtenderError(Exception):
    """The extender cannot be asked, or says that it cannot answer."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that the extender lets pass, and its reasons for the others."""

    names: list[str]
    failed: Mapping[str, str]


class ExtenderClient:
    """Calls one extender. An asynchronous context manager."""

    def __init__(self, extender: Extender) -> None:
        self._extender = extender
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._extender.seconds))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def binds(self) -> bool:
        """Whether the extender binds its pods itself."""
        return bool(self._extender.bind_verb)

    def is_interested(self, pod: Json) -> bool:
        """Return whether a pod concerns the extender."""
        found = (one.body.get("resources") or {} for one in containers(pod.get("spec") or {}))
        names = {name for one in found for part in ("requests", "limits") for name in one.get(part) or ()}
        return not self._extender.managed or bool(names & self._extender.managed)

    async def filter(self, pod: Json, nodes: Sequence[Json]) -> Filtered:
        """Return which of the nodes the pod may go to.

        Raises:
            ExtenderError: see there.
        """
        answer = await self._call(self._extender.filter_verb, self._arguments(pod, nodes))
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])
        if self._extender.caches_nodes:
            names = list(answer.get("NodeNames") or ())
        else:
            names = [item["metadata"]["name"] for item in (answer.get("Nodes") or {}).get("items") or ()]
        return Filtered(
            names, {**(answer.get("FailedNodes") or {}), **(answer.get("FailedAndUnresolvableNodes") or {})}
        )

    async def prioritize(self, pod: Json, nodes: Sequence[Json]) -> dict[str, int]:
        """Return nodes' scores, 0 to 100 for a weight of 1; none when the extender cannot say, which stops no pod."""
        try:
            answer = await self._call(self._extender.prioritize_verb, self._arguments(pod, nodes))
        except ExtenderError:
            return {}
        factor = self._extender.weight * (_MAX_SCORE // _EXTENDER_MAX_SCORE)
        return {one["Host"]: one["Score"] * factor for one in answer}

    async def bind(self, pod: PodRef, node: str) -> None:
        """Bind a pod.

        Raises:
            ExtenderError: it is not bound, or that is not known.
        """
        body = {"PodNamespace": pod.namespace, "PodName": pod.name, "PodUID": pod.uid, "Node": node}
        answer = await self._call(self._extender.bind_verb, body)
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])

    def _arguments(self, pod: Json, nodes: Sequence[Json]) -> dict[str, Any]:
        if self._extender.caches_nodes:
            return {"Pod": _untyped(pod), "Nodes": None, "NodeNames": [node["metadata"]["name"] for node in nodes]}
        return {"Pod": _untyped(pod), "Nodes": {"metadata": {}, "items": list(map(_untyped, nodes))}, "NodeNames": None}

    async def _call(self, verb: str, body: Mapping[str, Any]) -> Any:
        if self._session is None:
            raise ExtenderError("the client is not open")
        url = f"{self._extender.url}/{verb}"
        try:
            async with self._session.post(url, json=body) as response:
                if response.status != 200:  # noqa: PLR2004 - HTTP's
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                return await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ExtenderError(f"Post {url!r}: {type(error).__name__} {error}") from error


def _untyped(item: Json) -> dict[str, Any]:
    """Return an object without its kind and version, which Go's structs have forgotten when they are written."""
    return {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
