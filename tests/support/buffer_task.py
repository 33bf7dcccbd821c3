"""A stream task with a buffer in which records wait, and its state variables in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import Row
from streamplan.model.operations import BufferRecords, SuppressUpdates
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.spark.planning.buffer_state import BufferState, RestoredBufferState
from streamplan.spark.planning.suppress_state import RestoredSuppressState, SuppressState

from tests.support.process_task import Variables


class Arrived(NamedTuple):
    """A record: ``value`` in bytes, and ``offset``, its place in the topic."""

    key: str | None
    at: int
    value: bytes | None
    offset: int


class Passed(NamedTuple):
    """A record that is passed, or the reason why it is not; and the offset of the record that has let it pass."""

    key: str | None
    at: int
    value: Any
    offset: int


class BufferTask:
    """A stream task.

    Args:
        operation: What waits, and for how long.
        value: The serde of the values.

    Attributes:
        changelog: By key the last value of the buffer in bytes; None for a deletion.
    """

    def __init__(self, operation: BufferRecords | SuppressUpdates, value: Json | None = None) -> None:
        self._value = value or Json("n bigint")
        fields = tuple(self._value.fields.items())
        self._operation = replace(operation, state=fields, fields=fields)
        self.changelog: dict[bytes, bytes | None] = {}
        self._variables = Variables()

    def process(self, records: Iterable[Arrived]) -> list[Passed]:
        """Process a micro-batch."""
        passed = []
        for row in self._run(map(_row, records), restored=False):
            if (key := row.get("stored_key")) is not None:
                self.changelog[key] = row["stored_value"]
                continue
            record, value = row["record"], row.get("reason")
            if value is None:
                value = row["fields"] and dict(row["fields"])
            passed.append(Passed(record["key"], row["at"], value, record["offset"]))
        return passed

    def restore(self) -> None:
        """Lose the state, and read it from the changelog, whose records have the times of some clock."""
        self._variables = Variables()
        rows = [
            Row(partition=0, key=key, at=1 << 50, value=value)
            for key, value in self.changelog.items()
            if value is not None
        ]
        if rows:
            self._run(rows, restored=True)

    def _run(self, rows: Iterable[Row], *, restored: bool) -> list[dict[str, Any]]:
        given: tuple[Any, ...] = (self._operation, self._value, STRING)
        if isinstance(self._operation, BufferRecords):
            state: Any = (RestoredBufferState if restored else BufferState)(*given, sweeps=not restored)
        else:
            state = (RestoredSuppressState if restored else SuppressState)(*given, sweeps=not restored)
        state.init(self._variables)
        return [row.asDict() for row in state.handleInputRows((0,), iter(list(rows)), None)]


def _row(record: Arrived) -> Row:
    place = {"partition_time": None, "topic": "t", "partition": 0, "offset": record.offset, "order": []}
    key = None if record.key is None else record.key.encode()
    read = {"key": record.key, "original_key": key, "value": record.value, "headers": None, "reason": None}
    return Row(partition=0, at=record.at, key=key, value=None, record={**place, **read})
