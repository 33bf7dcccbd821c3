"""From which columns of the source topics the columns of each written topic come, as the declaration says it.

A column is a field of a record's value, or the record's key, which has the name ``key``. An expression comes from every
column that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    Aggregate,
    AggregateWindowsFunction,
    BufferRecords,
    CogroupFunctionSide,
    CogroupSide,
    Columns,
    Count,
    FlatMap,
    FlatMapFunction,
    FlatMapValues,
    FlatMapValuesFunction,
    ForeignTableJoin,
    GlobalJoin,
    Join,
    KeySelect,
    Map,
    MapFunction,
    MapValues,
    MapValuesFunction,
    Operation,
    Process,
    ProcessWithoutStores,
    ProcessWithStores,
    ReduceFunction,
    ResponseJoin,
    StateStore,
    StreamJoin,
    SubscriptionJoin,
    SubscriptionSend,
    SuppressUpdates,
    TableAggregate,
    TableCount,
    TableJoin,
    TableKeySelect,
    TableMapValues,
    TableMapValuesFunction,
    TableReduce,
    value_of_stream,
)
from streamplan.model.processor_topology import Processor, Sink, Source
from streamplan.model.topology import Topology

KEY = "key"
"""The name of the record's key among the columns."""

PRIMARY_KEY = "primary_key"
"""The name of the key of this table among the columns of a topic of subscriptions, whose key is the foreign key."""

_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class Column(NamedTuple):
    """A column of a topic, which has its name in Kafka."""

    topic: str
    name: str


Origins: TypeAlias = Mapping[str, frozenset[Column]]
"""By the name of a column the columns of source topics from which it comes."""


def column_lineage(topology: Topology) -> Mapping[str, Origins]:
    """Return the origins of the columns of each topic that an application writes, by the topic's name in Kafka.

    Repartition topics, changelogs and sinks are written; the dead-letter topic has whole records.
    """
    written: dict[str, dict[str, frozenset[Column]]] = {}
    stored: dict[str, dict[str, frozenset[Column]]] = {}
    # A sub-topology may read what one with a greater number writes. So each pass knows one step more.
    # So may a processor what another one has put into a store that both have.
    passes = len(topology.subtopologies) + 1
    for subtopology in topology.subtopologies * passes:
        after: dict[str, dict[str, frozenset[Column]]] = {}
        for node in subtopology.nodes:
            before = _union(after[name] for name in subtopology.predecessors[node.name])
            match node:
                case Source(topic=topic, value=None):
                    after[node.name] = dict(written.get(topology.decorate(topic), {}))
                case Source(topic=topic, value=serde) if serde is not None:
                    name = topology.decorate(topic)
                    after[node.name] = {field: frozenset({Column(name, field)}) for field in (KEY, *serde.fields)}
                case Sink(topic=topic):
                    name = topology.decorate(topic)
                    written[name] = after[node.name] = _union([written.get(name, {}), before])
                case Processor(operation=(StreamJoin(value=value) | TableJoin(value=value)) as join):
                    this, other = (after[before.name] for before in subtopology.sides_of(node))
                    side = "other" if isinstance(join, StreamJoin) else "table"
                    seen = {**this, **{f"{side}.{name}": origins for name, origins in other.items() if name != KEY}}
                    after[node.name] = {KEY: _key_of_both(this, other), **_columns(value, seen)}
                    if isinstance(join, TableJoin) and join.store is not None:
                        stored[join.store] = after[node.name]
                case Processor(operation=ResponseJoin(store=store, value=value)):
                    # The response has the columns of the other table, which its topic is known to have.
                    seen = {**stored.get(store, {}), **{f"table.{name}": of for name, of in before.items()}}
                    after[node.name] = {KEY: stored.get(store, {}).get(KEY, frozenset()), **_columns(value, seen)}
                case Processor(operation=SubscriptionSend(foreign_key=foreign_key)):
                    after[node.name] = {KEY: _of(foreign_key, before), PRIMARY_KEY: before.get(KEY, frozenset())}
                case Processor(operation=SubscriptionJoin(store=store)):
                    other = {name: of for name, of in stored.get(store, {}).items() if name != KEY}
                    after[node.name] = {KEY: before.get(PRIMARY_KEY, frozenset()), **other}
                case Processor(operation=ForeignTableJoin()):
                    after[node.name] = {name: of for name, of in before.items() if name != KEY}
                case Processor(operation=TableCount(store=store)):
                    origins = before.get(KEY, frozenset())
                    stored[store] = after[node.name] = {KEY: origins, "count": origins}
                case Processor(
                    operation=(
                        ReduceFunction(store=store) | TableReduce(store=store) | SuppressUpdates(store=store)
                    ) as reduced
                ) if not isinstance(reduced, TableAggregate):
                    names = tuple((name, "") for name in before if name != KEY)
                    stored[store] = after[node.name] = {
                        KEY: before.get(KEY, frozenset()),
                        **_by_function(names, before),
                    }
                case Processor(operation=BufferRecords(store=store)):
                    stored[store] = after[node.name] = before
                case Processor(operation=Process(store=store, state=state, fields=fields)):
                    every = frozenset(
                        column for origins in before.values() for column in origins
                    )  # and of records before
                    stored[store], after[node.name] = (
                        {KEY: before.get(KEY, frozenset()), **dict.fromkeys((name for name, _ in columns), every)}
                        for columns in (state, fields)
                    )
                case Processor(operation=ProcessWithStores(stores=stores, fields=fields) as process):
                    read = [_of_global_stores(process), *(stored.get(store, {}) for store in stores)]
                    every = _every([before, *read])
                    after[node.name] = dict.fromkeys((KEY, *(name for name, _ in fields)), every)
                case Processor(operation=StateStore(store=store, value=serde)):
                    behind = [after[name] for name in subtopology.predecessors[node.name]]
                    stored[store] = after[node.name] = dict.fromkeys((KEY, *serde.fields), _every(behind))
                case Processor(operation=operation, store=store):
                    table = stored.get(store, {}) if store is not None and isinstance(operation, Join) else {}
                    after[node.name] = _through(operation, before, table)
                    if store is not None and node.writes_store:
                        stored[store] = after[node.name]
    return {**written, **{topology.changelog_topic(store): origins for store, origins in stored.items()}}


def _through(operation: Operation, before: Origins, table: Origins) -> dict[str, frozenset[Column]]:
    """Return the columns behind a processor."""
    match operation:
        case KeySelect(key=key) | TableKeySelect(key=key):
            return {**before, KEY: _of(key, before)}
        case TableMapValuesFunction(fields=fields):
            return {KEY: before.get(KEY, frozenset()), **_by_function(fields, before)}
        case MapValues(value=value) | TableMapValues(value=value):
            return {KEY: before.get(KEY, frozenset()), **_columns(value, before)}
        case Map(key=key, value=value):
            return {KEY: _of(key, before), **_columns(value, before)}
        case FlatMap(each=each, key=key, value=value):
            seen = {**before, "element": _of(each, before)}
            return {KEY: _of(key, seen), **_columns(value, seen)}
        case FlatMapValues(each=each, value=value):
            seen = {**before, "element": _of(each, before)}
            return {KEY: before.get(KEY, frozenset()), **_columns(value, seen)}
        case MapValuesFunction(fields=fields) | FlatMapValuesFunction(fields=fields):
            return {KEY: before.get(KEY, frozenset()), **_by_function(fields, before)}
        case MapFunction(fields=fields, key=key) | FlatMapFunction(fields=fields, key=key):
            made = _by_function(fields, before)
            return {KEY: _of(key, made if isinstance(key, str) else before), **made}
        case ProcessWithoutStores(fields=fields):
            return _by_function(((KEY, ""), *fields), {**before, **_of_global_stores(operation)})
        case Join(value=value):
            seen = {**before, **{f"table.{name}": origins for name, origins in table.items()}}
            return {KEY: before.get(KEY, frozenset()), **_columns(value, seen)}
        case GlobalJoin(topic=topic, row=row, value=value):
            seen = {**before, **{f"table.{name}": frozenset({Column(topic, name)}) for name in row.fields}}
            return {KEY: before.get(KEY, frozenset()), **_columns(value, seen)}
        case Count():
            key_origins = before.get(KEY, frozenset())
            return {KEY: key_origins, "count": key_origins}
        case CogroupFunctionSide(number=number):
            return {KEY: before.get(KEY, frozenset()), **_by_function(((value_of_stream(number), ""),), before)}
        case CogroupSide(arguments=given):
            return {KEY: before.get(KEY, frozenset()), **_columns(given, before)}
        case AggregateWindowsFunction(fields=fields, initializer=initializer):
            names = fields if initializer is not None else tuple((name, "") for name in before if name != KEY)
            return {KEY: before.get(KEY, frozenset()), **_by_function(names, before)}
        case Aggregate(columns=columns):
            arguments = tuple((column.name, column.arguments) for column in columns)
            return {KEY: before.get(KEY, frozenset()), **_columns(arguments, before)}
    return dict(before)


def _of_global_stores(process: ProcessWithStores | ProcessWithoutStores) -> Origins:
    """The columns of the global tables that a class reads."""
    return {
        f"{each.topic} {name}": frozenset({Column(each.topic, name)})
        for each in process.global_stores
        for name in each.row.fields
    }


def _by_function(fields: Columns, before: Origins) -> dict[str, frozenset[Column]]:
    """Return the origins of what a function makes, which may use every field."""
    every = frozenset(column for origins in before.values() for column in origins)
    return dict.fromkeys((name for name, _ in fields), every)


def _key_of_both(this: Origins, other: Origins) -> frozenset[Column]:
    return this.get(KEY, frozenset()) | other.get(KEY, frozenset())


def _columns(columns: Columns, before: Origins) -> dict[str, frozenset[Column]]:
    return {name: _of(expression, before) for name, expression in columns}


def _of(expression: str | PythonFunction, before: Origins) -> frozenset[Column]:
    """Return the origins of the columns that an expression names. Spark SQL tells no case apart.

    A function may use every field.
    """
    if isinstance(expression, PythonFunction):
        return _every([before])
    known = {name.lower(): origins for name, origins in before.items() if name != KEY}
    known["record.key"] = before.get(KEY, frozenset())
    names = _NAME.findall(_STRING.sub("", expression).replace("`", "").lower())
    return frozenset(column for name in names for column in _longest_known(name, known))


def _longest_known(name: str, known: Origins) -> frozenset[Column]:
    """Return the origins of a column, of which a name may have a part: ``table.customer.address`` of ``customer``."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return known.get(name, frozenset())


def _union(all_origins: Iterable[Origins]) -> dict[str, frozenset[Column]]:
    merged: dict[str, frozenset[Column]] = {}
    for origins in all_origins:
        for name, columns in origins.items():
            merged[name] = merged.get(name, frozenset()) | columns
    return merged


def _every(columns: Iterable[Mapping[str, frozenset[Column]]]) -> frozenset[Column]:
    return frozenset[Column]().union(*(of for each in columns for of in each.values()))
