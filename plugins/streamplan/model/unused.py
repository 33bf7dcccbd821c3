"""What a declaration has and nobody uses: streams that lead nowhere, stores that nobody reads, fields of sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    Branch,
    CogroupSide,
    ForEach,
    GlobalTableSource,
    KeySelect,
    Peek,
    PeekFunction,
    ProcessToAct,
    SeveralTopics,
    Split,
    StoreForJoin,
    TableCount,
    TableSource,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Node, Processor, Sink, Source, TopicChoice
from streamplan.serdes.json import Json

TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
"""A text within an expression."""

_ENDS = ForEach | Peek | PeekFunction | ProcessToAct
"""The operations behind which nothing has to follow."""

_NO_EXPRESSIONS = ("store", "stores", "looked_up", "name", "timer", "ttl", "topic", "topics", "row")
"""The fields of operations that have a text, and no expression."""


def unused(pipeline: Pipeline) -> tuple[Diagnostic, ...]:
    """Return a warning for each stream, store and field of a source that a pipeline declares, and nobody uses.

    A store that the declaration gives a name is there to be looked at, so it is used.
    """
    nowhere = (*_leading_nowhere(pipeline), *_global_tables(pipeline))
    return tuple(dict.fromkeys([*nowhere, *_unused_fields(pipeline)]))


def _leading_nowhere(pipeline: Pipeline) -> Iterator[Diagnostic]:
    generated = pipeline.topology.generated_names
    for subtopology in pipeline.topology.subtopologies:
        followed = {name for before in subtopology.predecessors.values() for name in before}
        looked_up = {
            store
            for node in subtopology.processors
            if not node.writes_store and not isinstance(node.operation, CogroupSide)
            for store in node.connected_stores
        }
        for node in subtopology.nodes:
            if node.name in followed or isinstance(node, Sink):
                continue
            if isinstance(node, Source) or isinstance(node.operation, TableSource):
                if isinstance(node, Source) or node.store is None:
                    topics = ", ".join(map(repr, subtopology.source_topics))
                    said = (
                        f"nothing is done with the records of {node.topic!r}"
                        if isinstance(node, Source)
                        else (f"no join looks anything up in this table of {topics}")
                    )
                    yield Diagnostic(node.location, said, "Use it, or remove the line")
            elif isinstance(node.operation, SeveralTopics):
                topics = ", ".join(map(repr, node.operation.topics))
                yield Diagnostic(
                    node.location, f"nothing is done with the records of {topics}", "Use it, or remove the line"
                )
            elif isinstance(node.operation, Branch):
                yield Diagnostic(
                    node.location,
                    f"the branch {node.name!r} leads nowhere: no operation follows, and nothing writes it",
                    "Go on with it, write it with to('topic'), or drop its records with filter_not before the split",
                )
            elif not node.writes_store and not isinstance(node.operation, _ENDS):
                yield Diagnostic(
                    node.location,
                    f"the result of {_word(node)} leads nowhere: no operation follows, and nothing writes it",
                    "Go on with it, write it with to('topic'), or remove the line",
                )
            elif node.store in generated and node.store not in looked_up:
                yield Diagnostic(
                    node.location,
                    f"nobody reads the store {node.store!r}: it has no name of its own, and its updates lead nowhere",
                    "Write the updates with to_stream().to('topic'), or name what people are to look at: store='…'",
                )


def _global_tables(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """The global tables in which no join and no class looks anything up."""
    topology = pipeline.topology
    read = {topic for group in topology.subtopologies for topic in group.global_topics}
    for group in topology.global_stores:
        for source in group.sources:
            stores = {
                node.operation.store for node in group.processors if isinstance(node.operation, GlobalTableSource)
            }
            if source.topic not in read and stores <= topology.generated_names:
                said = f"no join looks anything up in this global table of {source.topic!r}"
                yield Diagnostic(source.location, said, "Use it, or remove the line")


def _word(node: Processor) -> str:
    """An operation as a declaration has it."""
    if isinstance(node.operation, KeySelect):
        return "select_key, or of group_by,"
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", type(node.operation).__name__.removesuffix("Function")).lower()
    joins = dict.fromkeys(
        ("stream_join", "outer_stream_join", "table_join", "global_join", "foreign_key_result", "response_join"), "join"
    )
    groups = {"table_key_select": "group_by", "table_reduce": "reduce", "table_aggregate": "aggregate"}
    tables = {
        "suppress_updates": "suppress",
        "table_filter": "filter",
        "table_map_values": "map_values",
        "table_count": "count",
        **groups,
    }
    return {**joins, **tables, "process_without_stores": "process"}.get(words, words)


def _unused_fields(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """The fields of JSON that no expression names, and that reach no topic or store that people read.

    The fields of a schema in a file are not judged: other applications may read the same file.
    """
    topology = pipeline.topology
    used = [part for group in topology.subtopologies for node in group.nodes for part in used_by(node)]
    if any(isinstance(part, PythonFunction) for part in used):
        return  # a function may use every field
    named = {name for part in used for name in re.findall(r"\w+", TEXT.sub("", str(part)).lower())}
    inputs = [
        node.store
        for group in topology.subtopologies
        for node in group.processors
        if isinstance(node.operation, TableSource | StoreForJoin)
    ]
    unjoined = {warning.location for warning in _global_tables(pipeline)}
    unread = {*map(topology.decorate, topology.internal_topics)}
    unread |= {topology.changelog_topic(store) for store in inputs if store is not None}
    kept: set[Column] = set()
    for topic, origins in column_lineage(topology).items():
        if topic not in unread:
            kept |= frozenset().union(*origins.values())
    test_data = pipeline.test_data
    for group in (*topology.subtopologies, *topology.global_stores):
        for source in group.sources:
            if not isinstance(source.value, Json) or source.location in unjoined:
                continue
            of_test_data = test_data.number if test_data is not None and source.topic in test_data.topics else None
            idle = [
                name
                for name in source.value.fields
                if name.lower() not in named
                and Column(source.topic, name) not in kept
                and name not in source.value.allowed
                and name != of_test_data
            ]
            # A value has at least one field, also where only the keys are counted.
            if idle and (len(idle) < len(source.value.fields) or len(idle) > 1):
                yield Diagnostic(
                    source.location,
                    f"nothing uses the field{'s' if len(idle) > 1 else ''} {', '.join(idle)} of {source.topic!r}",
                    "Leave out what nothing uses: it is read of each record, and a wrong type in it rejects the record",
                )


def used_by(node: Node) -> Iterator[str | PythonFunction]:
    """Yield the expressions and the functions of a node."""
    match node:
        case Source(timestamp=str() | PythonFunction() as timestamp):
            yield timestamp
        case Sink(choice=TopicChoice(expression=expression)):
            yield expression
        case Processor(operation=operation):
            yield from _expressions(operation)


def _expressions(value: Any) -> Iterator[str | PythonFunction]:
    """The texts in an operation that are expressions, and its functions."""
    if isinstance(value, str | PythonFunction):
        yield value
    elif isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value):
        yield value[1]  # a column: its name, and its expression
    elif isinstance(value, tuple):
        for part in value:
            yield from _expressions(part)
    elif isinstance(value, Split):
        yield from value.conditions
    elif isinstance(value, TableCount):
        return  # its functions use no field
    elif is_dataclass(value):
        for each in fields(value):
            if each.name not in _NO_EXPRESSIONS:
                yield from _expressions(getattr(value, each.name))
