"""The state of a stream task that aggregates a grouped table: values come into the groups of their keys, and go.

Sources: ``KTableAggregate`` and ``KTableReduce`` of Kafka Streams 4.3, with the record cache that a store has unless it
is turned off: what is removed from a store that does not have it is not passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamplan.model.operations import Process, TableAggregate, TableCount, TableReduce
from streamplan.model.processor import Record
from streamplan.serdes.primitive import FIELD, KeySerde, Long
from streamplan.serdes.serde import MAX_BYTES, Serde, too_large
from streamplan.spark.planning.function_fold import Values
from streamplan.spark.planning.function_results import NOT_OF_A_FUNCTION, Unfit, fields_of, rejected_by
from streamplan.spark.planning.process_state import AggregateFunctionState


@dataclass(frozen=True)
class _Counts(Values):
    """Counts, of which the store has 8 bytes."""

    def encoded(self, value: Mapping[str, Any]) -> bytes:
        return self._number.encode({FIELD: value["count"]})

    def decoded(self, data: bytes) -> dict[str, Any]:
        return {"count": self._number.decode(data)[FIELD]}

    @cached_property
    def _number(self) -> Long:
        return Long()


class TableAggregateState(AggregateFunctionState):
    """Keeps for each key of one stream task what functions make of the values that come, and of those that go."""

    def __init__(
        self, operation: Process, serde: Serde, key_serde: KeySerde, *, sweeps: bool, by_task: bool = False
    ) -> None:
        super().__init__(operation, serde, key_serde, sweeps=sweeps, by_task=by_task)
        if isinstance(operation, TableCount):
            self._made = _Counts(operation.fields)

    def _made_of(
        self, processor: Any, record: Record, key: bytes, at: int
    ) -> tuple[list[dict[str, Any] | None] | str, int]:
        operation = self._operation
        assert isinstance(operation, TableReduce)
        new, old, entry = record.value.new, record.value.old, self._entry(key)
        was_there = entry.value is not None
        called = operation.function
        try:
            aggregate = None if entry.value is None else self._made.seen(entry.value)
            if old is not None and was_there:
                called = operation.subtractor
                aggregate = self._seen(called.call(*self._given(record.key, old, aggregate)))
            if new is not None and aggregate is None and isinstance(operation, TableAggregate):
                called = operation.initializer
                aggregate = self._seen(called.call())
            if new is not None and aggregate is None and not isinstance(operation, TableAggregate):
                aggregate = new
            elif new is not None:
                called = operation.function
                aggregate = called.call(*self._given(record.key, new, aggregate))
            value = self._judged(aggregate)
            data = None if value is None else self._made.encoded(value)
            if data is not None and len(key) + len(data) > MAX_BYTES:
                raise Unfit(f"returned what the store cannot hold: {too_large(MAX_BYTES)}")
        except BaseException as error:  # whatever a function of a declaration raises is the record's reason
            if isinstance(error, NOT_OF_A_FUNCTION):
                raise
            return rejected_by(called.name, called.call, error, called.on_error), at
        if was_there:
            at = max(at, entry.put_at)
        elif data is None:
            return [], at
        entry.change(data, None, at)
        return [value], at

    def _given(self, key: Any, value: Any, aggregate: Any) -> tuple[Any, ...]:
        """What a function is called with: an ``Aggregator``, or a ``Reducer``."""
        return (key, value, aggregate) if isinstance(self._operation, TableAggregate) else (aggregate, value)

    def _judged(self, made: Any) -> dict[str, Any] | None:
        value = fields_of(made, self._made.types)
        return None if value is None else self._made.judged(value)

    def _seen(self, made: Any) -> Any:
        """What a function gives, as it is seen when the store has it."""
        value = self._judged(made)
        return None if value is None else self._made.seen(self._made.encoded(value))
