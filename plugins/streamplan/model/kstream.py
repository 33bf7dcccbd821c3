"""The words of Kafka Streams' DSL: ``org.apache.kafka.streams.kstream``, in Python, over Spark SQL expressions.

Every method takes ``name``, the name of its processor (``Named.as``); left out, the library's numbering gives one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamplan.model.diagnostics import name_fault
from streamplan.model.operations import (
    Aggregate,
    AggregateColumn,
    Columns,
    Count,
    Filter,
    FlatMap,
    Join,
    KeySelect,
    Map,
    MapValues,
    Merge,
    Operation,
    Peek,
    Reduce,
    ToStream,
)
from streamplan.model.streams_graph import GraphNode, Repartition, StreamsGraph
from streamplan.model.windows import TimeWindows

LATEST = "record.offset"

_RESERVED = ("record", "table", "element")
_LITERALS = ("true", "false", "null")
_BARE_NAMES = re.compile(r"[\w\s,]*")
_FIELD_OF_TABLE = re.compile(r"table\.(\w+)")


@dataclass(frozen=True, eq=False)
class _Declared:
    """What streams and tables have in common.

    ``fields``   names of the value's fields; None where they are not known, behind a fault
    ``key``      what the key is, in a word: joins compare it; None where it was not said
    ``window``   of a windowed key
    ``sources``  names of the sources of the sub-topology so far
    """

    graph: StreamsGraph
    node: GraphNode
    fields: tuple[str, ...] | None
    key: str | None
    sources: frozenset[str]
    window: TimeWindows | None = None

    def _field(self, text: str, what: str) -> None:
        """A fault where ``text`` is the bare name of a field that there is not. Spark judges longer expressions."""
        known = self.fields is None or text in self.fields or text in _RESERVED or text.lower() in _LITERALS
        if self.fields is not None and text.isidentifier() and not known:
            self.graph.fault(f"{what}: the value has no field {text!r}", f"It has: {', '.join(self.fields) or 'none'}")

    def _columns(self, value: Mapping[str, str], what: str) -> Columns:
        if not value:
            self.graph.fault(f"{what}: the value has no field", "Name at least one: {'field': 'expression'}")
        for name, expression in value.items():
            self._field(expression, f"{what}, {name}")
            if name in _RESERVED or not name.isidentifier():
                self.graph.fault(
                    f"{what}: a field cannot be named {name!r}", f"Not {', '.join(_RESERVED)}; an identifier"
                )
        return tuple(value.items())


@dataclass(frozen=True, eq=False)
class KStream(_Declared):
    """A stream of records. ``repartition_required``: the key has changed since records were last placed by it."""

    repartition_required: bool = False
    _repartition: list[Repartition] = field(default_factory=list)
    """The repartition node that was last made for a join of this stream: a join without a name takes it."""

    # -- record by record

    def filter(self, condition: str, *, name: str | None = None) -> KStream:
        """The records for which ``condition`` is true."""
        self._field(condition, "filter")
        return self._then("KSTREAM-FILTER-", name, Filter(condition))

    def map_values(self, value: Mapping[str, str], *, name: str | None = None) -> KStream:
        """A new value of the fields ``{name: expression}``; the key stays."""
        columns = self._columns(value, "map_values")
        return self._then("KSTREAM-MAPVALUES-", name, MapValues(columns), fields=tuple(value))

    def select_key(self, key: str, *, name: str | None = None) -> KStream:
        """A new key, the text of an expression. A grouping or join that follows repartitions the stream."""
        self._field(key, "select_key")
        return self._then("KSTREAM-KEY-SELECT-", name, KeySelect(key), key=_word(key), rekeyed=True)

    def map(self, key: str, value: Mapping[str, str], *, name: str | None = None) -> KStream:
        """A new key and a new value."""
        self._field(key, "map")
        columns = self._columns(value, "map")
        return self._then("KSTREAM-MAP-", name, Map(key, columns), fields=tuple(value), key=_word(key), rekeyed=True)

    def flat_map(self, each: str, *, key: str, value: Mapping[str, str], name: str | None = None) -> KStream:
        """One record for each element of the array ``each``; ``key`` and ``value`` see it as ``element``."""
        self._field(each, "flat_map")
        self._field(key, "flat_map")
        columns = self._columns(value, "flat_map")
        operation = FlatMap(each, key, columns)
        return self._then("KSTREAM-FLATMAP-", name, operation, fields=tuple(value), key=None, rekeyed=True)

    def peek(self, metrics: Mapping[str, str], *, name: str | None = None) -> KStream:
        """Logs aggregates such as ``{"orders": "count(*)"}`` of the records of each micro-batch."""
        return self._then("KSTREAM-PEEK-", name, Peek(self._columns(metrics, "peek")))

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """The records of both streams, which have the same fields."""
        if not self._can_take(other, KStream, "merge", "Merge a stream; a table's updates are one: .to_stream()"):
            return replace(self, fields=None)
        if self.fields is not None and other.fields is not None and set(self.fields) != set(other.fields):
            self.graph.fault(
                f"merge: the streams have different fields: {', '.join(self.fields)} and {', '.join(other.fields)}",
                "Give both the same with map_values",
            )
        if self.window != other.window:
            self.graph.fault("merge: one of the streams has a windowed key", "Give it a plain one with select_key")
        named = self.graph.name(name, "KSTREAM-MERGE-")
        return KStream(
            self.graph,
            self.graph.processor(named, Merge(), self.node, other.node),
            self.fields,
            self.key if self.key == other.key else None,
            self.sources | other.sources,
            self.window,
            self.repartition_required or other.repartition_required,
        )

    # -- through topics

    def repartition(self, *, number_of_partitions: int | None = None, name: str | None = None) -> KStream:
        """Through a repartition topic, of a number of partitions of your own where it is given."""
        if number_of_partitions is not None and number_of_partitions < 1:
            self.graph.fault(f"repartition: {number_of_partitions} partitions", "A topic has at least 1")
        self._refuse_window("repartition")
        prefix = self._name_of_topic(name) or self.graph.next_name("KSTREAM-REPARTITION-")
        drawn = self.graph.draw_repartition(prefix, number_of_partitions)
        self.graph.add_repartition(drawn, self.node)
        return KStream(self.graph, drawn.node, self.fields, self.key, frozenset({drawn.source}))

    def to(self, topic: str, *, name: str | None = None) -> None:
        """Writes the records to a topic from outside."""
        if fault := name_fault(topic):
            self.graph.fault(f"to: {fault}", "Choose a legal name")
        self.graph.sink(self.graph.name(name, "KSTREAM-SINK-"), topic, self.node)

    # -- grouping

    def group_by(self, key: str, *, name: str | None = None) -> KGroupedStream:
        """Group by an expression. The key changes, so the records go through a repartition topic.

        ``name`` names the repartition topic ``<application.id>-<name>-repartition`` (``Grouped.as``).
        """
        self._field(key, "group_by")
        rekeyed = self._then("KSTREAM-KEY-SELECT-", name, KeySelect(key), key=_word(key), rekeyed=True)
        return rekeyed._grouped(name)

    def group_by_key(self, *, name: str | None = None) -> KGroupedStream:
        """Group by the key there is. Repartitioned only where an operation before has changed it."""
        self._refuse_window("group_by_key")
        return self._grouped(self._name_of_topic(name))

    # -- joins

    def join(self, table: KTable, value: Mapping[str, str] | None = None, *, name: str | None = None) -> KStream:
        """Each record with the table's value of the same key; a record without one is dropped.

        In ``value`` the table's fields are ``table.<field>``. Left out: the fields of both.
        """
        return self._join(table, value, name, left=False)

    def left_join(self, table: KTable, value: Mapping[str, str] | None = None, *, name: str | None = None) -> KStream:
        """As :meth:`join`; a record without a match is passed with the table's fields null."""
        return self._join(table, value, name, left=True)

    def _join(self, table: KTable, value: Mapping[str, str] | None, name: str | None, *, left: bool) -> KStream:
        what = "left_join" if left else "join"
        self._refuse_window(what)
        if not self._can_take(table, KTable, what, "Join a stream with a table: Topology.table()"):
            return replace(self, fields=None)
        if table.window is not None:
            self.graph.fault(f"{what}: on unlike keys: the table's is windowed", "Join a table with a plain key")
        if self.key is not None and table.key is not None and self.key != table.key:
            self.graph.fault(
                f"{what}: on unlike keys: the stream's is {self.key!r}, the table's {table.key!r}",
                f"Before it, select_key({table.key!r}); or, when they are the same thing, name them alike: key='…'",
            )
        stream = self
        if self.repartition_required:
            prefix = name or self.node.name
            drawn = self.graph.draw_repartition(prefix)
            if not self._repartition or self.node.name != prefix:
                self._repartition[:] = [drawn]
                self.graph.add_repartition(drawn, self.node)
            (made,) = self._repartition
            stream = replace(
                self, node=made.node, sources=frozenset({made.source}), repartition_required=False, _repartition=[]
            )
        sources = stream.sources | table.sources
        self.graph.copartition_groups.append(sources)
        table.materialize()
        columns = self._joined(table, value, what)
        named = self.graph.name(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
        node = self.graph.processor(named, Join(table.store, columns, left), stream.node)
        fields = None if self.fields is None or table.fields is None else tuple(column for column, _ in columns)
        return replace(stream, node=node, fields=fields, sources=sources, _repartition=[])

    def _joined(self, table: KTable, value: Mapping[str, str] | None, what: str) -> Columns:
        if value is not None:
            for name, expression in value.items():
                found = _FIELD_OF_TABLE.fullmatch(expression.strip())
                if found and table.fields is not None and found[1] not in table.fields:
                    self.graph.fault(
                        f"{what}, {name}: the table has no field {found[1]!r}", f"It has: {', '.join(table.fields)}"
                    )
            return self._columns(value, what)
        own, theirs = self.fields or (), table.fields or ()
        if both := set(own) & set(theirs):
            self.graph.fault(
                f"{what}: both sides have the fields {', '.join(sorted(both))}",
                "Say what the result is: value={'name': 'table.name', …}",
            )
        return tuple([(name, name) for name in own] + [(name, f"table.{name}") for name in theirs])

    # --

    def _then(self, prefix: str, name: str | None, operation: Operation, **changes: Any) -> KStream:
        node = self.graph.processor(self.graph.name(name, prefix), operation, self.node)
        rekeyed = changes.pop("rekeyed", False)
        if rekeyed:
            changes |= {"repartition_required": True, "window": None}
        return replace(self, node=node, _repartition=[], **changes)

    def _grouped(self, name: str | None) -> KGroupedStream:
        return KGroupedStream(
            self.graph, self.node, self.fields, self.key, self.sources, None, self.repartition_required, name
        )

    def _name_of_topic(self, name: str | None) -> str | None:
        if name is not None and (fault := name_fault(name)):
            self.graph.fault(fault, "Choose a shorter one of legal characters")
        return name

    def _can_take(self, other: object, kind: type[_Declared], what: str, hint: str) -> bool:
        """Whether ``other`` can be joined or merged."""
        if not isinstance(other, kind):
            self.graph.fault(f"{what}: with a {type(other).__name__}", hint)
            return False
        if other.graph is not self.graph:
            self.graph.fault(f"{what}: with a {kind.__name__} of another topology", "Read its topic in this topology")
            return False
        return True

    def _refuse_window(self, what: str) -> None:
        if self.window is not None:
            self.graph.fault(f"{what}: the key is windowed", "Give the records a plain key before: select_key('…')")


@dataclass(frozen=True, eq=False)
class _Grouped(_Declared):
    """Records of one key side by side. ``name`` is that of the repartition topic, where there is one."""

    repartition_required: bool = False
    name: str | None = None
    _repartition: list[Repartition] = field(default_factory=list)

    def _aggregate(
        self, prefix: str, name: str | None, store: str, operation: Operation, fields: tuple[str, ...] | None
    ) -> KTable:
        """``GroupedStreamAggregateBuilder.build``."""
        named = self.graph.name(name, prefix)
        parent, sources = self.node, self.sources
        if self.repartition_required:
            drawn = self.graph.draw_repartition(self.name or store)
            if not self._repartition or self.name is None:
                self._repartition[:] = [drawn]
            self.graph.add_repartition(self._repartition[0], self.node)
            parent, sources = self._repartition[0].node, frozenset({self._repartition[0].source})
        node = self.graph.processor(named, operation, parent)
        return KTable(self.graph, node, fields, self.key, sources, self.window, store)

    def _count(self, store: str | None, name: str | None) -> KTable:
        named = self.graph.store_name(store, "KSTREAM-AGGREGATE-")
        return self._aggregate("KSTREAM-AGGREGATE-", name, named, Count(named, self.window), ("count",))

    def _fold(self, value: Mapping[str, str], store: str | None, name: str | None) -> KTable:
        columns = []
        for column, expression in self._columns(value, "aggregate"):
            try:
                parsed = AggregateColumn.parse(column, expression)
                columns.append(parsed)
                if _BARE_NAMES.fullmatch(parsed.arguments):
                    for argument in parsed.arguments.split(","):
                        self._field(argument.strip(), f"aggregate, {column}")
            except ValueError as error:
                self.graph.fault(f"aggregate, {column}: {error}", "Fold with those; compute on with map_values")
        named = self.graph.store_name(store, "KSTREAM-AGGREGATE-")
        operation = Aggregate(named, tuple(columns), self.window)
        return self._aggregate("KSTREAM-AGGREGATE-", name, named, operation, tuple(value))


@dataclass(frozen=True, eq=False)
class KGroupedStream(_Grouped):
    """A grouped stream."""

    def windowed_by(self, windows: TimeWindows) -> TimeWindowedKStream:
        """Each key anew in each tumbling window."""
        if not isinstance(windows, TimeWindows):
            self.graph.fault(f"windowed_by: {windows!r} is not a TimeWindows", "For example TimeWindows('1 minute')")
            windows = TimeWindows("1 minute")
        for what in ("size", "grace"):
            try:
                if getattr(windows, f"{what}_ms") < (1 if what == "size" else 0):
                    self.graph.fault("windowed_by: the size is 0", "Write one as in '1 minute'")
            except ValueError as error:
                self.graph.fault(f"windowed_by: {what}: {error}", "For example TimeWindows('1 minute')")
        return TimeWindowedKStream(
            self.graph, self.node, self.fields, self.key, self.sources, windows, self.repartition_required, self.name,
            self._repartition,
        )  # fmt: skip

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        """Count the records of each key in the state store ``store``; the value's field is ``count``."""
        return self._count(store, name)

    def aggregate(self, value: Mapping[str, str], *, store: str | None = None, name: str | None = None) -> KTable:
        """Fold the records of each key: ``{"total": "sum(amount)", "mean": "avg(amount)"}``."""
        return self._fold(value, store, name)

    def reduce(
        self,
        *,
        max_by: str | None = None,
        min_by: str | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """Keep one record's value of each key: the latest, or that with the greatest or least expression.

        Of two with equal expressions the later one is kept.
        """
        if max_by is not None and min_by is not None:
            self.graph.fault("reduce: both max_by and min_by are given", "Choose one")
        by = max_by or min_by or LATEST
        self._field(by, "reduce")
        named = self.graph.store_name(store, "KSTREAM-REDUCE-")
        operation = Reduce(named, by, greatest=min_by is None)
        return self._aggregate("KSTREAM-REDUCE-", name, named, operation, self.fields)


@dataclass(frozen=True, eq=False)
class TimeWindowedKStream(_Grouped):
    """A grouped stream, each key anew in each window."""

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        """As :meth:`KGroupedStream.count`, for each key and window."""
        return self._count(store, name)

    def aggregate(self, value: Mapping[str, str], *, store: str | None = None, name: str | None = None) -> KTable:
        """As :meth:`KGroupedStream.aggregate`, for each key and window."""
        return self._fold(value, store, name)


@dataclass(frozen=True, eq=False)
class KTable(_Declared):
    """The last value of each key, in the state store ``store``."""

    store: str = ""
    materialize: Callable[[], None] = lambda: None
    """Called when something looks up in it: a table from a topic has a store only then."""

    def to_stream(self, *, name: str | None = None) -> KStream:
        """Its updates."""
        node = self.graph.processor(self.graph.name(name, "KTABLE-TOSTREAM-"), ToStream(), self.node)
        return KStream(self.graph, node, self.fields, self.key, self.sources, self.window)


def _word(expression: str) -> str | None:
    """What the key is, where the expression is the bare name of a field."""
    return expression if expression.isidentifier() else None
