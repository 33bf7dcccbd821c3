"""Starts Python workers before the first micro-batch needs them."""

from __future__ import annotations

import threading
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.planning.compiled_plan import map_in_arrow


def start_python_workers(spark: SparkSession, function: ArrowFunction) -> None:
    """Start Python workers, one for each task slot, in the background: each takes seconds to start.

    An error is left to the first micro-batch, which meets it too.

    Args:
        spark: Any session.
        function: Its module is imported by the workers.
    """

    def start() -> None:
        count = spark.sparkContext.defaultParallelism
        with suppress(PySparkException, Py4JError, ConnectionError):
            map_in_arrow(spark.range(0, count, 1, count), function, "id long").collect()

    threading.Thread(target=start, name="start Python workers", daemon=True).start()
