"""The cluster that all tests of this folder share."""

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from tests.cluster.availability import running_cluster
from tests.cluster.cluster import Cluster

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """One cluster for the session."""
    with ExitStack() as stack:
        # The first start may build for minutes, and its progress belongs on the terminal.
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            cluster = stack.enter_context(running_cluster())
        yield cluster
