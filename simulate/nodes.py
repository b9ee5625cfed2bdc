"""The nodes of a simulated cluster: registrations of real ones, or a description such as `2 nodes: 4 x MI300X SPX`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.devices import DeviceInfo, RegisterError, decode_register
from protocol.names import NODE_REGISTER
from protocol.pods import annotations
from simulate.objects import ObjectsError, read_objects
from simulate.products import MODES, PRODUCTS, Product

DEFAULT_COUNT: Final = 10
MAX_NODES: Final = 100_000
MAX_GPUS: Final = 64
_LINE: Final = re.compile(
    r"(?:(?:(?P<nodes>[0-9]{1,18}) nodes?|(?P<name>[a-z0-9][-a-z0-9.]{0,252})): +)?(?P<gpus>[^:]+)", re.ASCII
)
_GPUS: Final = re.compile(r"(?P<number>[0-9]{1,3}) *x +(?P<product>.+?)(?: +(?P<mode>[A-Z]PX))?", re.ASCII)
EXAMPLES: Final = "such as `4 x MI300X SPX`, `2 nodes: 8 x MI210` or `node-a: 1 x MI300X + 2 x RX 7900 XTX`"


class NodesError(ValueError):
    """The nodes cannot be read; the message says where and what would be right."""


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node and its GPUs."""

    name: str
    devices: tuple[DeviceInfo, ...]

    @property
    def slots(self) -> int:
        """How many GPU shares the kubelet has for containers."""
        return sum(device.count for device in self.devices if device.healthy)


def read_nodes(text: str) -> tuple[SimulatedNode, ...]:
    """Return the nodes of a file: the output of `kubectl get nodes -o json` or `-o yaml`, or lines of a description.

    Raises:
        NodesError: it is neither, or has no node with GPUs.
    """
    lines = [stripped for line in text.splitlines() if (stripped := line.partition("#")[0].strip())]
    nodes = tuple(_described(lines) if all(map(is_description, lines)) else _registered(text))
    if not nodes:
        raise NodesError(
            f"there is no node with GPUs: write {EXAMPLES}, or give the output of `kubectl get nodes -o json`"
        )
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise NodesError(f"node {doubled!r} is there twice")
    return nodes


def is_description(line: str) -> bool:
    """Return whether a line means to describe nodes, rightly or wrongly."""
    match = _LINE.fullmatch(line)
    return match is not None and " x " in f" {match['gpus']}".replace("x ", " x ")


def _described(lines: Iterable[str]) -> Iterator[SimulatedNode]:
    number = 0
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise NodesError(f"{line!r}: must be {EXAMPLES}")
        devices = tuple(_devices(line, match["gpus"]))
        count = int(match["nodes"] or 1)
        if not 1 <= count <= MAX_NODES:
            raise NodesError(f"{line!r}: {count} nodes: must be from 1 to {MAX_NODES}")
        for _ in range(count):
            number += 1
            yield SimulatedNode(match["name"] or f"node-{number}", devices)


def _devices(line: str, text: str) -> Iterator[DeviceInfo]:
    index = 0
    for part in text.split("+"):
        match = _GPUS.fullmatch(part.strip())
        product = PRODUCTS.get(match["product"]) if match else None
        if match is None or product is None:
            raise NodesError(f"{part.strip()!r}: must be a number and one of {', '.join(PRODUCTS)}, {EXAMPLES}")
        mode = match["mode"] or "SPX"
        parts = _parts(line, product, mode)
        count = int(match["number"]) * parts
        if not 1 <= count <= MAX_GPUS:
            partitions = f" in {parts} partitions each" if parts > 1 else ""
            raise NodesError(f"{line!r}: {match['number']} GPUs{partitions}: must make 1 to {MAX_GPUS} on a node")
        for _ in range(count):
            yield _device(product, index, parts, mode)
            index += 1


def _parts(line: str, product: Product, mode: str) -> int:
    if mode not in MODES:
        raise NodesError(f"{line!r}: {mode}: must be one of {', '.join(MODES)}")
    parts = MODES[mode] or product.xcc_count
    if product.xcc_count % parts:
        raise NodesError(f"{line!r}: {mode}: {product.name} has {product.xcc_count} XCCs, not {parts} times as many")
    return parts


def _device(product: Product, index: int, parts: int, mode: str) -> DeviceInfo:
    return DeviceInfo(
        id=f"GPU-{index:016x}",
        index=index,
        count=DEFAULT_COUNT,
        memory_mib=product.memory_mib // parts,
        cu_count=product.cu_count // parts,
        product=product.name,
        xcc_count=product.xcc_count // parts,
        wgp=product.wgp,
        partition=mode if product.xcc_count > 1 else "",
    )


def _registered(text: str) -> Iterator[SimulatedNode]:
    try:
        items = list(read_objects(text))
    except ObjectsError as error:
        raise NodesError(f"neither lines {EXAMPLES}, nor the output of `kubectl get nodes -o json`: {error}") from error
    for item in items:
        yield from _node(item)


def _node(item: Mapping[str, Any]) -> Iterator[SimulatedNode]:
    name = str((item.get("metadata") or {}).get("name") or "")
    if item.get("kind", "Node") != "Node" or not name:
        raise NodesError(f"kind {item.get('kind')!r} with name {name!r}: must be Node objects with names")
    register = annotations(item).get(NODE_REGISTER)
    if register is None:
        return  # a node without GPUs
    try:
        devices = decode_register(register)
    except RegisterError as error:
        raise NodesError(f"node {name}: annotation {NODE_REGISTER}: {error}") from error
    if devices:
        yield SimulatedNode(name, devices)
