"""What the tests of TopologyTestDriver share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.local.jars import KAFKA_STREAMS_TEST_UTILS
from streamplan.spark.session import generate_code
from streamplan.testing import memory_query

from tests.support.streams_library import java_with_callbacks


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks(KAFKA_STREAMS_TEST_UTILS) as jvm:
        yield jvm


@pytest.fixture
def compiled_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Spark compile the plans of a test, as those of large micro-batches. The driver has them interpreted.

    Spark also computes nothing while it optimizes a plan.
    """
    excluded, sessions = "spark.sql.optimizer.excludedRules", list[SparkSession]()

    def compile_plans(spark: SparkSession, _: bool) -> None:
        generate_code(spark, whether=True)
        spark.conf.set(excluded, "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation")
        sessions.append(spark)

    monkeypatch.setattr(memory_query, "generate_code", compile_plans)
    yield
    for spark in sessions:
        spark.conf.unset(excluded)
