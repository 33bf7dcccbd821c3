"""What each node of a description is.

The names that the library gives say the operation. Of a processor that the application named itself, its neighbours and
its state stores say what it can be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from streamplan.importing.nodes import DescribedRepartition, Node, number_of, prefix_of, repartition_topics
from streamplan.serdes.subscriptions import REGISTRATION_TOPIC

_WORDS = {
    "KSTREAM-FILTER-": "filter",
    "KSTREAM-MAPVALUES-": "map_values",
    "KSTREAM-KEY-SELECT-": "select_key",
    "KSTREAM-MAP-": "map",
    "KSTREAM-FLATMAP-": "flat_map",
    "KSTREAM-FLATMAPVALUES-": "flat_map_values",
    "KSTREAM-BRANCHCHILD-": "old_branch",
    "KSTREAM-PEEK-": "peek",
    "KSTREAM-FOREACH-": "foreach",
    "KSTREAM-PRINTER-": "print",
    "KSTREAM-MERGE-": "merge",
    "KSTREAM-AGGREGATE-": "aggregate",
    "KSTREAM-REDUCE-": "reduce",
    "KSTREAM-JOIN-": "join",
    "KSTREAM-LEFTJOIN-": "left_join",
    "KTABLE-SOURCE-": "table",
    "KTABLE-TOSTREAM-": "to_stream",
    "KTABLE-FILTER-": "table_filter",
    "KTABLE-MAPVALUES-": "table_map_values",
    "KTABLE-TRANSFORMVALUES-": "table_map_values",
    "KSTREAM-TOTABLE-": "to_table",
}

AGGREGATES = ("aggregate", "reduce")
JOINS = ("join", "left_join")
_BY_KEY = (*AGGREGATES, "in_cogroup")
TABLE_AGGREGATES = ("table_aggregate", "table_reduce")
_OF_TABLES = ("table_filter", "table_map_values")
_TABLES = (
    *("table", "table_join", "foreign_key_join", "cogroup", "to_table", "suppress"),
    *(*_OF_TABLES, *AGGREGATES, *TABLE_AGGREGATES),
)
_PROCESSORS = ("KSTREAM-PROCESSOR-", "KSTREAM-PROCESSVALUES-", "KSTREAM-TRANSFORM-", "KSTREAM-TRANSFORMVALUES-")
"""Processors of the application's own. Each may have stores, and share them."""
_KEEPING_PROCESSORS = ("KSTREAM-PROCESSVALUES-", "KSTREAM-TRANSFORMVALUES-")
"""Those that keep the key."""

_NUMBERED = re.compile(r"-\d+$")
_REKEYING = ("select_key", "map", "flat_map", "process")
_KEEPING_THE_KEY = (
    *("filter", "map_values", "flat_map_values", "peek", "merge", "unknown", "stand_in", "split", "branch"),
    *("old_split", "old_branch", "global_join", "process_values"),
)


@dataclass(frozen=True)
class DescribedStreamJoin:
    """The nodes of a join of two streams.

    Attributes:
        windowed: The processors that store the records of this and of the other stream.
        sides: The processors that look up in the store of the other stream.
        method: The method of the language that makes it.
    """

    windowed: tuple[Node, Node]
    sides: tuple[Node, Node]
    method: str


@dataclass(frozen=True)
class DescribedTableJoin:
    """The nodes of a join of two tables.

    Attributes:
        this: The processor that takes the updates of this table.
        other: The processor that takes those of the other table.
    """

    this: Node
    other: Node


@dataclass(frozen=True)
class DescribedForeignKeyJoin:
    """The nodes of a join of two tables by a foreign key.

    Attributes:
        this: The name of the last node of this table.
        other: The name of the last node of the other table.
        drawn: The names for which the library draws numbers, in their order: topics, processors, a store.
        nodes: The names of all its nodes but the last one.
    """

    this: str
    other: str
    drawn: tuple[str, ...]
    nodes: tuple[str, ...]


class Recognition:
    """What the nodes of a description are.

    Args:
        nodes: The nodes by their names, each behind those before it.
        has_global_tables: Whether the application has global tables.

    Attributes:
        repartitions: The repartition topics, by the names of their sources.
        around: The names of the nodes before repartition topics.
        writers: By state store the name of the node that fills it; empty where it cannot be told.
        stream_joins: The joins of two streams, by the names of their last processors.
        table_joins: The joins of two tables, by the names of their last processors.
        foreign_key_joins: Those by a foreign key, by the names of their last processors.
        cogroups: The processors of the streams that are folded into one store, by the name of the last processor.
        words: By node the method of the language that makes it. ``unknown`` is a processor whose operation cannot be
            told, ``stand_in`` one whose operation the language does not have; ``split`` and ``branch`` belong to
            ``KStream.split()``, ``old_split`` and ``old_branch`` to ``KStream.branch()`` of versions before 4.0,
            ``in_stream_join`` to a ``stream_join``, ``in_table_join`` to a ``table_join``, ``in_foreign_key_join`` to
            a ``foreign_key_join``, and ``in_cogroup`` to a ``cogroup``. ``global_join`` is a join with a global table,
            which no line names. The source of a repartition topic is ``repartition``, and sinks are ``to``.
        uses: By the name of a repartition topic's source what declares the topic: ``group``, ``table_group``,
            ``join``, ``to_table`` or ``repartition``.
    """

    def __init__(self, nodes: Mapping[str, Node], *, has_global_tables: bool = False) -> None:
        self.nodes = nodes
        self._has_global_tables = has_global_tables
        self.repartitions = repartition_topics(nodes)
        self._has_no_generated_names = not any(map(prefix_of, nodes))
        self._grouped_tables = {topic.upstream for topic in self.repartitions.values() if _is_of_table(nodes, topic)}
        self.around = {name for topic in self.repartitions.values() for name in (topic.null_key_filter, topic.sink)}
        self.table_joins = dict(_table_joins(nodes))
        self._in_table_joins = {side.name for join in self.table_joins.values() for side in (join.this, join.other)}
        self.foreign_key_joins = dict(foreign_key_joins(nodes))
        self._in_foreign_key_joins = {name for join in self.foreign_key_joins.values() for name in join.nodes}
        self.cogroups = dict(_cogroups(nodes))
        self._in_cogroups = {side.name: last for last, sides in self.cogroups.items() for side in sides}
        stores = dict.fromkeys(store for node in nodes.values() for store in node.stores)
        self.writers = {store: self._writer(store) for store in stores}
        self.numbers = {number_of(name) for name in (*nodes, *stores)}
        stream_joins = dict(_stream_joins(nodes)).items()
        self.stream_joins = {name: join for name, join in stream_joins if name not in self._in_foreign_key_joins}
        self._in_stream_joins = {
            node.name for join in self.stream_joins.values() for node in (*join.windowed, *join.sides)
        }
        self.words: dict[str, str] = {}
        for node in nodes.values():
            self.words[node.name] = self._word_of(node)
        self.uses = {source: self._use(topic) for source, topic in self.repartitions.items()}

    # -- words

    def _word_of(self, node: Node) -> str:
        """The word of a node. The words of the nodes before it are known."""
        if node.name in self.foreign_key_joins:
            return "foreign_key_join"
        if node.name in self._in_foreign_key_joins:
            return "in_foreign_key_join"
        if node.name in self.repartitions:
            return "repartition"
        if node.is_sink or node.name in self.around:
            return "to"
        if not node.before:
            return "stream"
        if node.name in self.stream_joins:
            return "stream_join"
        if node.name in self._in_stream_joins:
            return "in_stream_join"
        if node.name in self.table_joins:
            return "table_join"
        if node.name in self._in_table_joins:
            return "in_table_join"
        if node.name in self.cogroups:
            return "cogroup"
        if node.name in self._in_cogroups:
            return "in_cogroup"
        if node.name in self._grouped_tables:
            return "table_group_by"
        if (topic := self.repartitions.get(node.before[0])) and topic.upstream in self._grouped_tables:
            if len(node.stores) != 1 or len(node.before) > 1:
                return "stand_in"
            return "table_reduce" if prefix_of(node.name) == "KTABLE-REDUCE-" else "table_aggregate"
        if self._is_process(node):
            return "process_values" if prefix_of(node.name) in _KEEPING_PROCESSORS else "process"
        if self._is_suppress(node):
            return "suppress"
        word, [before, *others] = _WORDS.get(prefix_of(node.name), ""), node.before
        if self._is_table(node):
            return "table"
        if self.words[before] == "split":
            return "branch"
        if prefix_of(node.name) == "KSTREAM-BRANCH-" and not node.stores and not others:
            is_old = any(prefix_of(name) == "KSTREAM-BRANCHCHILD-" for name in node.after)
            return "old_split" if is_old else "split"
        if self._is_split(node):
            return "split"
        if prefix_of(node.name) and not word:
            return "stand_in"
        if not word and not others and len(node.stores) <= 1:
            if self.words[before] in _TABLES and self._makes_table(node):
                return "table_map_values"
            if self.words[before] not in _TABLES and not node.stores and self._is_table_of_stream(node):
                return "to_table"
        if len(node.stores) <= 1 and word in (*_OF_TABLES, "to_table"):
            return word if self._takes_updates(word, node) else "stand_in"
        if node.stores:
            writer = self.writers[node.stores[0]]
            can_be_told = len(node.stores) == 1 and word in ("", *AGGREGATES, *JOINS) and writer
            if not can_be_told or writer in self._behind(node.name):
                return "stand_in"
            if writer == node.name:
                return "reduce" if "REDUCE" in f"{prefix_of(node.name)}{prefix_of(node.stores[0])}" else "aggregate"
            return word if word in JOINS else "join"
        if word == "left_join" and self._has_global_tables and self.words[before] not in _TABLES and not others:
            return "global_join"
        if word in (*JOINS, *_TABLES):
            return "stand_in"
        if others:
            are_streams = all(self.words[name] not in _TABLES for name in node.before)
            return "merge" if word in ("", "merge") and (len(others) == 1 or are_streams) else "stand_in"
        if word == "to_stream":
            return word if self.words[before] in _TABLES else "stand_in"
        if self.words[before] in _TABLES:
            makes_table = any(prefix_of(name).startswith("KTABLE-") for name in node.after)
            return "stand_in" if word or makes_table else "to_stream"
        return word or "unknown"

    def _takes_updates(self, word: str, node: Node) -> bool:
        """Whether an operation that makes a table stands behind a table; ``to_table`` behind a stream."""
        if len(node.before) > 1 or any(self.writers[store] != node.name for store in node.stores):
            return False
        before = self.words[node.before[0]]
        return before not in _TABLES if word == "to_table" else before in _TABLES

    def _makes_table(self, node: Node) -> bool:
        """Whether an operation behind a table, which the application named, makes a table: it is not ``to_stream``."""
        if node.stores:
            return self.writers[node.stores[0]] == node.name
        return any(self._takes_table(self.nodes[name]) for name in node.after)

    def _takes_table(self, node: Node) -> bool:
        """Whether what stands before a node is a table."""
        if prefix_of(node.name):
            return prefix_of(node.name).startswith("KTABLE-")
        if node.is_sink or len(node.before) > 1 or node.name in self.around:
            return False
        if node.name in (*self._in_table_joins, *self._in_foreign_key_joins, *self._grouped_tables):
            return True
        return not node.stores and any(self._takes_table(self.nodes[name]) for name in node.after)

    def _is_table_of_stream(self, node: Node) -> bool:
        """Whether an operation behind a stream, which the application named, makes a table."""
        return any(prefix_of(name).startswith("KTABLE-") for name in node.after)

    def _is_table(self, node: Node) -> bool:
        source = self.nodes[node.before[0]]
        if source.before or len(node.before) > 1 or source.name in self.repartitions or len(source.after) > 1:
            return False
        return prefix_of(node.name) == "KTABLE-SOURCE-" or source.name == f"{node.name}-source"

    def _is_split(self, node: Node) -> bool:
        """Whether records are divided among branches, whose names begin with the name of the split."""
        return (
            not prefix_of(node.name) and len(node.after) > 1 and all(name.startswith(node.name) for name in node.after)
        )

    def _is_suppress(self, node: Node) -> bool:
        """Whether it takes the updates of a table, and has a buffer of its own.

        One that the application has named could be another operation, unless it takes all updates of an aggregate.
        """
        if len(node.before) != 1 or len(node.stores) != 1:
            return False
        before = self.nodes[node.before[0]]
        if prefix_of(node.name) == "KTABLE-SUPPRESS-":
            return self.words[before.name] in _TABLES
        is_alone = self.words[before.name] == "aggregate" and len(before.after) == 1
        return is_alone and node.stores == (f"{node.name}-store",)

    def _is_process(self, node: Node) -> bool:
        """Whether it is a processor of the Processor API with stores of its own, or that other such processors have.

        One without a store has a name that the library gave. Behind one with a store that the application named comes
        an operation of a stream, or a sink. Behind an aggregate comes neither. An operation with several stores is none
        of the DSL.
        """
        if not (node.stores or prefix_of(node.name) in _PROCESSORS):
            return False
        if len(node.before) != 1 and (prefix_of(node.name) or any(self.words[name] in _TABLES for name in node.before)):
            return False
        sharing = [other for other in self.nodes.values() if other is not node and {*other.stores} & {*node.stores}]
        are_processors = all(prefix_of(other.name) in _PROCESSORS or self._may_be_process(other) for other in sharing)
        if prefix_of(node.name) in _PROCESSORS:
            return are_processors
        if len(node.before) > 1 or (sharing and self._has_no_generated_names):
            return are_processors and self._may_be_process(node)
        if len(node.stores) > 1 or any(prefix_of(other.name) in _PROCESSORS for other in sharing):
            return are_processors and self._may_be_process(node)
        if not prefix_of(node.name) and not sharing:
            behind = [self.nodes[name] for name in node.after]
            is_stream = any(
                after.is_sink or after.name in self.around or prefix_of(after.name).startswith("KSTREAM-")
                for after in behind
            )
            return is_stream and not self._is_table(node)
        return False

    def _may_be_process(self, node: Node) -> bool:
        """Whether one that the application named can be a processor: nothing about it shows a table or an aggregate."""
        if prefix_of(node.name) or not node.before or self._is_table(node):
            return False
        is_grouped = any(before in self.repartitions for before in node.before)
        return not is_grouped and not any(prefix_of(name).startswith("KTABLE-") for name in node.after)

    def _writer(self, store: str) -> str:
        """The name of the node that fills a state store; empty where it cannot be told."""
        of_joins = self._in_table_joins | self._in_foreign_key_joins
        users = [node for node in self.nodes.values() if store in node.stores and node.name not in of_joins]
        for node in users:
            if node.name in self._in_cogroups:
                return self._in_cogroups[node.name]
            is_of_tables = prefix_of(node.name).startswith(("KTABLE-", "KSTREAM-TOTABLE-"))
            if self._is_table(node) or is_of_tables or _WORDS.get(prefix_of(node.name)) in AGGREGATES:
                return node.name
        # A join comes behind its table, and has no table for a name.
        behind = {name for node in users for name in self._behind(node.name)}
        named = [node for node in users if not prefix_of(node.name) and node.name not in behind]
        return max(named, key=lambda node: self._looks_like_writer(node, store)).name if named else ""

    def _behind(self, name: str) -> set[str]:
        """The names of all nodes that records reach after a node, without a topic between."""
        found, pending = set[str](), [name]
        while pending:
            after = {*self.nodes[pending.pop()].after} - found
            found |= after
            pending += after
        return found

    def _looks_like_writer(self, node: Node, store: str) -> int:
        """How much speaks for an aggregate, and against a join. Behind a table comes no operation of a stream."""
        topic = self.repartitions.get(node.before[0])
        of_a_grouping = topic is not None and topic.prefix in (store, topic.upstream)
        of_a_join = topic is not None and topic.prefix == node.name
        prefixes = [prefix_of(name) for name in node.after]
        is_table = any(prefix.startswith("KTABLE-") for prefix in prefixes)
        is_stream = any(prefix.startswith("KSTREAM-") for prefix in prefixes)
        return 2 * of_a_grouping - 2 * of_a_join + is_table - 4 * is_stream

    # -- repartition topics

    def _use(self, topic: DescribedRepartition) -> str:
        if topic.upstream in self._grouped_tables:
            return "table_group"
        if any(self.words[reader] == "to_table" and topic.prefix == reader for reader in topic.readers):
            return "to_table" if self._is_rekeyed(topic, is_evident=True) else "repartition"
        words = {self.words[reader] for reader in topic.readers}
        if words and words <= {*_BY_KEY} and topic.null_key_filter:
            by_numbers = self._use_by_numbers(topic)
            is_evident = by_numbers == "group" or self.grouping_name(topic) in (None, topic.upstream)
            is_grouped = by_numbers != "repartition" and self._is_rekeyed(topic, is_evident=is_evident)
            return "group" if is_grouped else "repartition"
        is_of_join = words and words <= {*JOINS} and topic.prefix in (topic.upstream, *topic.readers)
        return "join" if is_of_join and self._is_rekeyed(topic, is_evident=True) else "repartition"

    def _use_by_numbers(self, topic: DescribedRepartition) -> str:
        """What the numbers say of a topic behind which records are aggregated.

        The three numbers of the topic's nodes come behind those of an aggregate that declares it, and before them where
        ``repartition()`` declares it. The description does not show them where the topic has a name.
        """
        if prefix_of(topic.prefix):
            return "repartition" if prefix_of(topic.prefix) == "KSTREAM-REPARTITION-" else "group"
        if cogroups := [last for name, last in self._in_cogroups.items() if name in topic.readers]:
            [store] = self.cogroups[cogroups[0]][0].stores
            first = number_of(store)
            return "" if first is None or self._are_free(range(first + 1, first + 4)) else "repartition"
        before = behind = True
        for reader in topic.readers:
            if (last := number_of(reader)) is not None:
                first = number_of(self.nodes[reader].stores[0])
                first = last if first is None else first
                before = before and self._are_free(range(first - 3, first))
                behind = behind and self._are_free(range(last + 1, last + 4))
        if before == behind:
            return ""
        return "repartition" if before else "group"

    def _are_free(self, numbers: range) -> bool:
        return numbers.start >= 0 and self.numbers.isdisjoint(numbers)

    def grouping_name(self, topic: DescribedRepartition) -> str | None:
        """The name of the grouping that declares a topic; None where the topic is called after its store."""
        stores = {store for reader in topic.readers for store in self.nodes[reader].stores}
        if topic.prefix in stores and any(reader in self._in_cogroups for reader in topic.readers):
            return None
        return None if stores == {topic.prefix} and topic.upstream != topic.prefix else topic.prefix

    def _is_rekeyed(self, topic: DescribedRepartition, *, is_evident: bool) -> bool:
        """Whether the key has changed before a topic.

        Args:
            is_evident: The topic says so. Then a processor before it, whose operation is not known, has changed it.
        """
        pending, seen = [topic.upstream], set[str]()
        unknown = []
        while pending:
            name = pending.pop(0)
            word = self.words[name]
            if name in seen:
                continue
            seen.add(name)
            if word in _REKEYING:
                return True
            if word == "unknown" and not self._is_read_by_key(name):
                unknown.append(name)
            if word in _KEEPING_THE_KEY:
                pending += self.nodes[name].before
        if is_evident and unknown:
            self.words[unknown[0]] = "select_key"
            return True
        return False

    def _is_read_by_key(self, name: str) -> bool:
        """Whether an aggregate or a join behind a node needs no repartition topic."""
        pending = [*self.nodes[name].after]
        while pending:
            after = pending.pop()
            if self.words[after] in (*_BY_KEY, *JOINS, "in_stream_join"):
                return True
            if self.words[after] in _KEEPING_THE_KEY:
                pending += self.nodes[after].after
        return False


def _is_of_table(nodes: Mapping[str, Node], topic: DescribedRepartition) -> bool:
    """Whether a repartition topic is that of a grouped table: it has no null-key filter."""
    upstream = nodes[topic.upstream]
    return (
        not topic.null_key_filter
        and len(upstream.before) == 1
        and prefix_of(topic.upstream) in ("", "KTABLE-SELECT-")
        and all(nodes[name].is_sink for name in upstream.after)
        and all(prefix_of(name) in ("", "KTABLE-AGGREGATE-", "KTABLE-REDUCE-") for name in topic.readers)
    )


def _table_joins(nodes: Mapping[str, Node]) -> Iterator[tuple[str, DescribedTableJoin]]:
    """Yield the joins of two tables. The names of their processors do not say whether they are left or outer joins."""
    for node in nodes.values():
        by_kind = {}
        for side in (nodes[name] for name in node.before):
            for kind, generated, named in (
                ("this", "KTABLE-JOINTHIS-", f"{node.name}-join-this"),
                ("other", "KTABLE-JOINOTHER-", f"{node.name}-join-other"),
            ):
                if len(side.before) == 1 and (prefix_of(side.name) == generated or side.name == named):
                    by_kind[kind] = side
        if len(node.before) == 2 and len(by_kind) == 2:
            yield node.name, DescribedTableJoin(**by_kind)


def foreign_key_joins(nodes: Mapping[str, Node]) -> Iterator[tuple[str, DescribedForeignKeyJoin]]:
    """Yield the joins of two tables by a foreign key. Their names do not say whether they are left joins.

    Args:
        nodes: The nodes of a description by their names.
    """
    for source in nodes.values():
        if not source.before and source.topics and REGISTRATION_TOPIC.fullmatch(source.topics[0]):
            with suppress(LookupError):  # other nodes around a topic that is called so
                yield _foreign_key_join(nodes, source)


def _foreign_key_join(nodes: Mapping[str, Node], source: Node) -> tuple[str, DescribedForeignKeyJoin]:
    """Return the last node and the join whose registrations a source reads.

    Raises:
        LookupError: The nodes are not those of such a join.
    """
    sinks = {node.topics: node for node in nodes.values() if node.is_sink}
    sources = {node.topics: node for node in nodes.values() if not node.before}
    sink = sinks[source.topics]
    receive = nodes[source.after[0]]
    look_up = nodes[receive.after[0]]
    response_sink = nodes[look_up.after[0]]
    change = nodes[next((name for name in response_sink.before if name != look_up.name), "")]
    response = sources[response_sink.topics]
    resolver = nodes[response.after[0]]
    result = nodes[resolver.after[0]]
    send = nodes[sink.before[0]]
    topics = [each.topics[0].removesuffix("-topic") for each in (source, response)]
    between = (send, sink, source, receive, look_up, change, response_sink, response, resolver)
    sent, received, responded = between[:3], between[3:6], between[6:]
    drawn = [topics[0], *(each.name for each in sent), receive.stores[0], *(each.name for each in received)]
    drawn += [topics[1], *(each.name for each in responded), result.name]
    nodes_between = tuple(each.name for each in between)
    this, other = send.before[0], change.before[0]
    return result.name, DescribedForeignKeyJoin(this, other, tuple(drawn), nodes_between)


def _cogroups(nodes: Mapping[str, Node]) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Yield the aggregates of several streams: the last processor, and that of each stream in their order."""
    for node in nodes.values():
        sides = [nodes[name] for name in node.before]
        is_last = prefix_of(node.name) == "COGROUPKSTREAM-MERGE-" or node.name.endswith("-cogroup-merge")
        stores = {store for side in sides for store in side.stores}
        is_told = all(len(side.before) == len(side.stores) == 1 and _NUMBERED.search(side.name) for side in sides)
        if is_last and len(stores) == 1 and is_told:
            yield node.name, tuple(sorted(sides, key=lambda side: int(side.name.rpartition("-")[2])))


def _stream_joins(nodes: Mapping[str, Node]) -> Iterator[tuple[str, DescribedStreamJoin]]:
    """Yield the joins of two streams: each side looks up in the store that the other one fills, and nobody else does.

    Those of a left or outer join share a third store, too.
    """
    users = Counter(store for node in nodes.values() for store in node.stores)
    for node in nodes.values():
        sides = [nodes[name] for name in node.before]
        if len(sides) != 2 or any(len(side.before) != 1 for side in sides):
            continue
        shared = set(sides[0].stores) & set(sides[1].stores)
        looked_up = [tuple(store for store in side.stores if store not in shared) for side in sides]
        if len(shared) > 1 or any(len(stores) != 1 or users[stores[0]] != 2 for stores in looked_up):
            continue
        windowed = [nodes[side.before[0]] for side in sides]
        if any(prefix_of(one.name).startswith("KTABLE-") for one in (node, *sides, *windowed)):
            continue
        if any(len(one.before) != 1 for one in windowed):
            continue
        if [one.stores for one in windowed] != looked_up[::-1]:
            continue
        this, other = sorted((0, 1), key=lambda one: "other-join" in sides[one].name or "OTHER-" in sides[one].name)
        is_outer = "outer-this-join" in sides[this].name or "-OUTERTHIS-" in sides[this].name
        is_left = shared or "outer-other-join" in sides[1 - this].name or "-OUTEROTHER-" in sides[1 - this].name
        method = "outer_join" if is_outer else "left_join" if is_left else "join"
        yield node.name, DescribedStreamJoin((windowed[this], windowed[other]), (sides[this], sides[other]), method)
