"""The plan of a micro-batch, compiled once and run with each micro-batch.

An expression that is built from Python costs one call to the JVM for each of its parts: about a thousand calls for the
changelog of a count, most of them the same for every micro-batch. So the plan is built once, on a stand-in for the
micro-batch (:func:`batch_template`) that records each step. A run repeats the steps with one call each, and uses the
expressions again.

This is the only module that touches PySpark's Java DataFrames (``_jdf``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.ticks import TICKS

_Argument = TypeVar("_Argument")
_JavaCall: TypeAlias = tuple[str, tuple[Any, ...], Any]
"""Method, arguments and result."""


@dataclass(frozen=True)
class CompiledBatchPlan:
    """What is done with each micro-batch.

    ``template``  the stand-in for the micro-batch, from :func:`batch_template`
    ``rows``      what was made of the stand-in
    """

    template: DataFrame
    rows: DataFrame

    def run(self, batch: DataFrame) -> BatchRun:
        """Apply the steps to a micro-batch, which has the schema of the template. Spark computes nothing yet."""
        return BatchRun(self, batch)


class BatchRun:
    """A compiled plan applied to one micro-batch. Each step is made once, however many others use it."""

    def __init__(self, plan: CompiledBatchPlan, batch: DataFrame) -> None:
        self._plan = plan
        self._results: dict[int, Any] = {id(plan.template): batch}

    @property
    def rows(self) -> DataFrame:
        """The result of the plan."""
        return self.of(self._plan.rows)

    def of(self, argument: _Argument) -> _Argument:
        """Return what stands in this run for an argument of a step.

        For a recorded DataFrame that is the real one. For an Observation it is a new one, since each observes one query
        only. Every other argument stands for itself.
        """
        if not isinstance(argument, _RecordingFrame | Observation):
            return argument
        if id(argument) not in self._results:
            if isinstance(argument, Observation):
                self._results[id(argument)] = Observation()
            else:
                assert argument.build is not None, "recorded from another template"
                self._results[id(argument)] = argument.build(self)
        return cast(_Argument, self._results[id(argument)])


def batch_template(empty: DataFrame) -> DataFrame:
    """Return a stand-in for the micro-batches, on which their plan is built.

    Args:
        empty: A DataFrame without rows and with the schema of the micro-batches.
    """
    return cast(DataFrame, _RecordingFrame(empty))


def compile_batch_plan(template: DataFrame, rows: DataFrame) -> CompiledBatchPlan:
    """Compile what was made of a template.

    Args:
        template: From :func:`batch_template`.
        rows: Made of ``template`` by methods of DataFrames and by :func:`map_in_arrow`.
    """
    return CompiledBatchPlan(template, rows)


def map_in_arrow(data: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Apply a function to the Arrow batches of a DataFrame.

    ``DataFrame.mapInArrow`` of PySpark does the same, but it imports pandas, and it would serialize the function with
    each run of a compiled plan.
    """
    column = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*data.columns)

    def apply(frame: DataFrame) -> DataFrame:
        return type(frame)(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)

    if isinstance(data, _RecordingFrame):
        return cast(DataFrame, _RecordingFrame(apply(data.sample), lambda run: apply(run.of(data))))
    return apply(data)


def collect_in_arrow(data: DataFrame) -> list[pa.RecordBatch]:
    """Return all rows of a DataFrame, in the order of its partitions.

    ``DataFrame.toArrow`` does the same, and asks Spark for the schema each time. An error is raised unless the rows of
    every partition have come: their order is told at the end.
    """
    batches: list[pa.RecordBatch] = cast(Any, data)._collect_as_arrow()
    return batches


def is_deterministic(data: DataFrame) -> bool:
    """Return whether a DataFrame has the same rows each time it is computed, as far as Spark knows.

    Args:
        data: Any DataFrame. Python functions count as deterministic.
    """
    sample = data.sample if isinstance(data, _RecordingFrame) else data
    return bool(sample._jdf.queryExecution().analyzed().deterministic())


def analyzed_expressions(data: DataFrame) -> list[Any]:
    """Return the expressions of the last step of a plan, with what Spark knows of their types, as objects of its JVM.

    Raises:
        PySparkException: Spark refuses one.
    """
    expressions: Any = data._jdf.queryExecution().analyzed().expressions()
    return [expressions.apply(number) for number in range(expressions.size())]


def subscribed_topics(streaming: DataFrame) -> list[str]:
    """Return the topic of each source of a streaming plan, in the order of the lines of Spark's offset log.

    A plan that takes several ways from one topic has a line for each. :data:`TICKS` stands for the source of ticks.
    """
    leaves: Any = streaming._jdf.queryExecution().analyzed().collectLeaves()
    relations = [leaves.apply(number) for number in range(leaves.size())]
    sources = [relation for relation in relations if relation.getClass().getSimpleName() == "StreamingRelationV2"]
    return [str(source.extraOptions().getOrDefault("subscribe", TICKS)) for source in sources]


class _RecordingFrame:
    """Stands where a DataFrame is expected, and records how it was made.

    ``sample``  a real DataFrame of the same steps, without rows. It answers what is not a DataFrame, such as the schema
    ``build``   makes the DataFrame of one run; None for the micro-batch itself
    """

    def __init__(self, sample: DataFrame, build: Callable[[BatchRun], DataFrame] | None = None) -> None:
        self.sample = sample
        self.build = build

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.sample, name)
        if not callable(attribute):
            return attribute

        def step(*arguments: Any, **options: Any) -> Any:
            calls: list[_JavaCall] = []
            recorder = type(self.sample)(_JavaRecorder(self.sample._jdf, calls), self.sample.sparkSession)
            sample = getattr(recorder, name)(*map(_sample_of, arguments), **options)
            if not isinstance(sample, DataFrame):
                return sample
            if any(isinstance(argument, Observation) for argument in arguments):  # each run has its own
                calls.clear()
            method, given = next(((name, given) for name, given, result in calls if result is sample._jdf), (None, ()))
            others = {id(other.sample._jdf): other for other in arguments if isinstance(other, _RecordingFrame)}

            def build(run: BatchRun) -> DataFrame:
                frame = run.of(cast(DataFrame, self))
                if method is None:
                    return cast(DataFrame, getattr(frame, name)(*map(run.of, arguments), **options))
                current = (run.of(others[id(java)])._jdf if id(java) in others else java for java in given)
                return type(frame)(getattr(frame._jdf, method)(*current), frame.sparkSession)

            return _RecordingFrame(sample, build)

        return step


class _JavaRecorder:
    """A Java DataFrame that notes each call of its methods in ``calls``."""

    def __init__(self, java: Any, calls: list[_JavaCall]) -> None:
        self._java, self._calls = java, calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._java, name)

        def call(*arguments: Any) -> Any:
            result = method(*arguments)
            self._calls.append((name, arguments, result))
            return result

        return call


def _sample_of(argument: Any) -> Any:
    return argument.sample if isinstance(argument, _RecordingFrame) else argument
