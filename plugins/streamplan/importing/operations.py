"""Which operations of the language make the nodes of a description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from streamplan.importing.nodes import DescribedRepartition, Node, number_of, prefix_of
from streamplan.importing.recognition import AGGREGATES, JOINS, TABLE_AGGREGATES, DescribedStreamJoin, Recognition


@dataclass(frozen=True)
class Operation:
    """An operation that makes nodes of a description.

    Attributes:
        word: The method of the language, or another word of :class:`Recognition`.
        node: The node that the operation is called after, and that later operations go on from.
        on: The nodes that it goes on from. A join has the table behind the stream.
        numbers: The numbers that the library draws for it, in their order. None: the description does not show it.
        repartition: The repartition topic that it declares, or that it uses again.
        grouping: The name of the grouping, of ``group_by`` and of an aggregate behind a repartition topic.
        topic: The topic of a table.
        others: Nodes that may fill the state store instead of this one.
        behind: The nodes that are declared before, besides those that it goes on from.
        stream_join: The nodes of a join of two streams.
        sides: The names of the processors of streams that are folded into one store, in the order of ``on``.
        stores: Their state store.
        groupings: The names of their groupings.
        topics: The repartition topics that these declare; None for one that needs none.
    """

    word: str
    node: Node
    on: tuple[str, ...] = ()
    numbers: tuple[int | None, ...] = ()
    repartition: DescribedRepartition | None = None
    grouping: str | None = None
    topic: str = ""
    others: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    stream_join: DescribedStreamJoin | None = None
    sides: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    groupings: tuple[str | None, ...] = ()
    topics: tuple[DescribedRepartition | None, ...] = ()

    @property
    def start(self) -> int | None:
        """The first number that it draws; None where no number can be seen."""
        return next((number - place for place, number in enumerate(self.numbers) if number is not None), None)


def operations_of(
    nodes: Mapping[str, Node], global_tables: Mapping[str, tuple[Node, Node]] = MappingProxyType({})
) -> list[Operation]:
    """The operations that make these nodes.

    Args:
        nodes: The nodes of a description by their names, each behind those before it.
        global_tables: By the name of its processor the source of each global table, and the processor.
    """
    return list(_Operations(nodes, global_tables).all())


class _Operations:
    def __init__(self, nodes: Mapping[str, Node], global_tables: Mapping[str, tuple[Node, Node]]) -> None:
        self.nodes = nodes
        self.global_tables = global_tables
        self.found = Recognition(nodes, has_global_tables=bool(global_tables))

    def all(self) -> Iterator[Operation]:
        for source, table in self.global_tables.values():
            yield self._table(source, table, "global_table")
        for node in self.nodes.values():
            word, number = self.found.words[node.name], number_of(node.name)
            if word == "repartition":
                if self.found.uses[node.name] == "repartition":
                    yield self._repartition(self.found.repartitions[node.name])
            elif word == "to":
                if node.name not in self.found.around:
                    yield Operation("to", node, node.before, (number,))
            elif word == "stream":
                if not any(self.found.words[after] == "table" for after in node.after):
                    yield Operation("stream", node, (), (number,))
            elif word == "table":
                yield self._table(self.nodes[node.before[0]], node, "table")
            elif word == "global_join":
                yield self._global_join(node)
            elif word in AGGREGATES:
                yield self._aggregate(node)
            elif word in TABLE_AGGREGATES:
                yield self._table_aggregate(node)
            elif word in JOINS:
                yield self._join(node)
            elif word == "stream_join":
                yield self._stream_join(node)
            elif word == "table_join":
                yield self._table_join(node)
            elif word == "foreign_key_join":
                yield self._foreign_key_join(node)
            elif word == "cogroup":
                yield self._cogroup(node)
            elif word == "branch":
                yield self._branch(node)
            elif word == "suppress":
                numbers = () if number is None else (number, number_of(node.stores[0]))
                yield Operation(word, node, node.before, numbers)
            elif word == "to_table":
                store = number_of(node.stores[0]) if node.stores else None
                has_number = not node.stores or store is not None
                yield Operation(word, node, node.before, (number, *((store,) if has_number else ())))
            elif word in ("in_stream_join", "in_table_join", "in_foreign_key_join", "in_cogroup"):
                continue
            else:
                if is_grouped := word == "select_key" and self._is_group_by(node):
                    word = "group_by"
                grouping = node.name if is_grouped and number is None else None
                yield Operation(word, node, node.before, (number,), grouping=grouping)

    def _branch(self, node: Node) -> Operation:
        """A branch draws a number that no name has. Without one of its own, its name ends with its place, or 0."""
        split = self.nodes[node.before[0]]
        place = node.name.removeprefix(split.name)
        places = {name: name.removeprefix(split.name) for name in split.after}
        earlier = [str(number) for number in range(1, int(place))] if place.isdecimal() else []
        behind = tuple(name for name, of in places.items() if of in earlier or (place == "0" and name != node.name))
        return Operation("branch", node, node.before, (None,), behind=behind)

    def _repartition(self, topic: DescribedRepartition) -> Operation:
        own = (number_of(topic.prefix),) if prefix_of(topic.prefix) == "KSTREAM-REPARTITION-" else ()
        return Operation("repartition", self.nodes[topic.source], (topic.upstream,), (*own, *topic.numbers), topic)

    def _table(self, source: Node, node: Node, word: str) -> Operation:
        # A store that nothing needs is not shown, but has a number. A store with a name has none.
        store = (number_of(node.stores[0]),) if node.stores else (None,)
        numbers = () if node.stores and store == (None,) else store
        numbers = (*numbers, number_of(source.name), number_of(node.name))
        return Operation(word, node, (), numbers, topic=", ".join(source.topics))

    def _global_join(self, node: Node) -> Operation:
        """No line says which global table it is: of several it is taken to be the last one that was declared before."""
        number = number_of(node.name) or 0
        before = [name for name in self.global_tables if (number_of(name) or 0) < number]
        table = max(before or self.global_tables, key=lambda name: number_of(name) or 0)
        others = tuple(name for name in self.global_tables if name != table)
        return Operation("global_join", node, (node.before[0], table), (number,), others=others)

    def _aggregate(self, node: Node) -> Operation:
        store = number_of(node.stores[0])
        own = (number_of(node.name),) if store is None else (store, number_of(node.name))
        others = tuple(
            other.name
            for other in self.nodes.values()
            if node.stores == other.stores and node is not other and not prefix_of(node.name) + prefix_of(other.name)
        )
        topic = self._declared(node, "group")
        if topic is None:
            return Operation(self.found.words[node.name], node, node.before, own, others=others)
        numbers = (*own, *self._numbers_of(topic, node))
        name = self.found.grouping_name(topic)
        return Operation(self.found.words[node.name], node, (topic.upstream,), numbers, topic, name, others=others)

    def _table_aggregate(self, node: Node) -> Operation:
        topic, store = self.found.repartitions[node.before[0]], number_of(node.stores[0])
        sink, _, source = self._numbers_of(topic, node)
        numbers = (*(() if store is None else (store,)), sink, source, number_of(node.name))
        name = None if topic.prefix == node.stores[0] else topic.prefix
        return Operation(self.found.words[node.name], node, (topic.upstream,), numbers, topic, name)

    def _join(self, node: Node) -> Operation:
        table = self.found.writers[node.stores[0]]
        topic = self._declared(node, "join")
        if topic is None:
            return Operation(self.found.words[node.name], node, (node.before[0], table), (number_of(node.name),))
        numbers = (*self._numbers_of(topic, node), number_of(node.name))
        # The name of a join is that of its topic, too. A join without a name uses the topic of the one before it.
        first = () if topic.prefix in (topic.upstream, node.name) else (topic.prefix,)
        return Operation(self.found.words[node.name], node, (topic.upstream, table), numbers, topic, behind=first)

    def _stream_join(self, node: Node) -> Operation:
        join = self.found.stream_joins[node.name]
        stores = (number_of(windowed.stores[0].removesuffix("-store")) for windowed in join.windowed)
        windows = (number_of(windowed.name) for windowed in join.windowed)
        sides = (
            number_of(side.name) if store is None else store for side, store in zip(join.sides, stores, strict=True)
        )
        on = tuple(windowed.before[0] for windowed in join.windowed)
        return Operation("stream_join", node, on, (*windows, *sides, number_of(node.name)), stream_join=join)

    def _table_join(self, node: Node) -> Operation:
        join = self.found.table_joins[node.name]
        numbers = tuple(number_of(one.name) for one in (node, join.this, join.other))
        return Operation("table_join", node, (join.this.before[0], join.other.before[0]), numbers)

    def _foreign_key_join(self, node: Node) -> Operation:
        join = self.found.foreign_key_joins[node.name]
        store = number_of(node.stores[0]) if node.stores else None
        has_number = not node.stores or store is not None  # a store that is not shown has one
        numbers = (*map(number_of, join.drawn), *((store,) if has_number else ()))
        return Operation("foreign_key_join", node, (join.this, join.other), numbers)

    def _cogroup(self, node: Node) -> Operation:
        sides = self.found.cogroups[node.name]
        topics = [self._declared(side, "group") for side in sides]
        store = number_of(sides[0].stores[0])
        numbers: list[int | None] = [] if store is None else [store]
        for side, topic in zip(sides, topics, strict=True):
            numbers += () if topic is None else self._numbers_of(topic, side)
        numbers += [number_of(one.name) for one in (*sides, node)]
        return Operation(
            "cogroup",
            node,
            tuple(
                side.before[0] if topic is None else topic.upstream for side, topic in zip(sides, topics, strict=True)
            ),
            tuple(numbers),
            next((topic for topic in topics if topic is not None), None),
            sides=tuple(side.name for side in sides),
            stores=sides[0].stores,
            groupings=tuple(None if topic is None else self.found.grouping_name(topic) for topic in topics),
            topics=tuple(topics),
        )

    def _declared(self, node: Node, use: str) -> DescribedRepartition | None:
        """The topic that a node declares by needing it."""
        return self.found.repartitions[node.before[0]] if self.found.uses.get(node.before[0]) == use else None

    def _numbers_of(self, topic: DescribedRepartition, node: Node) -> tuple[int | None, ...]:
        """The numbers that a reader of a topic draws for it. Those of the first reader are shown."""
        first = min(topic.readers, key=lambda name: number_of(name) or 0)
        return topic.numbers if node.name == first else (None, None, None)

    def _is_group_by(self, node: Node) -> bool:
        """Whether a new key is only grouped by: ``group_by`` has one name for the key and for the grouping."""
        topics = [topic for topic in self.found.repartitions.values() if topic.upstream == node.name]
        names = {self.found.grouping_name(topic) for topic in topics if self.found.uses[topic.source] == "group"}
        return (
            len(topics) == len(node.after)
            and all(self.found.uses[topic.source] == "group" for topic in topics)
            and names == {None if prefix_of(node.name) else node.name}
        )
