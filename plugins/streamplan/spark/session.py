"""The Spark session of the jobs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from streamplan.spark.arrow_without_pandas import use_arrow_without_pandas
from streamplan.spark.state_variables import answer_in_driver
from streamplan.spark.submit import spark_submit_configs, submit_environment

SPARK_CONFIGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",  # for streamplan.spark.noted_records
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # as JSON is
}

_LOCAL_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"

_LOCAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def open_session(name: str) -> SparkSession:
    """Open the session that spark-submit prepared, with what the state stores and Arrow batches need.

    Args:
        name: The name of the Spark application.
    """
    builder = SparkSession.builder.appName(name)
    for config, value in SPARK_CONFIGS.items():
        builder = builder.config(config, value)
    spark = builder.getOrCreate()
    use_arrow_without_pandas()
    answer_in_driver(spark)
    spark.sparkContext.setLogLevel("WARN")  # at INFO each micro-batch logs a page
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they log each error with its stack
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return spark


@contextmanager
def local_session(name: str, *, master: str = "local[1]", jars: Iterable[Path] = ()) -> Iterator[SparkSession]:
    """Open a session on this machine. Another session of this process would be used and stopped.

    Args:
        name: The name of the Spark application.
        master: Spark's master; the default is for few records.
        jars: Spark's Kafka connector, where the session reads topics.

    Raises:
        StreamplanError: This machine has no fit Java or no PySpark.
    """
    os.environ.update(submit_environment(os.environ, local=True))
    configs = {**spark_submit_configs(master), "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    configs["spark.jars"] = ",".join(map(str, jars))
    SparkSession.builder.master(master).config(map=dict(configs)).getOrCreate()
    spark = open_session(name)
    try:
        yield spark
    finally:
        spark.stop()


def keep_checkpoints_cheaply(spark: SparkSession, location: str) -> None:
    """Let Spark write checkpoints on a local disk without starting processes.

    Hadoop has a native library for files, which PySpark does not have. Without it, Hadoop starts ``chmod`` for each
    file that it creates and ``readlink`` for each that it renames: about 20 processes in each micro-batch. The
    implementation that is set here asks Java instead. Its renames are as atomic: rename(2).

    Args:
        spark: The session of the queries.
        location: The path or URI of the checkpoints. On other file systems than a local one nothing is changed.
    """
    if urlsplit(location).scheme not in ("", "file"):
        return  # there a rename may not overwrite a file, and Spark's default takes care of it
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_LOCAL_FILES):
        return
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", _LOCAL_MANAGER)
    hadoop = spark._jsc.hadoopConfiguration()
    hadoop.set("fs.file.impl", _LOCAL_FILES)
    hadoop.set("fs.file.impl.disable.cache", "true")  # Hadoop cached its own before the jars were known


_WORTH_CODE = 50_000
"""From this many records on, a micro-batch gains more by generated code than it costs.

It gains 2.2 us for each record and costs 0.1 s for each micro-batch.
"""


def generate_code(spark: SparkSession, whether: bool) -> None:
    """Let Spark generate Java code for the stages that it plans from now on, or interpret them.

    Spark keeps compiled code, but it makes the text of the code anew for each task, to look it up.
    """
    spark.conf.set("spark.sql.codegen.wholeStage", whether)
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if whether else "NO_CODEGEN")


@dataclass
class AdaptiveCodegen:
    """Generates code for the large micro-batches of one query.

    ``on``  what Spark was told last; None before the first micro-batch
    """

    on: bool | None = None

    def adjust(self, spark: SparkSession, records: int) -> None:
        """Turn code generation on or off for a micro-batch. Its stages that are planned already stay as they are.

        Args:
            spark: The query's own session.
            records: How many records the micro-batch has.
        """
        worth = records >= _WORTH_CODE
        if worth != self.on:
            generate_code(spark, worth)
            self.on = worth


LateSession: TypeAlias = SparkSession | Callable[[], SparkSession]
"""A session, or a function that starts one: it is called when everything that needs no Spark has been looked at."""


@contextmanager
def late_session(opened: AbstractContextManager[SparkSession]) -> Iterator[Callable[[], SparkSession]]:
    """Give a function that starts a session at its first call. The session is stopped in the end."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(opened))


def started(spark: LateSession) -> SparkSession:
    """Return the session, started."""
    return spark() if callable(spark) else spark
