"""Aggregates of sessions: Spark's ``transformWithState``, with the state of a stream task as one group.

A record may make one session of several (``KStreamSessionWindowAggregate``). So what a session has aggregated is kept
in parts that can be merged: a record is one more session, from its time to its time, and a changelog has whole ones.
The state of a key is the list of its sessions. What is too late is told by the newest record of the stream task, which
is one for all keys. So the group is the stream task, and not the key, as for the join of two streams.

A micro-batch writes the changes of a session once, as the library's record cache does: what it became, or null where
another session has taken it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamplan.errors import Refused
from streamplan.model.operations import Aggregate, Count
from streamplan.model.processor_topology import Processor
from streamplan.model.windows import STORED_SESSION_BYTES, SessionWindows
from streamplan.spark.planning.aggregation import Argument, node_arguments, stored_value
from streamplan.spark.planning.field_types import as_state, declared_type, from_state
from streamplan.spark.planning.key_sessions import KeySessions
from streamplan.spark.planning.keys import number_in_key
from streamplan.spark.planning.merging import PARTS, Merging
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.task_state import record_place, sweep_is_due, task_order

_ORDERED = (BooleanType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType, StringType, TimestampType)
"""The types whose values Python orders as Spark does."""


def aggregate_sessions(node: Processor, records: RecordFrame) -> DataFrame:
    """Aggregate the records of each key and session.

    Args:
        node: An aggregation with :class:`SessionWindows`.
        records: What it aggregates. All have a key, and none is rejected.

    Returns:
        One row for each session that has changed: its key and ``window``, what the node's store holds of it in the
        columns ``s0_``, and the ``timestamp`` of the record that changed it last. ``deleted`` sessions are there no
        more, because another one has taken them in.

    Raises:
        Refused: A function orders values of a type that has no order here.
    """
    parts = _Parts.of(node, records)
    at = F.unix_millis("record.timestamp")
    rows = records.data.select(
        F.col("record.partition").alias("partition"),
        record_place().alias("place"),
        records.key.alias("key"),
        at.alias("start"),
        at.alias("end"),
        parts.of_columns([argument.from_record for argument in parts.arguments]).alias("parts"),
    )
    return _aggregated(node, parts, rows, restored=False)


def restore_sessions(node: Processor, records: RecordFrame, stored: DataFrame) -> DataFrame:
    """Read the sessions of a changelog into the state that :func:`aggregate_sessions` goes on with.

    Args:
        node: As for :func:`aggregate_sessions`.
        records: As for :func:`aggregate_sessions`; only their types are used.
        stored: The last record of each key of the changelog, in the columns :data:`streamplan.spark.sources.RAW`.
    """
    parts = _Parts.of(node, records)
    types = records.data.limit(0).select(*parts.from_records()).select(*parts.stored_columns()).schema
    rows = stored.select("partition", *stored_session(), stored_value(0, node, types).alias("_stored"))
    rows = rows.withColumns({name: F.unix_millis(f"window.{name}") for name in ("start", "end")})
    columns = parts.of_columns([argument.from_store for argument in parts.arguments])
    rows = rows.select("partition", F.col("key").cast("binary").alias("key"), "start", "end", columns.alias("parts"))
    return _aggregated(node, parts, rows, restored=True)


def sessions_of(node: Processor) -> SessionWindows:
    """Return the windows of an aggregation of sessions."""
    assert isinstance(node.operation, Count | Aggregate)
    windows = node.operation.window
    assert isinstance(windows, SessionWindows), f"{node.name} aggregates no sessions"
    return windows


def stored_session() -> list[Column]:
    """Return the key of a changelog record, and its session, which the key's last bytes hold (``SessionKeySchema``)."""
    end, start = (F.timestamp_millis(number_in_key(STORED_SESSION_BYTES - 8 * place)) for place in range(2))
    key = F.expr(f"substring(key, 1, octet_length(key) - {STORED_SESSION_BYTES})").cast("string")
    return [key.alias("key"), F.struct(start.alias("start"), end.alias("end")).alias("window")]


def session_ends(stored: RecordFrame) -> RecordFrame:
    """Return the rows of a store with the times that its updates have: those of the ends of their sessions.

    Args:
        stored: The rows of the store, with the times that its changelog has.
    """
    return stored.with_record(F.col("record").withField("timestamp", F.col("record.window.end")))


@dataclass(frozen=True)
class _Parts:
    """The parts of what a session has aggregated: one for each argument of the node's aggregates, or two of an average.

    Attributes:
        functions: The aggregate functions and the names of their columns, in the order of declaration.
        arguments: The argument of each part.
        types: The type of each part.
    """

    functions: Sequence[tuple[str, str]]
    arguments: Sequence[Argument]
    types: Sequence[DataType]

    @classmethod
    def of(cls, node: Processor, records: RecordFrame) -> _Parts:
        operation = node.operation
        assert isinstance(operation, Count | Aggregate), f"{node.name} aggregates no sessions"
        functions = [("count", "count")]
        if isinstance(operation, Aggregate):
            functions = [(column.function, column.name) for column in operation.columns]
        arguments = node_arguments(0, node, records)
        columns = [argument.from_record.alias(f"p{place}") for place, argument in enumerate(arguments)]
        types = [part.dataType for part in records.data.select(*columns).schema.fields]
        place = 0
        for function, name in functions:
            ordered = place + PARTS.get(function, 1) - 1
            if function in ("min", "max", "min_by", "max_by") and not isinstance(types[ordered], _ORDERED):
                raise Refused(
                    f"{name}: {function} of sessions by values of type {types[ordered].simpleString()}",
                    expected="a text, a number, a boolean, a date or a timestamp",
                    remedy="Order by one of its fields.",
                )
            place = ordered + 1
        return cls(functions, arguments, types)

    def of_columns(self, columns: Sequence[Column]) -> Column:
        """A struct of all parts in the form that the state has."""
        return F.struct(
            *(
                as_state(column, declared_type(of_part)).alias(f"p{place}")
                for place, (column, of_part) in enumerate(zip(columns, self.types, strict=True))
            )
        )

    def from_records(self) -> list[Column]:
        """The parts of records as columns of their own."""
        return [argument.from_record.alias(f"p{place}") for place, argument in enumerate(self.arguments)]

    def from_struct(self) -> list[Column]:
        """The parts of the column ``parts`` as columns of their own."""
        return [
            from_state(F.col(f"parts.p{place}"), declared_type(of_part)).alias(f"p{place}")
            for place, of_part in enumerate(self.types)
        ]

    def stored_columns(self) -> list[Column]:
        """What the store holds, of the columns of all parts: the columns that ``aggregate`` gives of node 0."""
        columns, place = [], 0
        for function, name in self.functions:
            part, other = F.col(f"p{place}"), F.col(f"p{place + 1}")
            if function == "avg":
                part = F.struct(part.alias("sum"), other.alias("count"))
            elif function in ("min_by", "max_by"):
                part = F.when(other.isNotNull(), F.struct(part.alias("value"), other.alias("by")))
            columns.append(part.alias(f"s0_{name}"))
            place += PARTS.get(function, 1)
        return columns


def _aggregated(node: Processor, parts: _Parts, rows: DataFrame, *, restored: bool) -> DataFrame:
    of_parts = rows.schema["parts"].dataType
    assert isinstance(of_parts, StructType)
    schema = StructType(
        [
            StructField("partition", IntegerType()),
            StructField("key", BinaryType()),
            StructField("start", LongType()),
            StructField("end", LongType()),
            StructField("at", LongType()),
            StructField("deleted", BooleanType()),
            StructField("parts", of_parts),
        ]
    )
    merging = Merging(tuple(function for function, _ in parts.functions), tuple(parts.types))
    processor = _SessionAggregate(sessions_of(node), merging, of_parts, restored=restored)
    changed = rows.groupBy("partition").transformWithState(processor, schema, "Update", "none")
    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    at = F.timestamp_millis("at").alias("timestamp")
    key = F.col("key").cast("string")  # as of other aggregates: a string that holds the key's bytes as they are
    columns = changed.select("partition", key.alias("key"), window.alias("window"), at, "deleted", *parts.from_struct())
    return columns.select("partition", "key", "window", "timestamp", "deleted", *parts.stored_columns())


class _SessionAggregate(StatefulProcessor):
    """Aggregates the sessions of one stream task.

    Args:
        windows: The sessions.
        merging: Makes one of what two sessions have aggregated.
        parts: The fields of what a session has aggregated.
        restored: Whether the rows are the sessions of a changelog, and no records.
    """

    def __init__(self, windows: SessionWindows, merging: Merging, parts: StructType, *, restored: bool) -> None:
        self._gap_ms = windows.inactivity_gap_ms
        self._retention_ms = windows.retention_ms
        self._merging = merging
        self._parts = parts
        self._restored = restored

    def init(self, handle: StatefulProcessorHandle) -> None:
        session = StructType(
            [StructField("start", LongType()), StructField("end", LongType()), StructField("parts", self._parts)]
        )
        sessions = StructType([StructField("sessions", ArrayType(session))])
        self._sessions = handle.getMapState("sessions", StructType([StructField("key", BinaryType())]), sessions)
        times = StructType([StructField("newest", LongType()), StructField("swept", LongType())])
        self._times = handle.getValueState("times", times)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        newest, swept = (self._times.get() if self._times.exists() else None) or (-1, -1)
        touched: dict[bytes, KeySessions] = {}
        for row in rows if self._restored else sorted(rows, key=lambda row: task_order(row.place)):
            name = bytes(row.key)
            if name not in touched:
                known = self._sessions.containsKey((name,))  # Spark warns of a value that is not there
                touched[name] = KeySessions.of(self._sessions.getValue((name,)) if known else None)
            sessions, parts = touched[name], tuple(row.parts[part] for part in self._parts.names)
            if self._restored:
                sessions.restore(row.start, row.end, parts)
            else:
                late_before = max(newest, row.end) - self._retention_ms
                sessions.add(row.end, parts, self._gap_ms, newest - self._retention_ms, late_before, self._merging)
            newest = max(newest, row.end)
        for name, sessions in touched.items():
            for start, end, at, parts in sessions.changes():
                by_name = None if parts is None else dict(zip(self._parts.names, parts, strict=True))
                bounds = {"start": start, "end": end, "at": at}
                yield Row(partition=key[0], key=name, **bounds, deleted=parts is None, parts=by_name)
        self._store(touched, newest, swept)

    def close(self) -> None:
        pass

    def _store(self, touched: dict[bytes, KeySessions], newest: int, swept: int) -> None:
        over = newest - self._retention_ms
        for key, sessions in touched.items():
            self._put(key, sessions, over)
        if sweep_is_due(swept, newest, self._retention_ms):
            swept = newest
            for (key,), value in list(self._sessions.iterator()):
                if bytes(key) not in touched:
                    self._put(bytes(key), KeySessions.of(value), over)
        self._times.update((newest, swept))

    def _put(self, key: bytes, sessions: KeySessions, over: int) -> None:
        sessions.forget(over)
        if not sessions.sessions:
            self._sessions.removeKey((key,))
        elif sessions.changed:
            self._sessions.updateValue((key,), (sessions.sessions,))
