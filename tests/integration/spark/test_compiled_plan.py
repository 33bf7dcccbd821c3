"""A compiled plan, run with other rows, gives what the same steps give on those rows directly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from streamplan.kafka.brokers import Brokers
from streamplan.model.generation import Generation
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.planning.compiled_plan import batch_template, compile_batch_plan, map_in_arrow
from streamplan.spark.sink.spec import TransactionSpec
from streamplan.spark.sink.writers import MICRO_BATCH, for_each_micro_batch, micro_batch_as_text

SCHEMA = "key string, n bigint"


def rows(data: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in data.collect())


def test_each_batch_goes_through_the_recorded_steps(spark: SparkSession) -> None:
    template = batch_template(spark.createDataFrame([], SCHEMA))
    doubled = template.where("n > 1").select("key", (F.col("n") * 2).alias("n"))
    both = doubled.unionByName(template.withColumn("n", -F.col("n")))
    assert both.columns == ["key", "n"]
    for data in ([("a", 1), ("b", 2)], [("c", 3)], []):
        batch = spark.createDataFrame(data, SCHEMA)
        expected = [(key, 2 * n) for key, n in data if n > 1] + [(key, -n) for key, n in data]
        assert rows(compile_batch_plan(template, both).run(batch).rows) == sorted(expected)


def test_what_two_steps_share_is_made_once(spark: SparkSession) -> None:
    template = batch_template(spark.createDataFrame([], SCHEMA))
    shared = template.withColumn("n", F.col("n") + 1)
    one, other = shared.where("n > 1"), shared.where("n <= 1")
    run = compile_batch_plan(template, one).run(spark.createDataFrame([("a", 1)], SCHEMA))
    assert run.of(shared) is run.of(shared)
    assert rows(run.of(one)) == [("a", 2)]
    assert rows(run.of(other)) == []


def test_an_observation_observes_each_batch_anew(spark: SparkSession) -> None:
    template = batch_template(spark.createDataFrame([], SCHEMA))
    recorded = Observation()
    observed = template.observe(recorded, F.sum("n").alias("sum"))
    for number in (3, 4):
        run = compile_batch_plan(template, observed).run(spark.createDataFrame([("a", number)], SCHEMA))
        run.of(observed).collect()
        assert run.of(recorded).get == {"sum": number}


def test_a_function_is_applied_to_each_batch_as_map_in_arrow_does(spark: SparkSession) -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.set_column(1, "n", pc.multiply(batch["n"], 2))

    template = batch_template(spark.createDataFrame([], SCHEMA))
    applied = map_in_arrow(template.where("n > 0"), doubled, SCHEMA)
    for data in ([("a", 1), ("b", 2)], [("c", 3)]):
        batch = spark.createDataFrame(data, SCHEMA)
        assert (
            rows(compile_batch_plan(template, applied).run(batch).rows)
            == rows(batch.mapInArrow(doubled, SCHEMA))
            == [(key, 2 * n) for key, n in data]
        )


def test_a_writer_is_told_the_ranges_of_the_micro_batch_by_its_job(spark: SparkSession) -> None:
    def told(target: TransactionSpec) -> ArrowFunction:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"key": [repr(target.ranges)], "n": [sum(map(len, batches))]})

        return write

    empty = TransactionSpec(Brokers(""), "an-application", Generation(1, "a"), 1, 0, {}, (), "", 1)
    template = batch_template(spark.createDataFrame([], SCHEMA))
    applied = map_in_arrow(template, for_each_micro_batch(empty, told), SCHEMA)
    batch = spark.createDataFrame([("a", 1)], SCHEMA).coalesce(1)
    for until in (5, 7):
        now = replace(empty, ranges={("a topic", 3): (0, until)})
        spark.sparkContext.setLocalProperty(MICRO_BATCH, micro_batch_as_text(now))
        assert rows(compile_batch_plan(template, applied).run(batch).rows) == [(f"{{('a topic', 3): (0, {until})}}", 1)]
