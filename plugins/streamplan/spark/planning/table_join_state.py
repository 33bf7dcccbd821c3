"""The state of joins of tables: the row that each table has of a key, and what an update of one of them gives.

Source: ``KTableKTableInnerJoin``, ``KTableKTableLeftJoin``, ``KTableKTableRightJoin``, ``KTableKTableOuterJoin`` and
``KTableKTableJoinMerger`` of Kafka Streams 4.3. A joined value is computed from the rows of both tables. So the state
has no more than the rows, and the joined value itself is an expression of Spark behind the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.task_state import named_tuples, task_order


class Change(NamedTuple):
    """What became of the value that a table has of a key.

    Attributes:
        is_there: Whether there is a value now.
        was_there: Whether there was one before.
        at: The time of the change in ms.
    """

    is_there: bool
    was_there: bool
    at: int


@dataclass(frozen=True)
class JoinOfTables:
    """A join of two tables, each by its number: that of its source, or that of the join that it comes from.

    Attributes:
        number: The number of the table that it makes. It is greater than those of the tables that it joins.
        this: The number of this table.
        other: The number of the other table.
        left: Whether a value of this table alone is joined, too.
        right: Whether a value of the other table alone is joined, too.
        store: The state store of the result, which also keeps the time of its last update; None for none.
    """

    number: int
    this: int
    other: int
    left: bool
    right: bool
    store: str | None

    def is_there(self, this: bool, other: bool) -> bool:
        """Return whether there is a joined value, where each table has a value of the key or not."""
        return (this and other) or (this and self.left) or (other and self.right)


class KeyTimes:
    """The time of the value that each table has of one key. A table that has no value of it is left out.

    Args:
        joins: The joins, each behind those that it takes a table from.
        times: The time in ms by the number of a table: of each source, and of each join with a store.
    """

    def __init__(self, joins: Sequence[JoinOfTables], times: dict[int, int]) -> None:
        self._joins = joins
        self._by_number = {join.number: join for join in joins}
        self.times = times

    def of(self, number: int) -> int | None:
        """Return the time of the value that a table has; None where it has none (``KTableValueGetter.get``)."""
        join = self._by_number.get(number)
        if join is None or join.store is not None:
            return self.times.get(number)
        this, other = self.of(join.this), self.of(join.other)
        if not join.is_there(this is not None, other is not None):
            return None
        return max(time for time in (this, other) if time is not None)

    def update(self, source: int, *, is_there: bool, at: int) -> Iterator[tuple[int, Change]]:
        """Take an update of a source table, and yield the number and the change of each join that it reaches.

        Args:
            source: The number of the table.
            is_there: Whether the update has a value: it is no deletion. A table deletes nothing that it does not have.
            at: Its time in ms.
        """
        change = Change(is_there, source in self.times, at)
        self.put(source, at, is_there=is_there)
        yield from self.joined(source, change)

    def joined(self, source: int, change: Change) -> Iterator[tuple[int, Change]]:
        """Yield the number and the change of each join that a change of a source table reaches.

        Args:
            source: The number of the table.
            change: What became of its value, as of which :meth:`put` has told.
        """
        changes = {source: change}
        for join in self._joins:
            if join.this in changes:
                change, found, is_kept_alone = changes[join.this], self.of(join.other), join.left
            elif join.other in changes:
                change, found, is_kept_alone = changes[join.other], self.of(join.this), join.right
            else:
                continue
            if found is None and not is_kept_alone:
                continue  # there is no joined value, and there was none
            is_of_this, is_found = join.this in changes, found is not None
            made = [
                join.is_there(own, is_found) if is_of_this else join.is_there(is_found, own)
                for own in (change.is_there, change.was_there)
            ]
            time = change.at if found is None else max(change.at, found)
            changes[join.number] = Change(made[0], made[1], time)
            if join.store is not None:
                self.put(join.number, time, is_there=made[0])
            yield join.number, changes[join.number]

    def put(self, number: int, at: int, *, is_there: bool) -> None:
        """Take in that a table has a value of this time in ms, or that it has none."""
        if is_there:
            self.times[number] = at
        else:
            self.times.pop(number, None)


class TableJoinState(KeyedState):
    """Joins the updates of one key of one stream task.

    Args:
        types: The fields of each source that is a table, by its number.
        joins: As for :class:`KeyTimes`.
        restored: Whether the rows are those of changelogs, and no updates.
        cached: The tables whose updates the library's record cache holds back. Their stores have all of them before the
            first one is joined, which is when the other records of the micro-batch are joined.
        passes_records: Whether there is a row for each record, too, beside the joined values that it gives.
    """

    def __init__(
        self,
        types: Mapping[int, StructType],
        joins: Sequence[JoinOfTables],
        *,
        restored: bool,
        cached: Collection[int] = (),
        passes_records: bool = True,
    ) -> None:
        self._cached = frozenset(cached)
        self._passes_records = passes_records
        self._types = types
        self._joins = joins
        # In the order of their names: an operation that is added before one changes its number.
        self._stored = sorted((join for join in joins if join.store is not None), key=lambda join: str(join.store))
        self._restored = restored

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable."""
        fields = []
        for number, row_type in self._types.items():
            fields += [StructField(f"at{number}", LongType()), StructField(f"t{number}", row_type)]
        fields += [StructField(f"at_store{place}", LongType()) for place in range(len(self._stored))]
        self._state = handle.getValueState("rows", StructType(fields))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a key in a micro-batch."""
        stored = self._state.get() if self._state.exists() else None
        known = iter(stored or [None] * (2 * len(self._types) + len(self._stored)))
        found, values = dict[int, int | None](), dict[int, dict[str, Any] | None]()
        for number in self._types:
            found[number], row = next(known), next(known)
            values[number] = None if row is None else dict(zip(self._types[number].names, row, strict=True))
        found |= {join.number: next(known) for join in self._stored}
        times = KeyTimes(self._joins, {number: at for number, at in found.items() if at is not None})
        held_back: list[tuple[Any, dict[str, Any] | None, Change]] = []
        nothing = {"join": None, **{f"t{number}": None for number in self._types}}
        # A look-up in the same table restores it from every record.
        place = _restored_place if self._restored else lambda row: task_order(row.record)
        for row in sorted(named_tuples(rows), key=place):
            if self._restored:
                times.put(row.source, row.at, is_there=not row.deleted)
                if row.source in values:
                    values[row.source] = None if row.deleted else self._fields(row)
                continue
            is_update = row.source in values and not row.rejected
            if is_update and row.deleted and row.source not in times.times:
                continue  # nothing was there
            if self._passes_records:
                yield Row(**row._asdict(), **nothing)
            if not is_update:
                continue
            value = None if row.deleted else self._fields(row)
            change = Change(not row.deleted, row.source in times.times, row.at)
            values[row.source] = value
            times.put(row.source, row.at, is_there=change.is_there)
            if row.source in self._cached:
                held_back.append((row, value, change))
            else:
                yield from _joined_rows(row, times.joined(row.source, change), values)
        for row, value, change in sorted(held_back, key=lambda held: held[0].source):
            yield from _joined_rows(row, times.joined(row.source, change), {**values, row.source: value})
        if not times.times:
            if stored:
                self._state.clear()
            return
        new: list[Any] = []
        for number, value in values.items():
            new += [times.times.get(number), None if value is None else tuple(value.values())]
        new += [times.times.get(join.number) for join in self._stored]
        if tuple(new) != stored:
            self._state.update(tuple(new))

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _fields(self, row: Any) -> dict[str, Any]:
        fields = getattr(row, f"f{row.source}")
        return {name: fields[name] for name in self._types[row.source].names}


def _joined_rows(
    row: Any, changes: Iterable[tuple[int, Change]], values: Mapping[int, Mapping[str, Any] | None]
) -> Iterator[Row]:
    """Yield a row for each join that an update reaches, with the rows of all tables."""
    for number, change in changes:
        joined = {"at": change.at, f"f{row.source}": None}
        tables = {f"t{each}": value for each, value in values.items()}
        yield Row(**{**row._asdict(), **joined}, join=number, **tables)


def _restored_place(row: Any) -> int:
    """The place of a row in its changelog. A join with a store has the last one of each key, without a record."""
    return 0 if row.record is None else row.record["offset"] or 0
