"""The demonstration's scenes, one after the other. Everything shown is read from the cluster while it happens."""

import asyncio
import json
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from demo import picture, rotation
from demo.standins import StandIns, example
from embedded.product import Cluster
from embedded.watching import until
from kube import paths
from kube.client import Json, KubeError
from protocol.names import LIBRARY_VOLUME

SPACE: Final = "default"
FIRST: Final = ("large", "medium", "small")
_WAIT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.05
_MIB: Final = 1024**2
_NEXT: Final = """\
  .venv/bin/amd-vgpu simulate   what a cluster would do: docs/simulate.md
  make demo-cluster             the same on a real Kubernetes here (root)
  kubectl apply -k .            on your cluster: README.md, "Install"
"""


@dataclass(slots=True)
class Scenes:
    """Tells the story of a cluster on a console."""

    cluster: Cluster
    standins: StandIns
    console: Console
    palette: picture.Palette

    async def tell(self) -> None:
        """Tell all of it."""
        await self._share()
        await self._refuse()
        await self._wait_for_room()
        await self._rotate()
        self._title("What to do next")
        self.console.print(_NEXT, highlight=False, markup=False)

    async def _share(self) -> None:
        self._title("Three pods ask for parts of one GPU")
        for name in FIRST:
            self._say(f"{name:8} {picture.limits(example(name))}")
        self._command("kubectl apply -f large.yaml -f medium.yaml -f small.yaml")
        pods = []
        for name in FIRST:
            await self._create(example(name))
            pods.append(await self._running(name))
        spec = pods[0]["spec"]
        path = next(one["hostPath"]["path"] for one in spec["volumes"] if one["name"] == LIBRARY_VOLUME)
        self._say(f"the webhook added schedulerName {spec['schedulerName']}, hostPath volume {path}")
        await self._draw()
        self._title("What HIP (hipMemGetInfo, hipMalloc) tells the program in each container")
        for name in FIRST:
            await self._show_memory(name)

    async def _refuse(self) -> None:
        self._title("A request that makes no sense is refused at once, in words")
        pod = example("small")
        pod["metadata"]["name"] = "refused"
        _limits(pod).update({"amd.com/gpucores": 150, "amd.com/gpumem": "16Gi"})
        self._command("kubectl apply -f refused.yaml    # gpucores: 150, gpumem: 16Gi")
        try:
            await self._create(pod)
        except KubeError as error:
            self._say(str(error).partition(": ")[2], "red")

    async def _wait_for_room(self) -> None:
        fourth = example("fourth")
        _limits(fourth)["amd.com/gpumem"] = 32768  # more than the GPUs of the other node have
        self._title("A pod that wants more than is left waits until another goes")
        self._say(f"fourth   {picture.limits(fourth)}")
        self._command("kubectl apply -f fourth.yaml")
        await self._create(fourth)
        waiting = await self._pod("fourth", lambda pod: bool(pod and _why_waiting(pod)))
        self._say(_why_waiting(waiting), "yellow")
        self._command("kubectl delete pod large")
        await self.cluster.client.delete(paths.pod(SPACE, "large"))
        await self._running("fourth")
        await self._draw()
        await self._show_memory("fourth")

    async def _rotate(self) -> None:
        self._title("The webhook's certificates are renewed while pods are admitted all the time")
        load = rotation.Load(self.cluster.client, example("small") | {"metadata": {"generateName": "load-"}})
        begin = time.monotonic()
        steps: list[str] = []

        def step(words: str) -> None:
            steps.append(f"{time.monotonic() - begin:4.1f} s  {words}")

        async with load.running():
            rotating = asyncio.create_task(rotation.rotate(self.cluster.client, step))
            with Live(console=self.console, auto_refresh=False, transient=True) as live:
                while not rotating.done():
                    await asyncio.wait({rotating}, timeout=_LOOK_SECONDS)
                    if self.console.is_terminal:
                        live.update(_rotation_lines(steps, load), refresh=True)
            await rotating
        self.console.print(_rotation_lines(steps, load))

    async def _draw(self) -> None:
        nodes, _ = await self.cluster.client.list(paths.NODES)
        pods, _ = await self.cluster.client.list(paths.PODS)
        pictures = list(picture.gpus(nodes, pods))
        self.console.print()
        for line in picture.lines(pictures, self.palette, self.console.width):
            self.console.print(line)
        self.console.print(Text("  ") + picture.legend(pictures, self.palette))

    async def _show_memory(self, name: str) -> None:
        lines = await self._log(name)
        total = next(line["total"] for line in lines if "total" in line) // _MIB
        codes = {line["step"]: line["code"] for line in lines if "step" in line}
        words = {0: "works", 2: "hipErrorOutOfMemory"}
        parts = (
            f"sees {total} MiB",
            f"all of it: {words.get(codes['allocate-total'])}",
            f"one byte more: {words.get(codes['one-byte-over'])}",
        )
        self._say(f"{name:8} {'; '.join(parts)}")

    async def _log(self, name: str) -> list[dict[str, Any]]:
        """Return what the program in a pod said until it holds its memory."""
        path = self.standins.runtime.log(f"{SPACE}_{name}_main")
        async with asyncio.timeout(_WAIT_SECONDS):
            while True:
                text = await asyncio.to_thread(path.read_text)
                lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
                if any("ready" in line for line in lines):
                    return lines
                await asyncio.sleep(_LOOK_SECONDS)  # a process writes it; nothing tells when

    async def _create(self, pod: dict[str, Any]) -> Json:
        return await self.cluster.client.create(paths.pods(SPACE), pod)

    async def _running(self, name: str) -> Json:
        return await self._pod(name, lambda pod: pod is not None and pod["status"]["phase"] == "Running")

    async def _pod(self, name: str, fits: Callable[[Json | None], bool]) -> Json:
        async with asyncio.timeout(_WAIT_SECONDS):
            return await until(self.cluster.client, paths.pods(SPACE), name, fits) or {}

    def _title(self, text: str) -> None:
        self.console.print()
        self.console.print(Text(text, "bold"))

    def _command(self, text: str) -> None:
        self.console.print(Text.assemble("  ", ("$ ", "dim"), text))

    def _say(self, text: str, style: str = "") -> None:
        # Not rich's Padding: it fills lines up with spaces, which are in the way in a file and when text is copied.
        wrap = textwrap.TextWrapper(self.console.width, "  ", "  ", break_on_hyphens=False)
        self.console.print(Text(wrap.fill(text), style))


def _limits(pod: dict[str, Any]) -> dict[str, Any]:
    limits: dict[str, Any] = pod["spec"]["containers"][0]["resources"]["limits"]
    return limits


def _why_waiting(pod: Json) -> str:
    conditions = pod["status"].get("conditions") or ()
    return next((str(one["message"]) for one in conditions if one.get("reason") == "Unschedulable"), "")


def _rotation_lines(steps: Sequence[str], load: rotation.Load) -> Text:
    failed = Text(f"{load.failed}", "bold green" if not load.failed else "bold red")
    counts = Text.assemble(f"  pods admitted meanwhile: {load.admitted}, failed admissions: ", failed)
    return Text("\n").join([*(Text(f"  {step}") for step in steps), counts])
