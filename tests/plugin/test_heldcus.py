"""What pods hold is read once for each of their versions, and never an old version's."""

import pytest

from plugin.discovery import discover
from plugin.heldcus import HeldCus, read_cus
from tests.plugin.made_pods import Json, bound_pod, container, with_notes
from tests.trees import MadeGpu, make_tree

GPU = "GPU-8e1bb56457addd1b"


@pytest.fixture
def pod(tmp_path_factory: pytest.TempPathFactory) -> Json:
    root = tmp_path_factory.mktemp("machine")
    make_tree(root, [MadeGpu()])
    snapshot = discover(root / "sys", root / "dev")
    return at_version(bound_pod("one", [container("main", mem=1, cores=25)], snapshot), "7")


def at_version(pod: Json, version: str) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "resourceVersion": version}}


def test_a_pod_that_changed_is_read_again(pod: Json) -> None:
    held = HeldCus()
    assert held.of(pod) == {GPU: frozenset(range(76))}
    assert held.of(dict(pod)) is held.of(pod)
    changed = at_version(with_notes(pod, amd_cu_allocated=f'{{"{GPU}":"0-9"}}'), "8")
    assert held.of(changed) == {GPU: frozenset(range(10))}
    assert held.of(at_version({**pod, "status": {"phase": "Failed"}}, "9")) == {}


def test_pods_that_are_gone_are_forgotten(pod: Json) -> None:
    held = HeldCus()
    before = held.of(pod)
    held.keep_only([pod])
    assert held.of(pod) is before
    held.keep_only([])
    assert held.of(pod) is not before


def test_a_pod_that_says_nothing_readable_holds_nothing_here(pod: Json) -> None:
    assert read_cus(with_notes(pod, amd_cu_allocated="garbage")) == {}
    assert read_cus({**pod, "spec": {"containers": [{"name": "main"}]}}) == {}
