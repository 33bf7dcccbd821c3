"""Joins of streams with tables: Spark's ``transformWithState``, with one state variable for each table.

A record meets the table as it was at the record's own time. A micro-batch has all that there is of a table, and a part
of a stream. So a row that came for later records waits in the state, beside the row before it, until the stream has
reached its time.

A task of Kafka Streams takes the oldest of the records that it has fetched, which is the same, and does not wait when
it has read all of a topic, which is not (``PartitionGroup.readyToProcess``). docs/language.md says why.

A versioned table keeps the rows that were replaced for some time. So a late record meets the row of its own time, and a
late row takes its place among the others (``RocksDBVersionedStore``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import itemgetter
from typing import Any, cast

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from streamplan.serdes import field_types as declared
from streamplan.serdes.json import Json
from streamplan.serdes.windowed import Windowed
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.task_state import NEVER, named_tuples, task_order

WAITING_ROWS = 1000
"""The most rows of a key that wait for the stream to come to their time; of more, the oldest are taken over."""

_BEFORE_ALL_TIME = -(1 << 63)


def join_streams_with_tables(
    frames: Mapping[str, RecordFrame], tables: Mapping[str, str], histories: Mapping[str, int]
) -> DataFrame:
    """Look up the key of every record of every source in every table.

    Args:
        frames: The records of each source, by the name of the source.
        tables: For each source that is a table the name of its store.
        histories: For each of them that is versioned how many ms it keeps a row that was replaced.

    Returns:
        One row for each record. The fields of source ``n`` stand in ``f<n>``, the row of table ``n`` in ``t<n>``.
    """
    rows = _rows(frames)
    types = _types(rows, frames, tables)
    kept = {number: histories[name] for number, name in enumerate(frames) if name in histories}
    streams = [number for number in range(len(frames)) if number not in types]
    return _looked_up(rows, types, _TableJoin(types, streams, histories=kept))


def join_stream_with_result(
    stream: RecordFrame,
    table: RecordFrame,
    store: str,
    *,
    in_order: bool,
    restored: bool = False,
) -> DataFrame:
    """Look up the key of every record of a stream in a table that is a result, of which each update is there.

    Args:
        stream: The records of the stream.
        table: The updates of the table; or what its changelog has.
        store: The name of the table's store.
        in_order: Whether stream and table come of one topic. Their records are then joined in the order of the stream
            task. Otherwise their times decide, as for a table that is read.
        restored: Whether the rows are those of a changelog. A record meets them whatever its time is.

    Returns:
        As of :func:`join_streams_with_tables`, where the stream is source 0 and the table source 1, without the rows of
        the table.
    """
    frames = {"stream": stream, "table": table}
    rows = _rows(frames)
    types = _types(rows, frames, {"table": store})
    if in_order:
        return _looked_up(rows, types, _LookUpInOrder(types[1]))
    return _looked_up(rows, types, _TableJoin(types, [0], restored=restored, passes_tables=False))


def _types(rows: DataFrame, frames: Mapping[str, RecordFrame], tables: Mapping[str, str]) -> dict[int, StructType]:
    """By the number of a table the type of its rows."""
    return {
        number: cast(StructType, rows.schema[f"f{number}"].dataType)
        for number, name in enumerate(frames)
        if name in tables
    }


def _looked_up(rows: DataFrame, types: Mapping[int, StructType], processor: KeyedState) -> DataFrame:
    table_columns = [StructField(f"t{number}", row_type) for number, row_type in types.items()]
    schema = StructType([*rows.schema.fields, *table_columns])
    return rows.groupBy("partition", "key").transformWithState(processor, schema, "Update", "none")


def _rows(frames: Mapping[str, RecordFrame]) -> DataFrame:
    sides = []
    for number, original in enumerate(frames.values()):
        frame = rejecting_binary_keys(original)
        sides.append(
            frame.data.select(
                F.col("record.partition").alias("partition"),
                (frame.key if isinstance(frame.key_serde, Json | Windowed) else F.col("record.key")).alias("key"),
                F.lit(number).alias("source"),
                F.unix_millis("record.timestamp").alias("at"),
                (F.col("record.reason").isNotNull()).alias("rejected"),
                (F.col("record.value").isNull()).alias("deleted"),
                F.col("record").dropFields("timestamp").alias("record"),  # ``at`` has it in ms
                F.struct(
                    *(
                        as_state(F.col(f"`{name}`"), of_field).alias(state_name(name, place))
                        for place, (name, of_field) in enumerate(declared_fields(original.data).items())
                    )
                ).alias(f"f{number}"),
            )
        )
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), sides)


def joined_frames(
    batch: DataFrame, frames: Mapping[str, RecordFrame], tables: Mapping[str, str]
) -> dict[str, RecordFrame]:
    """Return the records of each source, with the row of each table in ``record`` under the name of its store.

    Args:
        batch: What :func:`join_streams_with_tables` or :func:`join_stream_with_result` gave.
        frames: As for :func:`join_streams_with_tables`; only what is known of them is used.
        tables: As for :func:`join_streams_with_tables`.
    """
    numbers = {name: number for number, name in enumerate(frames)}
    types = {name: declared_fields(frame.data) for name, frame in frames.items()}
    joined = {}
    for name, frame in frames.items():
        record = F.col("record").withField("timestamp", F.timestamp_millis("at"))
        for table, store in tables.items():
            row = from_state(F.col(f"t{numbers[table]}"), declared.StructType(tuple(types[table].items())))
            record = record.withField(f"`{store}`", row)
        rows = batch.where(F.col("source") == numbers[name])
        fields = [
            from_state(F.col(f"f{numbers[name]}.`{state_name(field, place)}`"), of_field).alias(field)
            for place, (field, of_field) in enumerate(types[name].items())
        ]
        data = rows.select(*fields, record.alias("record"))
        joined[name] = replace(frame, data=data, no_rejects=False)
    return joined


class _TableJoin(KeyedState):
    """Looks up the records of one key of one stream task.

    ``types``          the fields of each source that is a table, by its number
    ``streams``        the numbers of the other sources
    ``restored``       whether the rows are those of changelogs, which a record meets whatever its time is
    ``passes_tables``  whether there is a row for each record of a table, too
    ``histories``      of versioned tables how many ms a row is kept that was replaced, by their numbers
    """

    def __init__(
        self,
        types: Mapping[int, StructType],
        streams: Sequence[int],
        *,
        restored: bool = False,
        passes_tables: bool = True,
        histories: Mapping[int, int] | None = None,
    ) -> None:
        self._types = types
        self._streams = streams
        self._restored = restored
        self._passes_tables = passes_tables
        self._histories = histories or {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tables: dict[int, _Table | _VersionedTable] = {}
        for number, row_type in self._types.items():
            # A table's updates may be looked up in another table. Where there is a stream, its time counts.
            readers = self._streams or [other for other in self._types if other != number]
            if number in self._histories:
                history_ms = self._histories[number]
                self._tables[number] = _VersionedTable(handle, number, row_type, readers, history_ms)
            else:
                self._tables[number] = _Table(handle, number, row_type, readers)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for table in self._tables.values():
            table.load()
        ordered = sorted(
            named_tuples(rows), key=lambda row: task_order(row.record)
        )  # within each source; between them time decides
        for row in ordered:
            if row.source in self._tables and not row.rejected:
                at = _BEFORE_ALL_TIME if self._restored else row.at
                self._tables[row.source].put(at, None if row.deleted else getattr(row, f"f{row.source}"))
        for row in ordered:
            if row.source in self._tables and not self._passes_tables:
                continue
            table_rows = {f"t{number}": self._found(row, number) for number in self._tables}
            yield Row(**row._asdict(), **table_rows)
        for table in self._tables.values():
            table.store()

    def close(self) -> None:
        pass

    def _found(self, row: Any, number: int) -> Any:
        """The row of a table that a record meets. A record of the table itself meets what it is."""
        if row.rejected or (row.source == number and row.deleted):
            return None
        return getattr(row, f"f{number}") if row.source == number else self._tables[number].get(row.source, row.at)


class _LookUpInOrder(KeyedState):
    """Looks up the records of one key of one stream task in a table that comes of the same topic.

    ``row_type``  the fields of the table, which is source 1; the stream is source 0
    """

    def __init__(self, row_type: StructType) -> None:
        self._row_type = row_type

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("row", StructType([StructField("row", self._row_type)]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        names = self._row_type.names
        state = self._state.get() if self._state.exists() else None
        found = before = None if state is None else tuple(state[0])
        made = list[tuple[list[int], tuple[Any, ...] | None]]()
        for row in sorted(named_tuples(rows), key=lambda row: (*task_order(row.record), row.source == 0)):
            if row.source == 1:
                found = None if row.deleted else tuple(row.f1[name] for name in names)
                made.append((row.record["order"], found))
                continue
            met = found
            # An update of a store meets a row as it was before, if the row was made on a way behind its own.
            if row.record["topic"] is None:
                met = next((each for order, each in reversed(made) if order <= row.record["order"]), before)
            yield Row(**row._asdict(), t1=None if met is None else dict(zip(names, met, strict=True)))
        if found is not None:
            self._state.update((found,))
        elif state is not None:
            self._state.clear()

    def close(self) -> None:
        pass


class _Table:
    """The row of one key as of the time that all its readers have reached, and the rows that wait for them.

    ``readers``  the numbers of the sources that are looked up in the table. A late record of a source meets the table
                 as the record before it did: a stream task has that time by then
    """

    def __init__(
        self, handle: StatefulProcessorHandle, number: int, row_type: StructType, readers: Sequence[int]
    ) -> None:
        self._names = row_type.names
        self._readers = readers
        version = StructType([StructField("at", LongType()), StructField("row", row_type)])
        fields = [StructField("row", row_type), StructField("waiting", ArrayType(version))]
        if len(readers) > 1:  # with a single reader, what is before its time waits no more
            fields.append(StructField("reached", ArrayType(LongType())))
        self._state = handle.getValueState(f"t{number}", StructType(fields))

    def load(self) -> None:
        state = self._state.get() if self._state.exists() else None
        self._loaded = state
        self._row = self._by_name(state[0]) if state else None
        self._waiting = [(version[0], self._by_name(version[1])) for version in state[1]] if state else []
        reached = state[2] if state and len(state) > 2 else [_BEFORE_ALL_TIME] * len(self._readers)
        self._reached = dict(zip(self._readers, reached, strict=True))

    def put(self, at: int, row: Mapping[str, Any] | None) -> None:
        """Add a row in the order of offsets: it is no earlier than the row before it."""
        latest = self._waiting[-1][0] if self._waiting else at
        self._waiting.append((max(at, latest), None if row is None else {name: row[name] for name in self._names}))

    def get(self, source: int, at: int) -> dict[str, Any] | None:
        """Return the row that a record of a source finds at its time."""
        if source in self._reached:
            self._reached[source] = at = max(at, self._reached[source])
        count = self._waiting_until(at)
        return self._waiting[count - 1][1] if count else self._row

    def store(self) -> None:
        reached = min(self._reached.values(), default=NEVER)
        passed = max(self._waiting_until(reached), len(self._waiting) - WAITING_ROWS)
        if passed > 0:
            self._row = self._waiting[passed - 1][1]
            self._waiting = self._waiting[passed:]
        if self._row is None and not self._waiting:
            if self._loaded is not None:
                self._state.clear()
            return
        waiting = [(at, None if row is None else tuple(row.values())) for at, row in self._waiting]
        state: tuple[Any, ...] = (None if self._row is None else tuple(self._row.values()), waiting)
        if len(self._readers) > 1:
            state = (*state, list(self._reached.values()))
        if state != self._loaded:
            self._state.update(state)

    def _waiting_until(self, at: int) -> int:
        """The number of waiting rows of that time or earlier."""
        return bisect_right(self._waiting, at, key=itemgetter(0))

    def _by_name(self, row: tuple[Any, ...] | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, row, strict=True))


class _VersionedTable:
    """The rows of one key in the order of their times, as far as a reader may still find them.

    The library forgets by the newest row of its stream task. A micro-batch has all that there is of the table. So what
    counts here is the newest row of the key among those that the readers have reached.

    ``readers``  the numbers of the sources that are looked up in the table
    """

    def __init__(
        self,
        handle: StatefulProcessorHandle,
        number: int,
        row_type: StructType,
        readers: Sequence[int],
        history_ms: int,
    ) -> None:
        self._names = row_type.names
        self._readers = readers
        self._history_ms = history_ms
        version = StructType([StructField("at", LongType()), StructField("row", row_type)])
        fields = [StructField("versions", ArrayType(version)), StructField("reached", ArrayType(LongType()))]
        self._state = handle.getValueState(f"v{number}", StructType(fields))

    def load(self) -> None:
        self._loaded = self._state.get() if self._state.exists() else None
        versions, reached = self._loaded or ((), [_BEFORE_ALL_TIME] * len(self._readers))
        self._versions = [
            (at, None if row is None else dict(zip(self._names, row, strict=True))) for at, row in versions
        ]
        self._reached = dict(zip(self._readers, reached, strict=True))

    def put(self, at: int, row: Mapping[str, Any] | None) -> None:
        """Put a row to its place in time, unless it is later than the history. It replaces one of the same time."""
        if self._versions and at < self._versions[-1][0] - self._history_ms:
            return
        place = bisect_right(self._versions, at, key=itemgetter(0))
        same = place > 0 and self._versions[place - 1][0] == at
        self._versions[place - same : place] = [
            (at, None if row is None else {name: row[name] for name in self._names})
        ]

    def get(self, source: int, at: int) -> dict[str, Any] | None:
        """Return the row that is valid at the time of a record of a source; None where that time is forgotten."""
        if source in self._reached:
            self._reached[source] = max(at, self._reached[source])
        newest = self._until(self._reached.get(source, at)) - 1
        found = self._until(at) - 1
        if found < 0 or (found < newest and at < self._versions[newest][0] - self._history_ms):
            return None
        return self._versions[found][1]

    def store(self) -> None:
        reached = min(self._reached.values(), default=NEVER)
        newest = max(self._until(reached), len(self._versions) - WAITING_ROWS) - 1
        if newest >= 0:
            # The row that is valid at the beginning of the history is the first one that is found.
            first = min(max(self._until(self._versions[newest][0] - self._history_ms) - 1, 0), newest)
            del self._versions[:first]
        if not self._versions:
            return  # a deletion stays: without it a late row would bring the key back
        versions = [(at, None if row is None else tuple(row.values())) for at, row in self._versions]
        state = versions, list(self._reached.values())
        if state != self._loaded:
            self._state.update(state)

    def _until(self, at: int) -> int:
        """The number of rows of that time or earlier."""
        return bisect_right(self._versions, at, key=itemgetter(0))
