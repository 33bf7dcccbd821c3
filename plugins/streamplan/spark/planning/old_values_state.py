"""The state of an operation that needs the value which its table had of a key before an update.

Sources: ``KTableRepartitionMap`` and ``KTableFilter`` of Kafka Streams 4.3, with the record cache that a store has
unless it is turned off: what is removed from a table that does not have it is not passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from streamplan.serdes.changes import written_change
from streamplan.serdes.serde import MAX_BYTES
from streamplan.spark.planning.task_state import task_order


class Grouped(NamedTuple):
    """What an operation has made of a value.

    Attributes:
        to: The new key in bytes; None of a filter, which keeps the key.
        value: The value in bytes; empty of a filter, of which it only tells that there is one.
    """

    to: bytes | None
    value: bytes


class OldValuesState(StatefulProcessor):
    """Takes the updates of one key of one stream task, and leaves out those of nothing by nothing.

    Args:
        sends: Whether records for a repartition topic are made: ``sent``, to the key ``to``, at ``place`` among those
            of an update.
        restored: Whether the rows are those of a changelog, and no updates.
    """

    def __init__(self, *, sends: bool, restored: bool) -> None:
        self._sends, self._restored = sends, restored

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable."""
        fields = [StructField(name, BinaryType()) for name in Grouped._fields]
        self._state = handle.getValueState("old", StructType(fields))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the updates of a key in a micro-batch."""
        stored = Grouped(*map(_bytes, self._state.get())) if self._state.exists() else None  # type: ignore[arg-type]
        old = stored
        # A look-up in the same table restores it from every record.
        place = (lambda row: row.record["offset"] or 0) if self._restored else (lambda row: task_order(row.record))
        for row in sorted(rows, key=place):
            value = _bytes(row.value)
            new = None if value is None else Grouped(_bytes(row.to), value)
            if not self._restored and (new is not None or old is not None):
                yield from self._passed(row, new, old)
            old = new
        if old is not None and old != stored:
            self._state.update(tuple(old))
        elif old is None and stored is not None:
            self._state.clear()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _passed(self, row: Row, new: Grouped | None, old: Grouped | None) -> Iterator[Row]:
        if not self._sends:
            yield Row(**row.asDict())
            return
        for place, (to, sent) in enumerate(sent_records(new, old)):
            yield Row(**{**row.asDict(), "to": to, "value": None}, sent=sent, place=place)


def sent_records(new: Grouped | None, old: Grouped | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and the value of each record that an update of a grouped table gives.

    It is one record where the group stays, and the topic takes it: else the old value goes first.

    Args:
        new: What the table has now.
        old: What it had.
    """
    if new is not None and old is not None and new.to == old.to:
        sent = written_change(new.value, old.value)
        if len(new.to or b"") + len(sent) <= MAX_BYTES:
            yield new.to or b"", sent
            return
    if old is not None:
        yield old.to or b"", written_change(None, old.value)
    if new is not None:
        yield new.to or b"", written_change(new.value, None)


def _bytes(data: bytes | bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)
