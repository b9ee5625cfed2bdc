from pathlib import Path

import pytest

from plugin.podresources import KubeletShare, PodResourcesError, kubelet_shares
from tests.plugin.standin_podresources import serving


async def test_shares_are_read_over_all_numa_nodes(kubelet_dir: Path) -> None:
    share = KubeletShare("ml", "train", "main", frozenset({"x-1", "x-2", "x-3"}))
    async with serving(kubelet_dir / "s") as kubelet:
        kubelet.shares = [share]
        assert await kubelet_shares(kubelet_dir / "s") == (share,)
        kubelet.resource = "example.com/other"
        assert await kubelet_shares(kubelet_dir / "s") == ()


async def test_a_full_nodes_answer_fits(kubelet_dir: Path) -> None:
    ids = frozenset(f"GPU-8e1bb56457addd1b-{number}" for number in range(1000))
    async with serving(kubelet_dir / "s") as kubelet:
        kubelet.shares = [KubeletShare("ml", f"pod-{number}", "main", ids) for number in range(250)]
        assert len(await kubelet_shares(kubelet_dir / "s")) == 250


async def test_a_kubelet_that_is_away(kubelet_dir: Path) -> None:
    with pytest.raises(PodResourcesError, match="UNAVAILABLE"):
        await kubelet_shares(kubelet_dir / "s")
