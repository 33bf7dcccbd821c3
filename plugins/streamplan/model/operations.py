"""The operations of the processors of a topology. Their expressions are Spark SQL.

An expression sees the fields of the record's value by their names, and ``record``: a struct of ``key``,
``timestamp``, ``topic``, ``partition``, ``offset`` and, after a windowed aggregate, ``window`` (``start``, ``end``).

The ``repr()`` of these classes is part of a checkpoint's identity, so neither they nor their fields may be renamed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from streamplan.model.expressions import AGGREGATES
from streamplan.model.functions import PythonFunction
from streamplan.model.windows import JoinWindows, SessionWindows, TimeWindows, duration_ms
from streamplan.serdes.primitive import STRING, KeySerde
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import Serde

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""Field name and expression, in the order of declaration."""

_CALL = re.compile(r"\s*([a-z_]+)\s*\((.*)\)\s*", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class KeySelect:
    """Sets the key to the value of an expression, or of a function, as its serde writes it: by default to its text."""

    key: str | PythonFunction
    key_serde: KeySerde = STRING


@dataclass(frozen=True)
class Filter:
    """Passes the records for which the condition is true."""

    condition: str


@dataclass(frozen=True)
class FilterNot:
    """Passes the records for which the condition is not true: also those for which it is null."""

    condition: str


@dataclass(frozen=True)
class MapValues:
    """A new value for each record."""

    value: Columns


@dataclass(frozen=True)
class Map:
    """A new key and a new value for each record."""

    key: str | PythonFunction
    value: Columns
    key_serde: KeySerde = STRING


@dataclass(frozen=True)
class FlatMap:
    """One record for each element of an array; key and value see it as ``element``."""

    each: str
    key: str
    value: Columns
    key_serde: KeySerde = STRING


@dataclass(frozen=True)
class FlatMapValues:
    """One record for each element of an array, with the key of the record; the value sees it as ``element``."""

    each: str
    value: Columns


@dataclass(frozen=True)
class Split:
    """Decides for each record which branch takes it: the first whose condition is true (``KStreamBranch``).

    Attributes:
        conditions: Of each branch, in their order.
    """

    conditions: tuple[str | PythonFunction, ...]


@dataclass(frozen=True)
class Branch:
    """Passes the records that a branch takes. ``number`` is its place, from 1; 0 takes what no branch takes."""

    number: int


@dataclass(frozen=True)
class FilterFunction:
    """Passes the records for which a function returns True."""

    function: PythonFunction


@dataclass(frozen=True)
class FilterNotFunction:
    """Passes the records for which a function does not return True."""

    function: PythonFunction


@dataclass(frozen=True)
class MapValuesFunction:
    """A new value for each record: what a function returns. ``fields`` has the name and the type of each field."""

    function: PythonFunction
    fields: Columns


@dataclass(frozen=True)
class JoinFunction(MapValuesFunction):
    """The value of a join: what a function makes of both sides. The library's join calls it, and has no node for it."""


@dataclass(frozen=True)
class MapFunction:
    """A new key and a new value for each record: what a function returns.

    The expression ``key`` sees its fields, and a function of the key sees the record before.
    """

    function: PythonFunction
    fields: Columns
    key: str | PythonFunction
    key_serde: KeySerde = STRING


@dataclass(frozen=True)
class FlatMapFunction:
    """One record for each value that a function returns; the expression ``key`` sees the fields of the value."""

    function: PythonFunction
    fields: Columns
    key: str
    key_serde: KeySerde = STRING


@dataclass(frozen=True)
class FlatMapValuesFunction:
    """One record for each value that a function returns, with the key of the record."""

    function: PythonFunction
    fields: Columns


@dataclass(frozen=True)
class ForEach:
    """Calls a function with each record, for what the function does. Nothing comes behind it."""

    function: PythonFunction


@dataclass(frozen=True)
class PeekFunction:
    """Calls a function with each record, for what the function does, and passes the record unchanged."""

    function: PythonFunction


@dataclass(frozen=True, repr=False)
class Process:
    """Calls a Python class with each record and the value that a state store has of its key.

    Attributes:
        function: The class. It is called without arguments.
        store: The state store.
        state: Name and type of each field of the store's values.
        fields: Name and type of each field of the records that the class returns.
        timer: The field of the store's values that has the time of the key's timer; None without timers.
        ttl: A duration: a value that was not put for so long is gone. None keeps it.
    """

    function: PythonFunction
    store: str
    state: Columns
    fields: Columns
    timer: str | None = None
    ttl: str | None = None

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity: what the store holds, and not what the class does with it."""
        fields = ", ".join(f"{name} {of_field}" for name, of_field in self.state)
        state = f", state={fields!r}" if fields else ""
        timer = "" if self.timer is None else f", timer={self.timer!r}"
        return f"{type(self).__name__}(store={self.store!r}{state}{timer})"

    @property
    def ttl_ms(self) -> int | None:
        """The time to live in ms; None without one. Raises ValueError where it is no duration."""
        return None if self.ttl is None else duration_ms(self.ttl)


@dataclass(frozen=True, repr=False)
class ReduceFunction(Process):
    """Keeps for each key what a function makes of the value so far and of that of a record (``KStreamReduce``).

    The fields of the store and of the results are those of the records. They are known when the query is planned.
    """


@dataclass(frozen=True, repr=False, kw_only=True)
class AggregateFunction(Process):
    """Keeps for each key what a function makes of the aggregate so far and of a record (``KStreamAggregate``).

    Attributes:
        initializer: Gives the aggregate of a key of which there is none.
    """

    initializer: PythonFunction


@dataclass(frozen=True, repr=False, kw_only=True)
class SuppressUpdates(Process):
    """Holds back the updates of a table for some time, and passes the last of each key (``KTable.suppress``).

    Its store is the buffer. The fields are those of the table. They are known when the query is planned.

    Attributes:
        limit_ms: How much older than the newest update the first update of a key is when its last one is passed.
        max_records: How many keys wait at most; None for any number.
        shuts_down: Whether the application stops when there are more. Otherwise those are passed that wait longest.
        window: The windows of the table; None for a table without windows.
    """

    limit_ms: int
    max_records: int | None = None
    shuts_down: bool = False
    window: TimeWindows | SessionWindows | None = None

    @classmethod
    def of(cls, store: str, limit_ms: int, max_records: int | None, **limits: Any) -> SuppressUpdates:
        """Return the operation with a buffer. ``limits`` are further fields."""
        held = PythonFunction("suppress", cls)  # nobody calls it: no code of the declaration runs here
        waits_for = "time limit" if limits.get("window") is None else "time limit of windows"
        return cls(held, store, (), (), waits_for, limit_ms=limit_ms, max_records=max_records, **limits)


BUFFER = "-Buffer"
"""How the name of the buffer of a join with a grace period ends (``KStreamImpl.doStreamTableJoin``)."""


@dataclass(frozen=True, repr=False, kw_only=True)
class BufferRecords(Process):
    """Holds back the records of a stream before they are joined with a versioned table (``Joined.withGracePeriod``).

    Its store is the buffer of the join. The library has no node for it. The fields are those of the records. They are
    known when the query is planned.

    Attributes:
        grace_ms: How much older than the newest record a record is when it is passed.
        left: Whether records without a row are joined, too.
    """

    grace_ms: int
    left: bool

    @classmethod
    def of(cls, store: str, grace_ms: int, *, left: bool) -> BufferRecords:
        """Return the operation with a buffer."""
        held = PythonFunction("the grace period", cls)  # nobody calls it: no code of the declaration runs here
        return cls(held, store, (), (), "time", grace_ms=grace_ms, left=left)


@dataclass(frozen=True)
class Schedule:
    """A punctuator of a Python class.

    Attributes:
        interval_ms: It is called again after so long.
        wall_clock: Whether it goes by the wall clock, and not by the stream time.
    """

    interval_ms: int
    wall_clock: bool


@dataclass(frozen=True)
class GlobalStore:
    """The store of a global table, as a Python class reads it. In the library no processor is connected with it.

    Attributes:
        store: The name of the store.
        topic: The topic of the table.
        row: Reads the values of the table.
        key_serde: The serde of its keys.
    """

    store: str
    topic: str
    row: Serde
    key_serde: KeySerde


@dataclass(frozen=True)
class ProcessWithStores:
    """Calls a Python class with each record. It has all keys of its stream task in some stores.

    Attributes:
        function: The class. It is called without arguments.
        stores: The state stores. What each holds says a :class:`StateStore`.
        fields: Name and type of each field of the records that the class forwards; none where it forwards nothing.
        key_serde: The serde of their keys.
        schedules: What the class schedules.
        global_stores: The stores of global tables that it reads.
    """

    function: PythonFunction
    stores: tuple[str, ...]
    fields: Columns
    key_serde: KeySerde
    schedules: tuple[Schedule, ...] = ()
    global_stores: tuple[GlobalStore, ...] = field(default=(), repr=False)

    keeps_key: ClassVar[bool] = False


@dataclass(frozen=True)
class ProcessValuesWithStores(ProcessWithStores):
    """The same of a class that cannot give a record another key (``FixedKeyProcessor``)."""

    keeps_key: ClassVar[bool] = True


@dataclass(frozen=True)
class ProcessWithoutStores:
    """Calls a Python class with each record. It keeps nothing, and forwards any number of records.

    Attributes:
        function: The class. It is called without arguments.
        fields: Name and type of each field of the records that the class forwards.
        key_serde: The serde of their keys.
        keeps_key: Whether they have the key of the record (``FixedKeyProcessor``).
        global_stores: The stores of global tables that it reads.
    """

    function: PythonFunction
    fields: Columns
    key_serde: KeySerde
    keeps_key: bool = False
    global_stores: tuple[GlobalStore, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class ProcessToAct(ProcessWithoutStores):
    """Calls a Python class with each record, for what the class does: it forwards nothing."""


@dataclass(frozen=True)
class StateStore:
    """Writes what processors have put into a store (``StreamsBuilder.addStateStore``). The library has no node for it.

    Attributes:
        store: The state store.
        key_serde: The serde of its keys.
        value: The serde of its values.
        retention_ms: How long a window is kept; None for a store without windows.
        window_ms: How long a window is.
        retain_duplicates: Whether a window keeps all values of a key.
    """

    store: str
    key_serde: KeySerde
    value: Serde
    retention_ms: int | None = None
    window_ms: int = 0
    retain_duplicates: bool = False


@dataclass(frozen=True)
class SessionStateStore(StateStore):
    """Writes what processors have put into a store of sessions."""


@dataclass(frozen=True)
class TimestampedStateStore(StateStore):
    """Writes what processors have put into a store whose values have a time: it is that of the changelog's record."""


@dataclass(frozen=True)
class VersionedStateStore(StateStore):
    """Writes what processors have put into a store that keeps earlier values: each put, with the time of its value.

    Attributes:
        history_ms: How long a value is kept after another one has replaced it.
    """

    history_ms: int = 0


@dataclass(frozen=True)
class Merge:
    """Passes the records of two streams."""


@dataclass(frozen=True)
class SeveralTopics:
    """Passes the records of several topics, which the library reads with one source node."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Peek:
    """Reports aggregates of the passing records for each micro-batch (Spark's ``Dataset.observe``)."""

    metrics: Columns


@dataclass(frozen=True)
class NullKeyFilter:
    """Keeps records without a key out of a repartition topic. They are dead-lettered, where Kafka Streams drops them.

    Where it is ``relaxed`` they pass, because a left join follows, which takes them (KIP-962).
    """

    relaxed: bool = False


@dataclass(frozen=True)
class Count:
    """Counts the records of each key, and window, into a state store."""

    store: str
    window: TimeWindows | SessionWindows | None = None


@dataclass(frozen=True)
class AggregateColumn:
    """One aggregate: ``function`` of :data:`AGGREGATES`, ``arguments`` the text between its parentheses."""

    name: str
    function: str
    arguments: str

    @classmethod
    def parse(cls, name: str, expression: str) -> AggregateColumn:
        """Read an expression such as ``sum(amount)``.

        Raises:
            ValueError: The expression is not one call of a function in :data:`AGGREGATES`.
        """
        call = _CALL.fullmatch(expression)
        function = call[1].lower() if call else ""
        if call is None or function not in AGGREGATES or not _closes_last(call[2]):
            raise ValueError(f"{expression!r} is not one call of {', '.join(AGGREGATES)}")
        return cls(name, function, call[2].strip())


@dataclass(frozen=True)
class Aggregate:
    """Folds the records of each key, and window, into a state store."""

    store: str
    columns: tuple[AggregateColumn, ...]
    window: TimeWindows | SessionWindows | None = None


@dataclass(frozen=True)
class FinalCount(Count):
    """A count that passes the result of each window once, when the window closes (``EmitStrategy.onWindowClose``).

    Attributes:
        idle_ms: A stream task without a record for so long goes on by the wall clock; None where it does not.
        suppressed: Whether ``suppress`` waits for the windows. It passes sessions and sliding windows a millisecond
            earlier than ``emit_strategy`` (``KTableSuppressProcessorSupplier``).
    """

    idle_ms: int | None = None
    suppressed: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class FinalAggregate(Aggregate):
    """An aggregate that passes the result of each window once, when the window closes.

    Attributes:
        idle_ms: As for :class:`FinalCount`.
        suppressed: As for :class:`FinalCount`.
    """

    idle_ms: int | None = None
    suppressed: bool = field(default=False, repr=False)


@dataclass(frozen=True, repr=False, kw_only=True)
class AggregateWindowsFunction(Aggregate):
    """Keeps for each key and window what Python functions make of the aggregate so far and of a record.

    These are ``KStreamWindowAggregate`` and ``KStreamSessionWindowAggregate``.

    Attributes:
        function: The aggregator, or the reducer.
        fields: Name and type of each field of the aggregate. Those of a reducer are known when the query is planned:
            they are those of the records.
        initializer: Gives the aggregate of a window of which there is none; None for a reducer.
        merger: Makes one of the aggregates of two sessions; None for time windows, and for a reducer.
    """

    function: PythonFunction
    fields: Columns
    initializer: PythonFunction | None = None
    merger: PythonFunction | None = None

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity: what the store holds, and not what the functions do with it."""
        fields = ", ".join(f"{name} {of_field}" for name, of_field in self.fields)
        state = f", state={fields!r}" if fields else ""
        return f"AggregateWindowsFunction(store={self.store!r}{state}, window={self.window!r})"


@dataclass(frozen=True, repr=False, kw_only=True)
class FinalAggregateWindowsFunction(AggregateWindowsFunction, FinalAggregate):
    """The same with the result of each window once, when the window closes."""


@dataclass(frozen=True)
class CogroupSide:
    """Takes the records of one of several grouped streams that are folded into one state store.

    Attributes:
        store: The state store.
        columns: What the records of this stream are folded into.
        window: The windows, where there are.
    """

    store: str
    columns: tuple[AggregateColumn, ...]
    window: TimeWindows | SessionWindows | None = None

    @property
    def arguments(self) -> Columns:
        """The fields that a record of the stream gives: the arguments of the functions."""
        return tuple(
            (f"{column.name}_{place}", argument)
            for column in self.columns
            for place, argument in enumerate(_arguments_of_side(column))
        )


@dataclass(frozen=True, repr=False)
class Cogroup(Aggregate):
    """Folds the records of several grouped streams into one state store.

    A record has the fields of :attr:`CogroupSide.arguments` of all streams. Those of the other streams are null, and
    every function passes over null. The functions of ``columns`` are called with these fields.

    Attributes:
        streams: What the records of each stream are folded into.
    """

    streams: tuple[tuple[AggregateColumn, ...], ...] = ()

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity: what is declared, and not what is computed of it."""
        return f"Cogroup(store={self.store!r}, columns={[*map(list, self.streams)]!r}, window={self.window!r})"

    @classmethod
    def of(
        cls,
        store: str,
        streams: tuple[tuple[AggregateColumn, ...], ...],
        window: TimeWindows | SessionWindows | None = None,
    ) -> Cogroup:
        """Return the operation of a store.

        Args:
            store: The state store.
            streams: What the records of each stream are folded into. A field that several streams have has one
                function.
            window: The windows, where there are.
        """
        columns = {}
        for column in (column for columns_of_stream in streams for column in columns_of_stream):
            names = (f"`{column.name}_{place}`" for place, _ in enumerate(_arguments_of_side(column)))
            columns[column.name] = AggregateColumn(column.name, column.function, ", ".join(names))
        return cls(store, tuple(columns.values()), window, streams)


@dataclass(frozen=True)
class Reduce:
    """Keeps the value of one record of each key: of the greatest ``by``, or of the least, and of equals the latest."""

    store: str
    by: str
    greatest: bool


@dataclass(frozen=True)
class TableSource:
    """Reads a topic as a table: the last value of a key counts, and a null value deletes the key.

    ``store`` is None if no join looks anything up in it.
    """

    store: str | None


@dataclass(frozen=True)
class VersionedTableSource(TableSource):
    """The same, and keeps a value for so many ms after another one has replaced it."""

    history_ms: int


@dataclass(frozen=True)
class Join:
    """Looks up the record's key in a table. ``left`` also passes records without a match."""

    store: str
    value: Columns
    left: bool


@dataclass(frozen=True)
class BufferedJoin(Join):
    """The same of records that :class:`BufferRecords` has held back.

    Attributes:
        buffer: The store of the buffer.
    """

    buffer: str


STREAM_OF_RECORD = "stream"
"""The field with the number of the stream of a record, where functions aggregate several streams."""


def value_of_stream(number: int) -> str:
    """Return the name of the field with the value of a record, where functions aggregate several streams."""
    return f"value{number}"


@dataclass(frozen=True, repr=False, kw_only=True)
class CogroupFunctionSide(CogroupSide):
    """Takes the records of one of several grouped streams that Python functions aggregate.

    Attributes:
        number: That of the stream.
    """

    number: int


@dataclass(frozen=True, repr=False, kw_only=True)
class CogroupFunctions(AggregateWindowsFunction, Cogroup):
    """Keeps for each key, and window, what Python functions make of the records of several grouped streams.

    A record has the field :data:`STREAM_OF_RECORD`, and its value in a field of its own.

    Attributes:
        aggregators: The function of each stream.
    """

    aggregators: tuple[PythonFunction, ...]

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity: what the store holds, and not what the functions do with it."""
        fields = ", ".join(f"{name} {of_field}" for name, of_field in self.fields)
        return f"CogroupFunctions(store={self.store!r}, state={fields!r}, window={self.window!r})"


@dataclass(frozen=True)
class GlobalTableSource:
    """Reads a topic as a global table: each stream task has all of its rows (``GlobalKTable``).

    Attributes:
        store: The state store. It has no changelog: the topic is read again.
    """

    store: str


@dataclass(frozen=True)
class GlobalJoin:
    """Looks up a key that is computed from the record in a global table (``KStreamGlobalKTableJoin``).

    Attributes:
        topic: The topic of the table.
        row: Reads the values of the table.
        key_serde: Writes the key: that of the table's keys.
        key: An expression, or a Python function, of the key.
        value: The joined value. It is a function of the record and of the row.
        left: Whether a record without a match passes, too.
    """

    topic: str
    row: Serde
    key_serde: KeySerde
    key: str | PythonFunction
    value: Columns
    left: bool

    def with_schemas(self, schemas: SchemaSource) -> GlobalJoin:
        """Return the same with a serde that looks up schemas."""
        return replace(self, row=self.row.with_schemas(schemas, self.topic))


@dataclass(frozen=True)
class StoreForJoin:
    """Stores the records of one side of a join of two streams (``KStreamJoinWindow``)."""

    store: str
    windows: JoinWindows


@dataclass(frozen=True)
class JoinSide:
    """Looks up the records of one side of a join of two streams in the store of the other (``KStreamKStreamJoin``)."""

    store: str


@dataclass(frozen=True)
class OuterJoinSide:
    """As :class:`JoinSide`, of a left or outer join.

    Both sides share ``store``. It holds the records that have met none of the other stream so far.

    Attributes:
        store: The store that both sides share.
        looked_up: The store of the other side.
        windows: How far apart in time two records may be.
        writes: Whether this side stands for both where the shared store is written. It is so for one of them.
    """

    store: str
    looked_up: str
    windows: JoinWindows
    writes: bool


@dataclass(frozen=True)
class StreamJoin:
    """Passes what both sides of a join of two streams have found, with a new value."""

    windows: JoinWindows
    value: Columns


@dataclass(frozen=True)
class OuterStreamJoin(StreamJoin):
    """Passes the records of this stream without a match, too, when their window is over.

    Attributes:
        both: Whether those of the other stream pass as well: an outer join, and not a left join.
    """

    both: bool


@dataclass(frozen=True)
class TableJoinSide:
    """Takes the updates of one side of a join of two tables, and looks up the other (``KTableKTableAbstractJoin``).

    ``stores`` are those that the other side's values come from.
    """

    stores: tuple[str, ...]


@dataclass(frozen=True)
class TableJoin:
    """Passes the updates of the joined value of each key (``KTableKTableJoinMerger``).

    Attributes:
        value: The joined value. It is a function of both values and of the key.
        left: Whether a value of this table without one of the other is joined, too.
        right: Whether a value of the other table without one of this is joined, too.
        store: The state store of the result; None for a result without one.
    """

    value: Columns
    left: bool
    right: bool
    store: str | None


@dataclass(frozen=True)
class SubscriptionSend:
    """Subscribes to the foreign key of each value of this table (``SubscriptionSendProcessorSupplier``).

    Attributes:
        store: The state store of this table.
        foreign_key: An expression over the value, or a Python function; null where there is no foreign key.
        key_serde: Writes the foreign key: that of the other table's keys.
        left: Whether the join is a left join.
    """

    store: str
    foreign_key: str | PythonFunction
    key_serde: KeySerde
    left: bool


@dataclass(frozen=True)
class SubscriptionReceive:
    """Stores the subscriptions to the keys of the other table (``SubscriptionReceiveProcessorSupplier``).

    Attributes:
        store: The state store.
        foreign_key: As for :class:`SubscriptionSend`. With another one the store holds other subscriptions.
        primary_keys: Reads and writes the keys of this table, which stand behind the foreign key in the store's keys.
        left: As for :class:`SubscriptionSend`.
    """

    store: str
    foreign_key: str | PythonFunction
    primary_keys: KeySerde
    left: bool


@dataclass(frozen=True)
class SubscriptionJoin:
    """Responds to a subscription with a value of the other table (``SubscriptionJoinProcessorSupplier``).

    Attributes:
        store: The state store of the other table.
        key_serde: Reads and writes the keys of this table, to which the responses go.
    """

    store: str
    key_serde: KeySerde


@dataclass(frozen=True)
class ForeignTableJoin:
    """Responds to all subscriptions of a key of the other table that changes (``ForeignTableJoinProcessorSupplier``).

    Attributes:
        store: The state store with the subscriptions.
        key_serde: As for :class:`SubscriptionJoin`.
    """

    store: str
    key_serde: KeySerde


@dataclass(frozen=True)
class ResponseJoin:
    """Joins a response with the value that this table has now (``ResponseJoinProcessorSupplier``).

    Attributes:
        store: The state store of this table.
        value: The joined value. It is a function of both values and of the key.
        left: Whether a value of this table without one of the other is joined, too.
    """

    store: str
    value: Columns
    left: bool


@dataclass(frozen=True)
class ForeignKeyResult:
    """Passes the updates of a table that was joined by a foreign key.

    Attributes:
        value: As for :class:`ResponseJoin`. With another one the store holds other values.
        left: As for :class:`ResponseJoin`.
        store: The state store of the result; None for a result without one.
    """

    value: Columns
    left: bool
    store: str | None


@dataclass(frozen=True)
class TableFilter:
    """Passes the updates of a table; a value for which the condition is not true becomes null (``KTableFilter``).

    Attributes:
        condition: An expression, or a Python function, of the value and the key.
        negated: Whether the values stay for which it is not true.
        store: The state store of the result; None for a result without one.
        old_values: Whether the table before it sends old values (``enableSendingOldValues``). Then the deletion of a
            key is left out whose old value was not kept either.
    """

    condition: str | PythonFunction
    negated: bool
    store: str | None
    old_values: bool


@dataclass(frozen=True)
class TableMapValues:
    """Passes the updates of a table with a new value; a null value stays null (``KTableMapValues``).

    Attributes:
        value: The new value. It is a function of the value and the key.
        store: The state store of the result; None for a result without one.
    """

    value: Columns
    store: str | None


@dataclass(frozen=True, kw_only=True)
class TableMapValuesFunction(TableMapValues):
    """The same with what a Python function returns. ``fields`` has the name and the type of each field."""

    function: PythonFunction
    fields: Columns


@dataclass(frozen=True)
class TableKeySelect:
    """Passes what a table had of a key and what it has now, each to its new key (``KTableRepartitionMap``).

    Attributes:
        key: The new key. It is an expression, or a Python function, of the value and the key.
        key_serde: Writes it.
    """

    key: str | PythonFunction
    key_serde: KeySerde = STRING


@dataclass(frozen=True, repr=False, kw_only=True)
class TableReduce(Process):
    """Keeps for each new key of a grouped table what functions make of the values that come and go (``KTableReduce``).

    ``function`` is given the value so far and one that comes. The fields of the store are those of the table, which are
    known when the query is planned.

    Attributes:
        subtractor: Is given the value so far and one that goes.
    """

    subtractor: PythonFunction


@dataclass(frozen=True, repr=False, kw_only=True)
class TableAggregate(TableReduce):
    """The same of an aggregate (``KTableAggregate``). The functions are given the key, the value and the aggregate.

    Attributes:
        initializer: Gives the aggregate of a key of which there is none.
    """

    initializer: PythonFunction


@dataclass(frozen=True, repr=False, kw_only=True)
class TableCount(TableAggregate):
    """Counts the keys of a table by their new keys. The store has numbers of 8 bytes, as that of :class:`Count`."""

    @classmethod
    def of(cls, store: str) -> TableCount:
        """Return the operation of a store."""
        columns = (("count", "bigint"),)
        added, removed, begun = (
            PythonFunction(f"{__name__}.{function.__name__}", function) for function in (_added, _removed, _begun)
        )
        return cls(added, store, columns, columns, subtractor=removed, initializer=begun)


@dataclass(frozen=True)
class ToTable:
    """The records of a stream as the updates of a table: a null value deletes its key (``KStream.toTable``).

    Attributes:
        store: The state store of the table; None for a table without one.
    """

    store: str | None


@dataclass(frozen=True)
class ToStream:
    """The updates of a table, or of an aggregate, as a stream."""


@dataclass(frozen=True)
class Suppress:
    """Passes the result of each window once, when the window closes (``KTable.suppress``).

    The aggregate before it passes nothing else (:class:`FinalCount`, :class:`FinalAggregate`), and knows the windows
    that are open. So the buffer holds nothing that the store of the aggregate does not have, and has no changelog.

    Attributes:
        store: The name that the library gives to the buffer.
    """

    store: str


Operation: TypeAlias = (
    KeySelect
    | Filter
    | FilterNot
    | MapValues
    | Map
    | FlatMap
    | FlatMapValues
    | Split
    | Branch
    | FilterFunction
    | FilterNotFunction
    | MapValuesFunction
    | MapFunction
    | FlatMapFunction
    | FlatMapValuesFunction
    | ForEach
    | PeekFunction
    | Process
    | ProcessWithStores
    | ProcessWithoutStores
    | StateStore
    | Merge
    | SeveralTopics
    | Peek
    | NullKeyFilter
    | Count
    | Aggregate
    | CogroupSide
    | Reduce
    | TableSource
    | Join
    | GlobalTableSource
    | GlobalJoin
    | StoreForJoin
    | JoinSide
    | OuterJoinSide
    | StreamJoin
    | TableJoinSide
    | TableJoin
    | SubscriptionSend
    | SubscriptionReceive
    | SubscriptionJoin
    | ForeignTableJoin
    | ResponseJoin
    | ForeignKeyResult
    | TableFilter
    | TableMapValues
    | TableKeySelect
    | ToTable
    | ToStream
    | Suppress
)


SETS_KEY = (
    *(KeySelect, TableKeySelect, Map, MapFunction, FlatMap, FlatMapFunction),
    *(ProcessWithStores, ProcessWithoutStores),
)
"""The operations that give a record another key."""

SENDS = (SubscriptionSend, SubscriptionJoin, ForeignTableJoin)
"""The operations of a join by a foreign key that write to the key of the other table, or back to that of this one."""

MAKES_SEVERAL = (FlatMap, FlatMapFunction, FlatMapValues, FlatMapValuesFunction, ProcessWithoutStores)
"""The operations that may give several records for a record."""

ACTS = (ForEach, PeekFunction, ProcessToAct)
"""The operations that call a function, or a class, for what it does, and not for what it returns."""

LEAVES_OUT = (*MAKES_SEVERAL, Filter, FilterFunction, FilterNot, FilterNotFunction, Branch, Process, ProcessWithStores)
"""The operations that may give no record for a record."""


def until_closed(operation: Count | Aggregate) -> FinalCount | FinalAggregate:
    """Return the same aggregate of windows, which passes the final results alone, as ``suppress`` does."""
    if isinstance(operation, Count):
        return FinalCount(operation.store, operation.window, suppressed=True)
    if isinstance(operation, AggregateWindowsFunction):
        return FinalAggregateWindowsFunction(
            operation.store,
            operation.columns,
            operation.window,
            function=operation.function,
            fields=operation.fields,
            initializer=operation.initializer,
            merger=operation.merger,
            suppressed=True,
        )
    return FinalAggregate(operation.store, operation.columns, operation.window, suppressed=True)


def stored_by(operation: Operation) -> Operation:
    """Return an operation by what its store holds: whether it passes updates or final results makes no difference."""
    match operation:
        case FinalCount(store=store, window=window):
            return Count(store, window)
        case FinalAggregateWindowsFunction(store=store, columns=columns, window=window, fields=fields):
            functions = {"initializer": operation.initializer, "merger": operation.merger}
            return AggregateWindowsFunction(
                store, columns, window, function=operation.function, fields=fields, **functions
            )
        case FinalAggregate(store=store, columns=columns, window=window):
            return Aggregate(store, columns, window)
    return operation


def arguments_of_call(column: AggregateColumn) -> list[str]:
    """Return the arguments of the call. ``count(*)`` counts a constant."""
    if column.function == "count" and column.arguments == "*":
        return ["1"]
    return _split_arguments(column.arguments)


def global_topics_of(operation: Operation) -> tuple[str, ...]:
    """The topics of the global tables in which an operation looks up."""
    match operation:
        case GlobalJoin(topic=topic):
            return (topic,)
        case ProcessWithStores() | ProcessWithoutStores():
            return tuple(each.topic for each in operation.global_stores)
    return ()


def with_schemas_of_tables(operation: Operation, schemas: SchemaSource) -> Operation:
    """Return an operation with serdes of global tables that look up schemas."""
    match operation:
        case GlobalJoin():
            return operation.with_schemas(schemas)
        case ProcessWithStores() | ProcessWithoutStores() if operation.global_stores:
            read = (replace(each, row=each.row.with_schemas(schemas, each.topic)) for each in operation.global_stores)
            return replace(operation, global_stores=tuple(read))
    return operation


def function_of(operation: Operation) -> PythonFunction | None:
    """The Python function whose results for each record an operation gives; None for an operation without one."""
    match operation:
        case FilterFunction() | FilterNotFunction() | MapValuesFunction() | MapFunction():
            return operation.function
        case FlatMapFunction() | FlatMapValuesFunction() | Process() | ProcessWithStores() | ProcessWithoutStores():
            return operation.function
        case AggregateWindowsFunction() | TableMapValuesFunction():
            return operation.function
        case (
            KeySelect(key=PythonFunction() as function)
            | Map(key=PythonFunction() as function)
            | TableKeySelect(key=PythonFunction() as function)
            | GlobalJoin(key=PythonFunction() as function)
            | TableFilter(condition=PythonFunction() as function)
            | SubscriptionSend(foreign_key=PythonFunction() as function)
        ):
            return function
    return None


def _added(key: object, value: object, aggregate: Any) -> dict[str, int]:
    return {"count": aggregate.count + 1}


def _removed(key: object, value: object, aggregate: Any) -> dict[str, int]:
    return {"count": aggregate.count - 1}


def _begun() -> dict[str, int]:
    return {"count": 0}


def _closes_last(arguments: str) -> bool:
    """Whether the parentheses are balanced, so that the last one closes the first one of the call."""
    depth = 0
    for character in re.sub(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", "", arguments):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def _arguments_of_side(column: AggregateColumn) -> list[str]:
    """The arguments of a call; of a count one that is null where nothing is counted."""
    arguments = arguments_of_call(column)
    if column.function != "count":
        return arguments
    present = " and ".join(f"({argument}) is not null" for argument in arguments)
    return [f"if({present}, 1, null)"]


def _split_arguments(text: str) -> list[str]:
    """Split the arguments of a call at the commas outside of parentheses, brackets and quotes."""
    arguments, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[position - 1] != "\\" else quote
        elif character in "'\"`":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            arguments.append(text[start:position].strip())
            start = position + 1
    return [*arguments, text[start:].strip()]
