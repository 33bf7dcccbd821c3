"""The plan of a micro-batch, built once and made again for each.

An expression built from Python is a call to the JVM for each of its parts: about a thousand for the changelog of a
count, of which most are the same every time. So the plan is built on a DataFrame that records what is done with it, and
what is recorded is done again with each micro-batch: a call or two for each step, with the expressions there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from pyspark.sql import DataFrame, Observation

_Any = TypeVar("_Any")


class _Recorded:
    """Stands where a DataFrame is expected. ``model`` is a real one, asked for what is no DataFrame, as its schema."""

    def __init__(self, model: DataFrame, make: Callable[[Replay], DataFrame] | None = None) -> None:
        self.model = model
        self.make = make

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.model, name)
        if not callable(found):
            return found

        def step(*arguments: Any, **options: Any) -> Any:
            model = found(*map(_model_of, arguments), **options)
            if not isinstance(model, DataFrame):
                return model
            return _Recorded(
                model,
                lambda replay: getattr(replay.of(cast(DataFrame, self)), name)(*map(replay.of, arguments), **options),
            )

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


def _model_of(one: Any) -> Any:
    return one.model if isinstance(one, _Recorded) else one
