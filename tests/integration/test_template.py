"""A recorded plan, made again of other rows, gives what the same steps give on those rows directly."""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from streamplan.adapters.spark.template import Replay, record

SCHEMA = "key string, n bigint"


def rows(data: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in data.collect())


def test_each_batch_goes_through_the_recorded_steps(spark: SparkSession) -> None:
    model = record(spark.createDataFrame([], SCHEMA))
    doubled = model.where("n > 1").select("key", (F.col("n") * 2).alias("n"))
    both = doubled.unionByName(model.withColumn("n", -F.col("n")))
    assert both.columns == ["key", "n"]
    for data in ([("a", 1), ("b", 2)], [("c", 3)], []):
        batch = spark.createDataFrame(data, SCHEMA)
        expected = [(key, 2 * n) for key, n in data if n > 1] + [(key, -n) for key, n in data]
        assert rows(Replay(model, batch).of(both)) == sorted(expected)


def test_what_two_steps_share_is_made_once(spark: SparkSession) -> None:
    model = record(spark.createDataFrame([], SCHEMA))
    shared = model.withColumn("n", F.col("n") + 1)
    one, other = shared.where("n > 1"), shared.where("n <= 1")
    replay = Replay(model, spark.createDataFrame([("a", 1)], SCHEMA))
    assert replay.of(shared) is replay.of(shared)
    assert rows(replay.of(one)) == [("a", 2)]
    assert rows(replay.of(other)) == []


def test_an_observation_observes_each_batch_anew(spark: SparkSession) -> None:
    model = record(spark.createDataFrame([], SCHEMA))
    recorded = Observation()
    observed = model.observe(recorded, F.sum("n").alias("sum"))
    for number in (3, 4):
        replay = Replay(model, spark.createDataFrame([("a", number)], SCHEMA))
        replay.of(observed).collect()
        assert replay.of(recorded).get == {"sum": number}
