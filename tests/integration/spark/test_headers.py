"""Headers on their way through Spark: what is handed to the sink is what Kafka's connector read."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType
from streamplan.spark.sink.writers import headers_of
from streamplan.spark.sources import raw_records

KAFKA = """key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    headers array<struct<key: string, value: binary>>"""
"""The columns of Spark's connector with ``includeHeaders``."""


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("trace", b"\x00\xff\xfe")],
        [("a", b""), ("a", None), ("", b"x" * 3000), ('quote " and \u00e9', b"{}")],
    ],
)
def test_headers_come_back_as_they_were(spark: SparkSession, headers: list[tuple[str, bytes | None]]) -> None:
    rows = [(None, None, "t", 0, 0, None, headers or None)]
    (batch,) = raw_records(spark.createDataFrame(rows, KAFKA)).select("headers").toArrow().to_batches()
    assert headers_of(batch["headers"][0]) == headers


def test_no_column_is_an_array(spark: SparkSession) -> None:
    """Arrow would look at each row again for each further row of a batch."""
    records = raw_records(spark.createDataFrame([], KAFKA))
    assert not [field.name for field in records.schema if isinstance(field.dataType, ArrayType)]
