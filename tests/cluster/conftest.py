"""The cluster that all tests of this folder share."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterUnavailable

FOLDER = Path(__file__).parent
REQUIRE = "REQUIRE_CLUSTER"
LOGS = "CLUSTER_LOGS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """One cluster for the session; where none can run, tests skip, or fail if REQUIRE_CLUSTER=1."""
    logs = os.environ.get(LOGS)
    cluster = Cluster(log_folder=Path(logs) if logs else None)
    try:
        # The first start may build for minutes, and its progress belongs on the terminal.
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            cluster.start()
    except ClusterUnavailable as reason:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"no cluster: {reason}", pytrace=False)
        pytest.skip(f"no cluster: {reason}")
    yield cluster
    cluster.stop()
