"""The plan of a micro-batch, built once and made again for each.

An expression built from Python is a call to the JVM for each of its parts: about a thousand for the changelog of a
count, of which most are the same every time. So the plan is built on a DataFrame that records what is done with it, and
what is recorded is done again with each micro-batch: one call for each step, with the expressions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, cast

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

_Any = TypeVar("_Any")
ArrowFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Watched:
    """A Java DataFrame, and the calls of its methods: name, arguments, result."""

    def __init__(self, java: Any, calls: list[tuple[str, tuple[Any, ...], Any]]) -> None:
        self._java, self._calls = java, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java, name)

        def call(*arguments: Any) -> Any:
            result = found(*arguments)
            self._calls.append((name, arguments, result))
            return result

        return call


class _Recorded:
    """Stands where a DataFrame is expected. ``model`` is a real one, asked for what is no DataFrame, as its schema."""

    def __init__(self, model: DataFrame, make: Callable[[Replay], DataFrame] | None = None) -> None:
        self.model = model
        self.make = make

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self.model, name)):
            return getattr(self.model, name)

        def step(*arguments: Any, **options: Any) -> Any:
            calls: list[tuple[str, tuple[Any, ...], Any]] = []
            watched = type(self.model)(_Watched(self.model._jdf, calls), self.model.sparkSession)
            model = getattr(watched, name)(*map(_model_of, arguments), **options)
            if not isinstance(model, DataFrame):
                return model
            if any(isinstance(one, Observation) for one in arguments):  # each is made anew
                calls.clear()
            method, given = next(((name, given) for name, given, made in calls if made is model._jdf), (None, ()))
            others = {id(one.model._jdf): one for one in arguments if isinstance(one, _Recorded)}

            def make(replay: Replay) -> DataFrame:
                own = replay.of(cast(DataFrame, self))
                if method is None:
                    return cast(DataFrame, getattr(own, name)(*map(replay.of, arguments), **options))
                now = (replay.of(others[id(one)])._jdf if id(one) in others else one for one in given)
                return type(own)(getattr(own._jdf, method)(*now), own.sparkSession)

            return _Recorded(model, make)

        return step


def record(model: DataFrame) -> DataFrame:
    """A DataFrame whose descendants can be made again. ``model`` has the schema of the micro-batches."""
    return cast(DataFrame, _Recorded(model))


class Replay:
    """What was made of ``recorded``, made of ``batch``; each once, however many are asked for."""

    def __init__(self, recorded: DataFrame, batch: DataFrame) -> None:
        self._made: dict[int, Any] = {id(recorded): batch}

    def of(self, one: _Any) -> _Any:
        """Of a recorded DataFrame the real one, of an Observation a new one, since it observes once; else ``one``."""
        if not isinstance(one, _Recorded | Observation):
            return one
        if id(one) not in self._made:
            if isinstance(one, Observation):
                self._made[id(one)] = Observation()
            else:
                assert one.make is not None, "recorded from another micro-batch"
                self._made[id(one)] = one.make(self)
        return cast(_Any, self._made[id(one)])


def map_in_arrow(data: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """As DataFrame.mapInArrow of PySpark, which loads pandas for it, and serializes the function with each replay."""
    column = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*data.columns)

    def applied(one: DataFrame) -> DataFrame:
        return type(one)(one._jdf.mapInArrow(column._jc, False, None), one.sparkSession)

    if isinstance(data, _Recorded):
        return cast(DataFrame, _Recorded(applied(data.model), lambda replay: applied(replay.of(data))))
    return applied(data)


def _model_of(one: Any) -> Any:
    return one.model if isinstance(one, _Recorded) else one
