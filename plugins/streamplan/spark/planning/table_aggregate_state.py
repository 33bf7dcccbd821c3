"""The state of a stream task that aggregates a grouped table: values come into the groups of their keys, and go.

Sources: ``KTableAggregate`` and ``KTableReduce`` of Kafka Streams 4.3, with the record cache that a store has unless it
is turned off: what is removed from a store that does not have it is not passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from streamplan.model.functions import PythonFunction
from streamplan.model.operations import TableAggregate, TableCount, TableReduce
from streamplan.model.processor import Record
from streamplan.serdes.primitive import FIELD, Long
from streamplan.spark.planning.function_fold import Functions, Made, Rejected, Values
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


@dataclass(frozen=True)
class TableFunctions(Functions):
    """The functions of an aggregate of a grouped table.

    Attributes:
        subtractor: Takes a value out of an aggregate.
        counts: Whether they count, so that the store has numbers of 8 bytes.
    """

    subtractor: PythonFunction
    counts: bool

    @cached_property
    def made(self) -> Values:
        """The values that are made."""
        return _Counts(self.fields) if self.counts else Values(self.fields)

    def changed(self, key: Any, raw_key: bytes, new: Any, old: Any, total: bytes | None) -> Made:
        """Return what is made of what was made before, of a value that goes, and of one that comes.

        Args:
            key: The key, as the functions see it.
            raw_key: The key in bytes.
            new: The value that comes; None for none.
            old: The value that goes; None for none.
            total: What was made before, in bytes; None for nothing, from which nothing is taken.

        Raises:
            Rejected: A function has failed.
            Exception: A function has failed whose declaration stops the application then.
        """
        made = Made(None, None) if total is None else Made(self.made.decoded(total), total)
        if old is not None and total is not None:
            made = self._made_by(self.subtractor, raw_key, partial(self._taken, key, old, total))
        return made if new is None else self.added(key, raw_key, new, [] if made.data is None else [made.data])

    def _taken(self, key: Any, value: Any, total: bytes) -> Any:
        """What a ``Reducer`` or, with an initializer, an ``Aggregator`` makes of a value that goes."""
        aggregate = self.made.seen(total)
        return self.subtractor.call(*((aggregate, value) if self.initializer is None else (key, value, aggregate)))


class TableAggregateState(AggregateFunctionState):
    """Keeps for each key of one stream task what functions make of the values that come, and of those that go."""

    def _made_of(
        self, processor: Any, record: Record, key: bytes, at: int
    ) -> tuple[list[dict[str, Any] | None] | str, int]:
        entry = self._entry(key)
        try:
            made = self._functions.changed(record.key, key, record.value.new, record.value.old, entry.value)
        except Rejected as error:
            return str(error), at
        return self._put(entry, made, at)

    @cached_property
    def _functions(self) -> TableFunctions:
        operation = self._operation
        assert isinstance(operation, TableReduce)
        return TableFunctions(
            operation.function,
            operation.initializer if isinstance(operation, TableAggregate) else None,
            None,
            operation.fields,
            operation.subtractor,
            isinstance(operation, TableCount),
        )
