"""Where the daemons and packages come from; needs no cluster."""

import os
from pathlib import Path

import pytest

from tests.cluster import binaries, build, packages
from tests.cluster.errors import ClusterError, ClusterUnavailable

NOT_THERE = {"zz-package": "zz-command", "yy-package": "/yy/file"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "ensure_packages", lambda _: None)
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("a test must not compile Kubernetes"))
    return tmp_path / "amd-vgpu"


def fake_daemons(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    for name in build.DAEMONS:
        (folder / name).write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        (folder / name).chmod(0o755)


def test_without_root_the_command_to_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    expected = r"sudo apt-get install --yes --no-install-recommends zz-package yy-package$"
    with pytest.raises(ClusterUnavailable, match=expected):
        packages.ensure_packages(NOT_THERE)


def test_present_packages_need_nothing(tmp_path: Path) -> None:
    packages.ensure_packages({"shell": "sh", "folder": str(tmp_path)})


def test_daemons_of_the_assets_folder_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "ensure_packages", lambda _: None)
    fake_daemons(tmp_path / "assets", "v1.31.4")
    fake_daemons(tmp_path / "path", "v1.22.0")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    found = binaries.find_binaries()
    assert (found.kubelet, found.minor) == (tmp_path / "assets" / "kubelet", 31)
    # An assets folder without a kubelet, as envtest makes it, is not enough.
    (tmp_path / "assets" / "kubelet").unlink()
    found = binaries.find_binaries()
    assert (found.kubelet, found.minor) == (tmp_path / "path" / "kubelet", 22)


def test_built_daemons_are_kept(cache: Path) -> None:
    fake_daemons(build.built_folder(), "v1.20.2")
    assert build.build() == build.built_folder()
    assert cache in build.built_folder().parents


def test_failed_build_leaves_nothing_half_done(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(scratch: Path, log: Path) -> Path:
        (scratch / "half").mkdir()
        raise ClusterError(f"no network, see {log}")

    (cache / "build-killed").mkdir(parents=True)
    monkeypatch.setattr(build, "_fetch_source", fail)
    with pytest.raises(ClusterUnavailable, match="no network"):
        build.build()
    assert not build.is_built()
    assert [entry.name for entry in cache.iterdir() if entry.is_dir()] == []
