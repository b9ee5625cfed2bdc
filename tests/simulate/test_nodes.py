"""Nodes: descriptions, registrations, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from plugin.counts import DEFAULT_COUNT
from plugin.discovery import Offer, discover
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
from simulate import nodes
from simulate.nodes import NodesError, read_nodes
from tests.protocol.makers import MI210, MI300X
from tests.trees import MadeGpu, make_tree


def test_a_line_is_a_node() -> None:
    (node,) = read_nodes("4 x MI300X SPX\n")
    assert node.name == "node-1"
    assert [device.index for device in node.devices] == [0, 1, 2, 3]
    assert len({device.id for device in node.devices}) == 4
    assert {(device.cu_count, device.xcc_count, device.memory_mib) for device in node.devices} == {(304, 8, 196592)}
    assert node.slots == 40


def test_several_nodes_names_and_kinds_of_gpus() -> None:
    found = read_nodes("# a cluster\n2 nodes: 8 x MI210\nold-one: 1 x MI300X + 2 x RX 7900 XTX # mixed\n")
    assert [node.name for node in found] == ["node-1", "node-2", "old-one"]
    assert [device.product for device in found[2].devices] == [
        "AMD Instinct MI300X",
        "AMD Radeon RX 7900 XTX",
        "AMD Radeon RX 7900 XTX",
    ]
    assert [device.wgp for device in found[2].devices] == [False, True, True]


@pytest.mark.parametrize(("mode", "parts"), [("SPX", 1), ("DPX", 2), ("QPX", 4), ("CPX", 8)])
def test_a_partition_mode_divides_a_gpu(mode: str, parts: int) -> None:
    (node,) = read_nodes(f"1 x MI300X {mode}")
    assert len(node.devices) == parts
    device = node.devices[0]
    assert (device.cu_count, device.xcc_count, device.partition) == (304 // parts, 8 // parts, mode)
    assert device.memory_mib == 196592 // parts


@pytest.mark.parametrize("product", ["MI300X", "MI210", "RX 7900 XTX", "R9700", "MI355X"])
def test_a_described_gpu_is_what_a_device_plugin_would_register(product: str, tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu(product)])
    (found,) = discover(tmp_path / "sys", tmp_path / "dev", Offer(DEFAULT_COUNT)).devices
    (device,) = read_nodes(f"1 x {product}")[0].devices
    for name in ("cu_count", "xcc_count", "wgp", "count"):
        assert getattr(device, name) == getattr(found, name), name
    assert device.memory_mib == pytest.approx(found.memory_mib, rel=0.01)


def test_the_default_count_is_the_plugins() -> None:
    assert nodes.DEFAULT_COUNT == DEFAULT_COUNT


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_registrations_of_a_real_cluster(form: str) -> None:
    item = {"kind": "Node", "metadata": {"name": "a", "annotations": {NODE_REGISTER: encode_register([MI300X, MI210])}}}
    plain = {"kind": "Node", "metadata": {"name": "b"}}
    text = json.dumps({"kind": "List", "items": [item, plain]})
    if form == "yaml":
        text = f"---\n{json.dumps(item)}\n---\n{json.dumps(plain)}\n"
    (node,) = read_nodes(text)
    assert (node.name, node.devices) == ("a", (MI300X, MI210))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no node with GPUs"),
        ("4 x MI9000", "'4 x MI9000': must be a number and one of MI100"),
        ("0 nodes: 1 x MI210", "0 nodes: must be from 1 to"),
        ("99999999999 nodes: 1 x MI210", "99999999999 nodes: must be from 1 to"),
        ("65 x MI210", "65 GPUs: must make 1 to 64 on a node"),
        ("9 x MI300X CPX", "9 GPUs in 8 partitions each: must make 1 to 64 on a node"),
        ("1 x MI300X XPX", "XPX: must be one of SPX"),
        ("1 x MI300X TPX", "has 8 XCCs"),
        ("a: 1 x MI210\na: 1 x MI210", "node 'a' is there twice"),
        ("{not: [json", "neither lines"),
        ("plain words", "neither lines such as"),
        (json.dumps({"metadata": {"name": "a", "annotations": {NODE_REGISTER: "[]"}}}), "there is no node with GPUs"),
        ('{"kind": "Pod", "metadata": {"name": "a"}}', "must be Node objects with names"),
        (
            json.dumps({"kind": "Node", "metadata": {"name": "a", "annotations": {NODE_REGISTER: "{"}}}),
            f"node a: annotation {NODE_REGISTER}: not JSON",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(NodesError) as error:
        read_nodes(text)
    assert words in str(error.value)
