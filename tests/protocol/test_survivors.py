import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pods import PodRef
from protocol.survivors import Part, Survivor, SurvivorsError, decode_survivors, encode_survivors
from protocol.usage import node_usage
from tests.protocol.makers import MI300X, container, pod, pod_spec

ONE = Survivor(PodRef("ml", "train", "uid-1"), {MI300X.id: Part(16384, tuple(range(76)))})
BLIND = Survivor(PodRef("unknown", "unknown", "uid-2"), None)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
parts = st.builds(Part, st.integers(0, 2**31 - 1), st.frozensets(st.integers(0, 1023)).map(sorted).map(tuple))
survivors = st.builds(Survivor, st.builds(PodRef, names, names, names), st.none() | st.dictionaries(names, parts))


def test_what_stands_on_the_node() -> None:
    assert json.loads(encode_survivors([BLIND, ONE])) == [
        {"namespace": "ml", "name": "train", "uid": "uid-1", "gpus": {MI300X.id: {"mem": 16384, "cus": "0-75"}}},
        {"namespace": "unknown", "name": "unknown", "uid": "uid-2", "gpus": None},
    ]
    assert decode_survivors("") == ()


@given(st.lists(survivors, unique_by=lambda one: one.pod.uid))
def test_any_survivors_are_read_back(many: list[Survivor]) -> None:
    assert decode_survivors(encode_survivors(many)) == tuple(sorted(many, key=lambda one: one.pod.uid))


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_anything_else_is_one_error(text: str) -> None:
    with suppress(SurvivorsError):
        decode_survivors(text)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("1", "must be an object"),
        ('{"namespace":"a","name":"b","uid":""}', "must have namespace, name and uid"),
        ('{"namespace":"a","name":"b","uid":"c","gpus":[]}', r"gpus: '\[\]': must be an object"),
        ('{"namespace":"a","name":"b","uid":"c","gpus":{"G":{"mem":true,"cus":""}}}', r"gpus\['G'\]: .*must have mem"),
        ('{"namespace":"a","name":"b","uid":"c","gpus":{"G":{"mem":1,"cus":"5-1"}}}', r"gpus\['G'\]: '5-1'"),
    ],
)
def test_an_error_names_the_field_and_the_value(entry: str, message: str) -> None:
    with pytest.raises(SurvivorsError, match=message):
        decode_survivors(f"[{entry}]")


def test_what_a_survivor_holds_is_taken() -> None:
    usages, _ = node_usage([MI300X], (), [ONE])
    usage = usages[MI300X.id]
    assert (usage.memory_mib, usage.cus) == (16384, set(range(76)))
    assert not usage.blocked


def test_an_unknown_holding_closes_every_gpu() -> None:
    usages, _ = node_usage([MI300X], (), [BLIND])
    assert "uid-2" in usages[MI300X.id].blocked


def test_a_pod_that_is_there_is_counted_once() -> None:
    """The plugin may take a pod for gone that the scheduler still sees, or the other way round."""
    live = pod("train", pod_spec(container(gpu=1, gpucores=25, gpumem=64)), {}, node="node-a")
    live["metadata"]["uid"] = "uid-1"
    usages, _ = node_usage([MI300X], [live], [ONE])
    assert usages[MI300X.id].memory_mib == 0
    finished = {**live, "status": {"phase": "Failed"}}
    usages, _ = node_usage([MI300X], [finished], [ONE])
    assert usages[MI300X.id].memory_mib == 16384


def test_a_gpu_that_left_the_node_is_passed_over() -> None:
    assert node_usage([], (), [ONE])[0] == {}
