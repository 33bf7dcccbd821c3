"""The orders application whose topics exist, for the tests of its aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.support.orders_application import Application


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Application]:
    made = Application(bootstrap_servers, tmp_path / "checkpoints", spark)
    made.create_topics()
    yield made
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([spec.name for spec in made.pipeline.topics()]).values():
        future.exception(120)
