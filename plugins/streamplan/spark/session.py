"""The Spark session of the jobs."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamplan.spark.planning.compiled_plan import ArrowFunction, map_in_arrow

SPARK_CONFIGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # as JSON is
}

_LOCAL_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"

_LOCAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def open_session(name: str) -> SparkSession:
    """The session that spark-submit prepared, with what the state stores and Arrow batches need."""
    builder = SparkSession.builder.appName(name)
    for config, value in SPARK_CONFIGS.items():
        builder = builder.config(config, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")  # at INFO every micro-batch logs a page
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they log each fault with its stack
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return spark


def keep_checkpoints_cheaply(spark: SparkSession, location: str) -> None:
    """For checkpoints on a local disk, write files without starting processes.

    Without its native library, which PySpark does not have, Hadoop calls ``chmod`` for each file that it makes and
    ``readlink`` for each that it renames: some 20 processes a micro-batch. The other implementation asks Java. Renames
    are as atomic as before: rename(2).
    """
    if urlsplit(location).scheme not in ("", "file"):
        return  # on others a rename does not overwrite: Spark's default knows them
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_LOCAL_FILES):
        return
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", _LOCAL_MANAGER)
    hadoop = spark._jsc.hadoopConfiguration()
    hadoop.set("fs.file.impl", _LOCAL_FILES)
    hadoop.set("fs.file.impl.disable.cache", "true")  # Hadoop's own is there since before the jars were known


_WORTH_CODE = 50_000
"""Records of a micro-batch for which generated code takes less than it costs: 2.2 us a record, 0.1 s a micro-batch."""


def generate_code(spark: SparkSession, whether: bool) -> None:
    """Whether Spark writes Java code for what comes, or interprets it; stages that are planned stay as they are.

    What was compiled is kept, but its text is made anew for each task, to look it up.
    """
    spark.conf.set("spark.sql.codegen.wholeStage", whether)
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if whether else "NO_CODEGEN")


@dataclass
class AdaptiveCodegen:
    """Of one query: for micro-batches of many records. ``on`` is None where it was not told yet."""

    on: bool | None = None

    def adjust(self, spark: SparkSession, records: int) -> None:
        """``spark`` is the query's own session. Stages of this micro-batch that are planned stay as they are."""
        worth = records >= _WORTH_CODE
        if worth != self.on:
            generate_code(spark, worth)
            self.on = worth


def start_python_workers(spark: SparkSession, function: ArrowFunction) -> None:
    """Start as many as will be needed, with the module of ``function`` loaded, while other things are done.

    It takes seconds, and this returns at once. A fault is left to the first micro-batch, which will meet it, too.
    """

    def start() -> None:
        count = spark.sparkContext.defaultParallelism
        with suppress(PySparkException, Py4JError, ConnectionError):
            map_in_arrow(spark.range(0, count, 1, count), function, "id long").collect()

    threading.Thread(target=start, name="start Python workers", daemon=True).start()
