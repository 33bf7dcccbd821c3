"""A plan that few rows pass again and again. Spark analyzes it once for each number of rows.

The rows are a ``LocalRelation``: they lie in Spark's driver, and Spark computes most of the plan while it optimizes it.
Branches without rows are left out then. What is left to tasks is what needs Python, or a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamplan.spark.planning.compiled_plan import collect_in_arrow

_KEPT_UP_TO = 8
"""Of so many rows the analyzed plan is kept, which also keeps these rows until the next ones."""


class PreparedPlan:
    """What is done with rows of one schema.

    Args:
        example: A DataFrame of the schema; its rows are not read.
        build: The operations.
    """

    def __init__(self, example: DataFrame, build: Callable[[DataFrame], DataFrame]) -> None:
        self._spark: SparkSession = example.sparkSession
        self._columns = example._jdf.queryExecution().analyzed().output()
        self._build = build
        self._java = _Java(self._spark)
        self._analyzed: dict[int, tuple[Any, Any]] = {}

    def run(self, frame: DataFrame) -> list[pa.RecordBatch]:
        """Compute a DataFrame of the schema, once, and give its rows to the plan.

        Returns:
            The rows that the plan makes of them. Nothing is computed where there are no rows.
        """
        rows = frame._jdf.queryExecution().executedPlan().executeCollect()
        count = len(rows)
        if not count:
            return []
        place, analyzed = self._analyzed.get(count) or self._analyze(count)
        self._java.copy(rows, 0, place, 0, count)
        return collect_in_arrow(self._frame(analyzed))

    def _analyze(self, count: int) -> tuple[Any, Any]:
        place = self._java.array(count)
        relation = self._java.local_relation(self._columns, self._java.as_seq(place), False, self._java.no_stream)
        analyzed = self._build(self._frame(relation))._jdf.queryExecution().analyzed()
        if count <= _KEPT_UP_TO and analyzed.deterministic():  # else the analysis has chosen the seed of a uuid()
            self._analyzed[count] = place, analyzed
        return place, analyzed

    def _frame(self, plan: Any) -> DataFrame:
        return DataFrame(self._java.of_rows(self._spark._jsparkSession, plan), self._spark)


class _Java:
    """What is used of Spark's Java classes. To look one up takes the gateway a call for each part of its name."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        gateway: Any = spark.sparkContext._gateway
        catalyst, scala = jvm.org.apache.spark.sql.catalyst, jvm.scala
        self.local_relation = catalyst.plans.logical.LocalRelation
        self.as_seq = scala.collection.immutable.ArraySeq.unsafeWrapArray
        self.no_stream = scala.Option.empty()
        self.copy = jvm.java.lang.System.arraycopy
        self.of_rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows
        self.array = partial(gateway.new_array, catalyst.InternalRow)
