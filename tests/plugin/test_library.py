from pathlib import Path

import pytest

from plugin.library import LibraryError, install_library


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "image.so"
    path.write_bytes(b"first")
    return path


def test_installs_read_only_and_executable(tmp_path: Path, source: Path) -> None:
    install_library(source, tmp_path / "host/vgpu")
    target = tmp_path / "host/vgpu/libamvgpu.so"
    assert target.read_bytes() == b"first"
    assert target.stat().st_mode & 0o777 == 0o555
    assert list(target.parent.iterdir()) == [target]


def test_a_new_library_is_a_new_file(tmp_path: Path, source: Path) -> None:
    """Running containers have the old one mapped: changed in place, it would crash them."""
    install_library(source, tmp_path)
    target = tmp_path / "libamvgpu.so"
    with target.open("rb") as mapped:
        source.write_bytes(b"second, longer")
        install_library(source, tmp_path)
        assert mapped.read() == b"first"
    assert target.read_bytes() == b"second, longer"


def test_the_same_library_is_left_alone(tmp_path: Path, source: Path) -> None:
    install_library(source, tmp_path)
    before = (tmp_path / "libamvgpu.so").stat()
    install_library(source, tmp_path)
    after = (tmp_path / "libamvgpu.so").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_library_that_containers_may_not_read_is_replaced(tmp_path: Path, source: Path) -> None:
    install_library(source, tmp_path)
    target = tmp_path / "libamvgpu.so"
    target.chmod(0o400)
    install_library(source, tmp_path)
    assert target.stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), (b"", "is empty")])
def test_a_missing_library_is_said(tmp_path: Path, content: bytes | None, message: str) -> None:
    source = tmp_path / "image.so"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(LibraryError, match=message):
        install_library(source, tmp_path / "host")
    assert not (tmp_path / "host").exists()


def test_a_failure_leaves_no_temporary_file(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("plugin.files.os.fsync", fail)
    with pytest.raises(LibraryError, match="No space left"):
        install_library(source, tmp_path / "host")
    assert list((tmp_path / "host").iterdir()) == []
