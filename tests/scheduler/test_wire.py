"""The extender's JSON: what kube-scheduler sends, and what it can read."""

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.pods import PodRef
from scheduler.wire import BindArgs, WireError, filter_error, filter_result, read_bind_args, read_filter_args

POD = {"metadata": {"name": "p", "namespace": "default"}}
NODES = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]


def test_b1_names_are_read_and_answered_with_names() -> None:
    args = read_filter_args({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b", "c"]})
    assert args.names == ("a", "b", "c")
    assert filter_result(args, ["b"], {"a": "full"}, {"c": "no GPU"}) == {
        "Nodes": None,
        "NodeNames": ["b"],
        "FailedNodes": {"a": "full", "c": "no GPU"},
        "FailedAndUnresolvableNodes": {"c": "no GPU"},
        "Error": "",
    }


def test_b1_nodes_are_read_and_answered_with_nodes() -> None:
    args = read_filter_args({"Pod": POD, "Nodes": {"items": NODES}, "NodeNames": None})
    assert args.names == ("a", "b")
    answer = filter_result(args, ["b"], {"a": "full"}, {})
    assert answer["Nodes"] == {"metadata": {}, "items": [NODES[1]]}
    assert answer["NodeNames"] is None


def test_b1_no_fitting_node_is_an_empty_list_not_null() -> None:
    args = read_filter_args({"Pod": POD, "NodeNames": ["a"]})
    assert filter_result(args, [], {"a": "full"}, {})["NodeNames"] == []


def test_b1_keys_are_read_in_any_case() -> None:
    assert read_filter_args({"pod": POD, "nodenames": ["a"]}).names == ("a",)
    assert read_filter_args({"POD": POD, "nodeNames": []}).names == ()


@pytest.mark.parametrize("body", [None, [], "x", {}, {"Pod": POD}, {"Pod": [], "NodeNames": []}, {"NodeNames": ["a"]}, {"Pod": POD, "NodeNames": "a"}, {"Pod": POD, "Nodes": [], "NodeNames": None}])  # fmt: skip  # noqa: E501
def test_hami_2689_odd_bodies_are_told_apart(body: object) -> None:
    with pytest.raises(WireError):
        read_filter_args(body)


def test_bind_arguments() -> None:
    body = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "a"}
    assert read_bind_args(body) == BindArgs("default", "p", "u", "a")


@pytest.mark.parametrize("key", ["PodName", "PodNamespace", "PodUID", "Node"])
@pytest.mark.parametrize("value", [None, "", 7])
def test_a_missing_bind_argument_is_named(key: str, value: object) -> None:
    body: dict[str, Any] = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "a", key: value}
    with pytest.raises(WireError, match=key):
        read_bind_args(body)


def test_an_error_offers_no_node() -> None:
    answer = filter_error("why")
    assert (answer["Error"], answer["NodeNames"], answer["Nodes"]) == ("why", None, None)


RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


@pytest.mark.parametrize("file", RECORDED, ids=[file.stem for file in RECORDED])
def test_what_kube_scheduler_really_sends_is_read(file: Path) -> None:
    """Recorded by tests/cluster/test_conformance.py."""
    said = json.loads(file.read_text())
    mode, _, _ = file.stem.partition("-")
    uid = said["filter"]["asked"]["Pod"]["metadata"]["uid"]
    for verb in ("filter", "prioritize"):
        args = read_filter_args(said[verb]["asked"])
        assert PodRef.of(args.pod).name == "fits"
        assert {f"{mode}-big-a", f"{mode}-big-b"} <= set(args.names)
        assert (args.nodes is not None) == (mode == "nodes")
    bound = read_bind_args(said["bind"]["asked"])
    assert (bound.name, bound.uid) == ("fits", uid)
    assert bound.node.startswith(f"{mode}-big-")


def test_both_modes_of_both_releases_were_recorded() -> None:
    assert [file.stem for file in RECORDED] == ["names-20", "names-35", "nodes-20", "nodes-35"]
