import subprocess
import sys
from pathlib import Path

import pytest

from tests.trees import MACHINES, MadeGpu, describe, make_tree
from tests.trees.changes import bring_device_node, load_driver, take_device_node, unload_driver


def listing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_descriptions() -> None:
    assert describe(["mi300x-vf"]) == MACHINES["mi300x-vf"]
    assert describe(["2 x MI210", "RX 7900 XTX"]) == (MadeGpu("MI210"), MadeGpu("MI210"), MadeGpu("RX 7900 XTX"))


@pytest.mark.parametrize("word", ["", "MI999", "0 x MI210", "100 x MI210", "2 x mi300x-vf"])
def test_words_that_describe_nothing(word: str) -> None:
    with pytest.raises(ValueError, match=r"must be one of mi300x-spx, .*MI210"):
        describe([word])


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trees", str(tmp_path / "made"), "mi210-x8", "MI355X"]
    subprocess.run(command, check=True)
    assert len(list((tmp_path / "made/dev/dri").iterdir())) == 9
    refused = subprocess.run([*command[:-1], "MI999"], check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "'MI999': must be one of" in refused.stderr


def test_a_description_makes_the_same_tree_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_tree(tmp_path / name, MACHINES["mixed"])
    assert listing(tmp_path / "one") == listing(tmp_path / "two")
    properties = "sys/class/kfd/kfd/topology/nodes/2/properties"
    assert (tmp_path / "one" / properties).read_text() == (tmp_path / "two" / properties).read_text()


def test_changes_can_be_undone(tmp_path: Path) -> None:
    make_tree(tmp_path, MACHINES["mi300x-spx"])
    before = listing(tmp_path)
    unload_driver(tmp_path)
    assert not (tmp_path / "sys/class/kfd/kfd/topology").exists()
    assert not (tmp_path / "dev").exists()
    load_driver(tmp_path)
    assert listing(tmp_path) == before
    take_device_node(tmp_path, "dri/renderD128")
    assert not (tmp_path / "dev/dri/renderD128").exists()
    bring_device_node(tmp_path, "dri/renderD128")
    assert listing(tmp_path) == before
