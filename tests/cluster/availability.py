"""Clusters for tests: where none can run, tests skip and say why, or fail if REQUIRE_CLUSTER=1."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterUnavailable

REQUIRE = "REQUIRE_CLUSTER"
LOGS = "CLUSTER_LOGS"


@contextmanager
def running_cluster(
    *, node: bool = True, kubernetes: str = "", apiserver_args: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Run a cluster for the time of the block; see `Cluster` for the arguments."""
    logs = os.environ.get(LOGS)
    folder = Path(logs) if logs else None
    cluster = Cluster(node=node, kubernetes=kubernetes, apiserver_args=apiserver_args, log_folder=folder)
    try:
        cluster.start()
    except ClusterUnavailable as reason:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"no cluster: {reason}", pytrace=False)
        pytest.skip(f"no cluster: {reason}")
    try:
        yield cluster
    finally:
        cluster.stop()
