import os
import stat
from pathlib import Path

import pytest

from plugin.podfolders import make_region, pods_with_folder, region_path, remove_folder
from protocol.allocation import AllocationError


def test_any_user_of_the_container_can_write_to_its_account_and_no_user_of_the_host_reaches_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = region_path(tmp_path / "run", "uid-one", "main")
        make_region(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]


def test_an_account_that_is_there_stays(tmp_path: Path) -> None:
    """The kubelet asks again, and a container starts again: its file may be in use."""
    path = region_path(tmp_path, "uid-one", "main")
    make_region(path)
    path.write_text("counts")
    before = path.stat().st_ino
    make_region(path)
    assert (path.read_text(), path.stat().st_ino) == ("counts", before)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    path = region_path(tmp_path, "uid-one", "main")
    path.parent.mkdir(parents=True)
    (tmp_path / "victim").write_text("")
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        make_region(path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "x" * 300, "a\nb"])
def test_names_that_are_no_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AllocationError, match="its container name"):
        region_path(tmp_path, "uid-one", name)
    with pytest.raises(AllocationError, match="its uid"):
        region_path(tmp_path, name, "main")


def test_a_folder_goes_with_all_that_is_in_it_and_no_other(tmp_path: Path) -> None:
    for uid in ("uid-one", "uid-two"):
        make_region(region_path(tmp_path, uid, "main"))
    with region_path(tmp_path, "uid-one", "main").open() as in_use:
        remove_folder(tmp_path, "uid-one")
        assert os.fstat(in_use.fileno()).st_nlink == 0
    assert pods_with_folder(tmp_path) == {"uid-two"}
    remove_folder(tmp_path, "uid-one")


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert pods_with_folder(tmp_path / "run") == frozenset()
