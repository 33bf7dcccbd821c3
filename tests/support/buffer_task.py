"""A stream task with the buffer of a join with a versioned table, and its state variables in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import Row
from streamplan.model.operations import BufferRecords
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.spark.planning.buffer_state import BufferState, RestoredBufferState

from tests.support.process_task import Variables


class Arrived(NamedTuple):
    """A record of the stream: ``value`` in bytes, and ``offset``, its place in the topic."""

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
        grace_ms: The grace period.
        left: Whether the join is a left join.

    Attributes:
        changelog: By key the last value of the buffer in bytes; None for a deletion.
    """

    def __init__(self, grace_ms: int, *, left: bool = False, value: Json | None = None) -> None:
        self._value = value or Json("n bigint")
        fields = tuple(self._value.fields.items())
        self._operation = replace(BufferRecords.of("buffer", grace_ms, left=left), state=fields, fields=fields)
        self.changelog: dict[bytes, bytes | None] = {}
        self._variables = Variables()

    def process(self, records: Iterable[Arrived]) -> list[Passed]:
        """Process a micro-batch."""
        state = BufferState(self._operation, self._value, STRING, sweeps=True)
        state.init(self._variables)  # type: ignore[arg-type]
        passed = []
        for row in map(Row.asDict, state.handleInputRows((0,), iter(map(_row, records)), None)):
            if (key := row.get("stored_key")) is not None:
                self.changelog[key] = row["stored_value"]
            else:
                record, reason = row["record"], row.get("reason")
                value = dict(row["fields"]) if reason is None else reason
                passed.append(Passed(record["key"], row["at"], value, record["offset"]))
        return passed

    def restore(self) -> None:
        """Lose the state, and read it from the changelog, whose records have the times of some clock."""
        self._variables = Variables()
        state = RestoredBufferState(self._operation, self._value, STRING, sweeps=False)
        state.init(self._variables)  # type: ignore[arg-type]
        rows = [
            Row(partition=0, key=key, at=1 << 50, value=value)
            for key, value in self.changelog.items()
            if value is not None
        ]
        if rows:
            list(state.handleInputRows((0,), iter(rows), None))


def _row(record: Arrived) -> Row:
    place = {"partition_time": None, "topic": "t", "partition": 0, "offset": record.offset, "order": []}
    key = None if record.key is None else record.key.encode()
    read = {"key": record.key, "original_key": key, "value": record.value, "headers": None, "reason": None}
    return Row(partition=0, at=record.at, key=key, value=None, record={**place, **read})
