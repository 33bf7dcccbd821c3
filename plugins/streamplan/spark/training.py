"""A script for spark-submit that loads the classes an aggregator needs, for ``class_archive.py``.

It does a little of everything that an aggregator does with Spark. Its argument is the directory of a checkpoint. The
classes of Spark's Kafka connector are not loaded: they are given by ``--jars``, and cannot be archived.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.session import open_session
from streamplan.spark.sink.writers import identity


def main(checkpoint: str) -> None:
    """Run a stateful query twice, with its checkpoint in this directory."""
    spark = open_session("class archive")
    try:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        rows = rows.withColumn("value", F.from_json(F.format_string('{"value": %d}', "value"), "value long").value)
        counts = rows.groupBy((F.col("value") % 2).alias("key")).agg(F.count("*").alias("count"))

        def write(batch: DataFrame, number: int) -> None:
            placed = batch.unionByName(batch.limit(0)).repartitionById(2, F.col("key").cast("int"))
            map_in_arrow(placed.sortWithinPartitions("count"), identity, "key long, count long").collect()

        spark.conf.set("spark.sql.shuffle.partitions", 2)
        query = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint).foreachBatch(write)
        for _ in range(2):  # the second run finds a checkpoint
            query.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
