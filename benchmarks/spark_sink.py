"""The orders topology as Spark's documentation writes it: with Spark's own Kafka sink, which is at-least-once.

``bench.py`` runs it by spark-submit. Arguments: bootstrap servers, repartition topic, changelog topic, directory for
checkpoints.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def main() -> None:
    """Run both queries until one ends."""
    servers, repartition, changelog, checkpoints = sys.argv[1:5]
    spark = (
        SparkSession.builder.appName("orders on Spark's own sink")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def read(topic: str) -> DataFrame:
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 500_000)
            .load()
        )

    def write(data: DataFrame, topic: str, mode: str) -> None:
        (
            data.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("kafka.linger.ms", 5)
            .option("kafka.batch.size", 262_144)
            .option("kafka.compression.type", "lz4")
            .option("topic", topic)
            .option("checkpointLocation", f"{checkpoints}/{topic}")
            .outputMode(mode)
            .start()
        )

    order = F.from_json(F.col("value").cast("string"), "Id string, ProductType int")
    write(read("orders").select(order["ProductType"].cast("string").alias("key"), "value"), repartition, "append")
    counted = read(repartition).groupBy(F.col("key").cast("string").alias("key")).count()
    total = F.unhex(F.lpad(F.hex("count"), 16, "0"))
    write(counted.select("key", total.alias("value")), changelog, "update")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
