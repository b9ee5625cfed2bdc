"""Where the daemons and packages come from; needs no cluster."""

import os
from pathlib import Path

import pytest

from tests.cluster import binaries, build, debian_source, go_modules, packages
from tests.cluster.errors import ClusterError, ClusterUnavailable

NOT_THERE = {"zz-package": "zz-command", "yy-package": "/yy/file"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(debian_source, "ensure_packages", lambda _: None)
    for source in (debian_source, go_modules):
        monkeypatch.setattr(source, "run_logged", lambda *_, **__: pytest.fail("a test must not compile Kubernetes"))
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


@pytest.mark.parametrize("release", binaries.RELEASES.values(), ids=binaries.RELEASES)
def test_built_daemons_are_kept(cache: Path, release: build.Release) -> None:
    fake_daemons(release.folder, f"v{release.version}")
    assert release.build() == release.folder
    assert cache in release.folder.parents


@pytest.mark.usefixtures("cache")
def test_a_release_is_named_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "ensure_packages", lambda _: None)
    monkeypatch.delenv("KUBERNETES", raising=False)
    for release in binaries.RELEASES.values():
        fake_daemons(release.folder, f"v{release.version}")
    assert (binaries.find_binaries().minor, binaries.find_binaries("1.35").minor) == (20, 35)
    monkeypatch.setenv("KUBERNETES", "1.35")
    assert binaries.find_binaries().minor == 35
    monkeypatch.setenv("KUBERNETES", "1.7")
    with pytest.raises(ClusterUnavailable, match=r"KUBERNETES=1\.7: must be one of 1\.20, 1\.35"):
        binaries.find_binaries()


@pytest.mark.usefixtures("cache")
def test_an_old_go_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterUnavailable, match=r"Go 1\.25 or newer, which is not in PATH"):
        go_modules.RELEASE.build()


def test_failed_build_leaves_nothing_half_done(cache: Path) -> None:
    def fail(scratch: Path, log: Path) -> Path:
        (scratch / "half").mkdir()
        raise ClusterError(f"no network, see {log}")

    (cache / "build-killed").mkdir(parents=True)
    release = build.Release("1.99.0", 1, fail)
    with pytest.raises(ClusterUnavailable, match="no network"):
        release.build()
    assert not release.is_built
    assert [entry.name for entry in cache.iterdir() if entry.is_dir()] == []
