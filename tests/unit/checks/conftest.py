from __future__ import annotations

import pytest

from tests.support.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()
