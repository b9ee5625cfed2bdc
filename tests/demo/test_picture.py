"""Strips and legends, from objects as the API server has them."""

from typing import Any

from demo.picture import Palette, gpus, legend
from protocol.demand import read_demand
from protocol.devices import encode_register
from protocol.names import NODE_REGISTER
from protocol.placement import Placement, place
from protocol.policy import Policy
from protocol.usage import node_usage
from tests.protocol.makers import MI300X, container, pod, pod_spec

Json = dict[str, Any]
NODE = {"metadata": {"name": "node", "annotations": {NODE_REGISTER: encode_register([MI300X])}}}


def placed(*cores: int) -> list[Json]:
    pods: list[Json] = []
    for number, percent in enumerate(cores):
        spec = pod_spec(container(gpu=1, gpucores=percent, gpumem=1000))
        usages, _ = node_usage([MI300X], pods)
        placement = place(read_demand(spec), usages.values(), Policy.BINPACK)
        assert isinstance(placement, Placement)
        pods.append(pod(f"{'abc'[number]}-pod", spec, placement.annotations(), node="node"))
    return pods


def test_a_strip_shows_who_holds_what() -> None:
    (picture,) = gpus([NODE], placed(25, 50))
    assert (picture.node, picture.memory_mib) == ("node", 2000)
    assert picture.owners == ("a-pod",) * 76 + ("b-pod",) * 152 + ("",) * 76
    assert Palette(colours=False).strip(picture.owners, 8).plain == "aabbbb.."


def test_a_strip_is_never_wider_than_its_gpu() -> None:
    assert len(Palette(colours=False).strip(("", "x"), 80)) == 2


def test_colours_are_kept_and_told_apart() -> None:
    palette = Palette(colours=True)
    assert palette.style("a") == palette.style("a") != palette.style("b")
    (picture,) = gpus([NODE], placed(25, 50))
    strip = palette.strip(picture.owners, 304)
    assert next((span.start, span.end) for span in strip.spans if span.style == palette.style("b-pod")) == (76, 77)
    assert legend([picture], palette).plain.split() == ["a-pod", "76", "CUs", "b-pod", "152", "CUs"]


def test_pods_elsewhere_finished_or_unreadable_hold_nothing_in_the_picture() -> None:
    (first, second) = placed(25, 25)
    elsewhere = {**first, "spec": {**first["spec"], "nodeName": "other"}}
    finished = {**second, "status": {"phase": "Succeeded"}}
    broken = pod("broken", pod_spec(container(gpu=1)), {}, node="node")
    (picture,) = gpus([NODE], [elsewhere, finished, broken])
    assert not any(picture.owners)
