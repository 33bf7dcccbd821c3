"""A stream task with the buffer of ``suppress``, and its state variables in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import Row
from streamplan.model.operations import SuppressUpdates
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.spark.planning.suppress_state import RestoredSuppressState, SuppressState

from tests.support.process_task import Variables


class Update(NamedTuple):
    """An update of the table: ``value`` in bytes, and ``offset``, its place in the topic."""

    key: str
    at: int
    value: bytes | None
    offset: int


class Passed(NamedTuple):
    """What is passed of a key, and the offset of the record that has let it pass."""

    key: str
    at: int
    value: Any
    offset: int


class SuppressTask:
    """A stream task.

    Args:
        limit_ms: How long updates wait.
        max_records: How many keys wait at most.
        value: The serde of the values.

    Attributes:
        changelog: By key the last value of the buffer in bytes; None for a deletion.
    """

    def __init__(self, limit_ms: int, max_records: int | None = None, value: Json | None = None) -> None:
        self._value = value or Json("n bigint")
        fields = tuple(self._value.fields.items())
        operation = SuppressUpdates.of("buffer", limit_ms, max_records)
        self._operation = replace(operation, state=fields, fields=fields)
        self.changelog: dict[bytes, bytes | None] = {}
        self._variables = Variables()

    def process(self, updates: Iterable[Update]) -> list[Passed]:
        """Process a micro-batch."""
        state = SuppressState(self._operation, self._value, STRING, sweeps=True)
        state.init(self._variables)  # type: ignore[arg-type]
        passed = []
        for row in map(Row.asDict, state.handleInputRows((0,), iter(map(_row, updates)), None)):
            if (key := row.get("stored_key")) is not None:
                self.changelog[key] = row["stored_value"]
            else:
                record = row["record"]
                assert row.get("reason") is None, row
                passed.append(Passed(record["key"], row["at"], row["fields"], record["offset"]))
        return passed

    def restore(self) -> None:
        """Lose the state, and read it from the changelog, whose records have the times of some clock."""
        self._variables = Variables()
        state = RestoredSuppressState(self._operation, self._value, STRING, sweeps=False)
        state.init(self._variables)  # type: ignore[arg-type]
        rows = [
            Row(partition=0, key=key, at=1 << 50, value=value)
            for key, value in self.changelog.items()
            if value is not None
        ]
        if rows:
            list(state.handleInputRows((0,), iter(rows), None))


def _row(update: Update) -> Row:
    place = {"partition_time": None, "topic": "t", "partition": 0, "offset": update.offset, "order": []}
    key = update.key.encode()
    read = {"key": update.key, "original_key": key, "value": update.value, "headers": None, "reason": None}
    return Row(partition=0, at=update.at, key=key, value=None, record={**place, **read})
