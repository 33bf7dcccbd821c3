"""A stream task whose records a Python class processes, with the state variables in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from pyspark.sql import Row
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import AggregateFunction, Process, ReduceFunction
from streamplan.model.processor import Processor
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.spark.planning.process_state import AggregateFunctionState, ProcessState, RestoredProcessState

from tests.support.join_task import Map, Variable

VALUE = Json("n bigint")


class Arrived(NamedTuple):
    """A record. ``offset`` is its place in the topic; None for ``n`` is a null value.

    ``data``  its value in bytes, where that is more than ``n``
    """

    key: str | None
    at: int
    n: int | None
    offset: int
    data: bytes | None = None


class Rows(Map):
    """A map state whose values are rows."""

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.content[key] = value


class Variables:
    """What a task keeps from one micro-batch to the next."""

    def __init__(self) -> None:
        self.maps: dict[str, Rows] = {}
        self.variables: dict[str, Variable] = {}

    def getMapState(self, name: str, *_: Any) -> Rows:
        return self.maps.setdefault(name, Rows())

    def getValueState(self, name: str, *_: Any) -> Variable:
        return self.variables.setdefault(name, Variable())


class Made(NamedTuple):
    """What the class has given: a value, or why it has failed."""

    key: str
    at: int
    value: Any
    reason: str | None


class ProcessTask:
    """A stream task.

    ``changelog``  the last record of each key: its value, and its time
    ``changes``    all changes: keys and values in bytes, and their times
    """

    def __init__(
        self,
        processor: type[Processor],
        state: str,
        fields: str,
        *,
        timer: str | None = None,
        ttl: str | None = None,
        value: Json = VALUE,
    ) -> None:
        function = PythonFunction(processor.__qualname__, processor)
        columns = [tuple(Json(schema).fields.items()) for schema in (state, fields)]
        self._begin(Process(function, "store", *columns, timer, ttl), ProcessState, value)

    @classmethod
    def reducing(cls, reducer: Callable[..., Any], value: Json = VALUE) -> Self:
        """A task that reduces the values of each key."""
        fields = tuple(value.fields.items())
        function = PythonFunction(reducer.__qualname__, reducer)
        return cls._aggregating(ReduceFunction(function, "store", fields, fields), value)

    @classmethod
    def aggregating(cls, initializer: Callable[..., Any], aggregator: Callable[..., Any], schema: str) -> Self:
        """A task that aggregates the records of each key."""
        fields = tuple(Json(schema).fields.items())
        functions = [PythonFunction(each.__qualname__, each) for each in (initializer, aggregator)]
        return cls._aggregating(
            AggregateFunction(functions[1], "store", fields, fields, initializer=functions[0]), VALUE
        )

    @classmethod
    def _aggregating(cls, operation: Process, value: Json) -> Self:
        task = cls.__new__(cls)
        task._begin(operation, AggregateFunctionState, value)
        return task

    def _begin(self, operation: Process, of_task: type[ProcessState], value: Json) -> None:
        self.operation, self._of_task, self._value = operation, of_task, value
        self.changelog: dict[str, tuple[dict[str, Any] | None, int]] = {}
        self.changes: list[tuple[bytes, bytes | None, int]] = []
        self._lose_state()

    def process(self, records: Iterable[Arrived]) -> list[Made]:
        """Process a micro-batch."""
        state = self._of_task(self.operation, self._value, STRING, sweeps=True)
        state.init(self._variables)  # type: ignore[arg-type]
        made = []
        for row in map(Row.asDict, state.handleInputRows((0,), iter(map(_row, records)), None)):
            if (key := row.get("stored_key")) is not None:
                value = row["stored_value"]
                self.changelog[key.decode()] = (None if value is None else json.loads(value), row["at"])
                self.changes.append((key, value, row["at"]))
            else:
                made.append(Made(row["record"]["key"], row["at"], row.get("fields"), row.get("reason")))
        return made

    def restore(self) -> None:
        """Lose the state, and read it from the changelog."""
        self._lose_state()
        state = RestoredProcessState(self.operation, self._value, STRING, sweeps=False)
        state.init(self._variables)  # type: ignore[arg-type]
        rows = [
            Row(key=key.encode(), at=at, value=json.dumps(value).encode())
            for key, (value, at) in self.changelog.items()
            if value is not None
        ]
        if rows:
            list(state.handleInputRows((0,), iter(rows), None))

    @property
    def stored(self) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """What the state has of each key."""
        return self._variables.maps["values"].content

    def _lose_state(self) -> None:
        self._variables = Variables()


def _row(record: Arrived) -> Row:
    key = None if record.key is None else record.key.encode()
    value = record.data or (None if record.n is None else json.dumps({"n": record.n}).encode())
    place = {"partition_time": None, "topic": "t", "partition": 0, "offset": record.offset, "order": []}
    read = {"key": record.key, "original_key": key, "value": value, "headers": None, "reason": None}
    return Row(partition=0, at=record.at, key=key, value=None, record={**place, **read})


def in_micro_batches(records: list[Arrived], sizes: Iterator[int]) -> Iterator[list[Arrived]]:
    """The records in micro-batches of these sizes."""
    left = records
    while left:
        size = next(sizes)
        yield left[:size]
        left = left[size:]
