"""What the tests on a node share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.kubernetes.cluster import Cluster, missing, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(why)
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
