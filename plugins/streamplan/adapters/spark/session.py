"""The Spark session of the jobs."""

from __future__ import annotations

from pyspark.sql import SparkSession

SPARK_CONFIGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # as JSON is
}


def open_session(name: str) -> SparkSession:
    """The session that spark-submit prepared, with what the state stores and Arrow batches need."""
    builder = SparkSession.builder.appName(name)
    for config, value in SPARK_CONFIGS.items():
        builder = builder.config(config, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")  # at INFO every micro-batch logs a page
    return spark
