"""Drawing GPUs: each one's CUs as a strip in its pods' colours. Pure; plain letters where there are no colours."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from protocol.allocation import AllocationError
from protocol.devices import DeviceInfo, decode_register
from protocol.names import NODE_REGISTER
from protocol.pods import Json, PodRef, annotations, is_finished, node_name, read_holding
from protocol.usage import node_usage

_COLOURS: Final = ("blue", "green", "magenta", "cyan", "yellow", "red")
_FREE: Final = "."


@dataclass(frozen=True, slots=True)
class GpuPicture:
    """One GPU of a node.

    Attributes:
        node: its node's name.
        device: the GPU.
        owners: the name of the pod that holds each CU, empty for none.
        memory_mib: MiB that pods hold.
    """

    node: str
    device: DeviceInfo
    owners: tuple[str, ...]
    memory_mib: int


def gpus(nodes: Iterable[Json], pods: Sequence[Json]) -> Iterator[GpuPicture]:
    """Yield every GPU of the cluster with who holds its CUs, by the objects' annotations."""
    for node in nodes:
        name = str(node["metadata"]["name"])
        devices = decode_register(annotations(node).get(NODE_REGISTER, "[]"))
        here = [pod for pod in pods if node_name(pod) == name and not is_finished(pod)]
        usages, _ = node_usage(devices, here)
        owners = _owners(here)
        for device in devices:
            cus = tuple(owners.get((device.id, cu), "") for cu in range(device.cu_count))
            yield GpuPicture(name, device, cus, usages[device.id].memory_mib)


def _owners(pods: Iterable[Json]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for pod in pods:
        try:
            holding = read_holding(pod)
        except AllocationError:
            continue
        for device_id, cus in (holding.cus if holding else {}).items():
            found |= {(device_id, cu): PodRef.of(pod).name for cu in cus}
    return found


class Palette:
    """A colour and a letter for each pod, the same for as long as it is asked for."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._known: dict[str, str] = {}

    def style(self, name: str) -> str:
        """Return a pod's background colour, in rich's words."""
        colour = self._known.setdefault(name, _COLOURS[len(self._known) % len(_COLOURS)])
        return f"on {colour}" if self._colours else ""

    def name(self, name: str) -> Text:
        """Return a pod's name in its colour."""
        return Text(f" {name} ", self.style(name)) if self._colours else Text(f"{name[0]}={name}")

    def strip(self, owners: Sequence[str], width: int) -> Text:
        """Return a strip of a GPU's CUs, as wide as asked for at most; a cell shows who holds the first CU of it."""
        width = min(width, len(owners))
        text = Text()
        for cell in range(width):
            owner = owners[cell * len(owners) // width]
            mark = _FREE if not owner else " " if self._colours else owner[0]
            text.append(mark, self.style(owner) if owner else "dim" if self._colours else "")
        return text


def lines(pictures: Sequence[GpuPicture], palette: Palette, width: int) -> Iterator[Text]:
    """Yield two lines for each GPU, its numbers and a strip, each at most as wide as a terminal of this width."""
    indent = " " * (3 + max((len(picture.node) for picture in pictures), default=0))
    for picture in pictures:
        device = picture.device
        taken = sum(map(bool, picture.owners))
        numbers = f"{taken} of {device.cu_count} CUs, {picture.memory_mib} of {device.memory_mib} MiB"
        name = Text(f"  {picture.node}".ljust(len(indent)), "bold")
        yield Text.assemble(name, f"{device.product}: {numbers}")
        yield Text(indent) + palette.strip(picture.owners, width - len(indent))


def legend(pictures: Sequence[GpuPicture], palette: Palette) -> Text:
    """Return the pods that hold something, each in its colour, with how many CUs it has."""
    counts: dict[str, int] = {}
    for picture in pictures:
        for owner in filter(None, picture.owners):
            counts[owner] = counts.get(owner, 0) + 1
    return Text("  ").join(Text.assemble(palette.name(name), f" {count} CUs") for name, count in counts.items())


def limits(pod: Mapping[str, object]) -> str:
    """Return the `amd.com/*` limits of a pod's only container as users write them."""
    spec = pod["spec"]
    assert isinstance(spec, dict)  # noqa: S101 - a manifest of ours
    (container,) = spec["containers"]
    return ", ".join(f"{key}: {value}" for key, value in container["resources"]["limits"].items())
