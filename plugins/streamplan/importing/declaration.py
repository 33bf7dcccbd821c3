"""The declaration of an application, as calls of the language, and what of it cannot be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamplan.errors import Refused
from streamplan.importing.calls import (
    TOPOLOGY,
    Argument,
    Call,
    Code,
    Missing,
    Questions,
    Result,
    called,
    literal,
    schema,
)
from streamplan.importing.facts import COUNT, SESSIONS, WINDOWS, Facts
from streamplan.importing.nodes import Node, number_of
from streamplan.importing.operations import Operation
from streamplan.importing.processors import processor_of
from streamplan.importing.recognition import DescribedStreamJoin

_PREFIXES = {
    "stream": "KSTREAM-SOURCE-",
    "filter": "KSTREAM-FILTER-",
    "map_values": "KSTREAM-MAPVALUES-",
    "select_key": "KSTREAM-KEY-SELECT-",
    "group_by": "KSTREAM-KEY-SELECT-",
    "map": "KSTREAM-MAP-",
    "flat_map": "KSTREAM-FLATMAP-",
    "flat_map_values": "KSTREAM-FLATMAPVALUES-",
    "peek": "KSTREAM-PEEK-",
    "foreach": "KSTREAM-FOREACH-",
    "print": "KSTREAM-PRINTER-",
    "split": "KSTREAM-BRANCH-",
    "process": "KSTREAM-PROCESSOR-",
    "process_values": "KSTREAM-PROCESSVALUES-",
    "merge": "KSTREAM-MERGE-",
    "aggregate": "KSTREAM-AGGREGATE-",
    "count": "KSTREAM-AGGREGATE-",
    "reduce": "KSTREAM-REDUCE-",
    "join": "KSTREAM-JOIN-",
    "left_join": "KSTREAM-LEFTJOIN-",
    "join of tables": "KTABLE-MERGE-",
    "to_stream": "KTABLE-TOSTREAM-",
    "table_filter": "KTABLE-FILTER-",
    "table_map_values": "KTABLE-MAPVALUES-",
    "table_group_by": "KTABLE-SELECT-",
    "table_aggregate": "KTABLE-AGGREGATE-",
    "table_reduce": "KTABLE-REDUCE-",
    "to_table": "KSTREAM-TOTABLE-",
    "to": "KSTREAM-SINK-",
}
"""The prefix of the name that each method gives its processor."""

Options = dict[str, Argument]


@dataclass(frozen=True)
class Declaration:
    """The declaration of an application.

    Attributes:
        calls: The calls that declare its topology, in their order.
        missing: What of it cannot be told.
    """

    calls: Sequence[Call]
    missing: Sequence[Missing]


def declare(operations: Iterable[Operation], facts: Facts) -> Declaration:
    """Return the calls that declare operations.

    Args:
        operations: In the order of their declaration.
        facts: What a cluster tells of the application.
    """
    operations = [*operations]
    stores = Counter(store for operation in operations for store in operation.node.stores)
    writer = _Writer(facts, {number_of(store): store for store in stores})
    writer.shared = {store for store, processors in stores.items() if processors > 1}
    alone = {each.node.name for each in operations if each.word == "aggregate" and len(each.node.after) == 1}
    writer.suppressed = alone.intersection(each.on[0] for each in operations if each.word == "suppress")
    read = {each.node.name for each in operations if each.word == "table"}
    writer.versioned = read.intersection(each.on[1] for each in operations if each.node.has_buffer)
    for operation in operations:
        writer.add(operation)
    return Declaration(writer.calls, writer.ask.missing)


class _Writer:
    """Writes calls. It draws numbers as the language does, and gives a name where the language would give another.

    Args:
        facts: What a cluster tells of the application.
        stores: The state stores by the numbers in their names.

    Attributes:
        number: The next number.
        again: The call that reads the first stream. Called again, it draws a number and does nothing else.
        made: The results of the calls.
        tables: Those that are tables.
        grouped_tables: Those that are tables with groups.
        groupings: By node and name the results that are groupings.
        cogrouped: By groupings that are folded into one store, and their topics, the result of ``cogroup``.
        branches: By split the number of its branches so far.
        shared: The stores that several processors have.
        suppressed: The aggregates whose results are passed when their windows close.
        versioned: The tables of topics whose stores keep earlier values: those of joins with a grace period.
    """

    def __init__(self, facts: Facts, stores: Mapping[int | None, str]) -> None:
        self.facts = facts
        self.stores = stores
        self.ask = Questions()
        self.calls: list[Call] = []
        self.number = 0
        self.again: Call | None = None
        self.made: set[str] = set()
        self.tables: set[str] = set()
        self.grouped_tables: set[str] = set()
        self.groupings: dict[tuple[str, str | None], str] = {}
        self.cogrouped: dict[tuple[str | None, ...], str] = {}
        self.branches: dict[str, int] = {}
        self.shared: set[str] = set()
        self.suppressed: set[str] = set()
        self.versioned: set[str] = set()

    def add(self, operation: Operation) -> None:
        """Add the calls of one operation."""
        self._skip_to(operation.start)
        for on in operation.on:
            if on not in self.made:
                raise Refused(
                    f"node {operation.node.name} of the topology",
                    expected="to stand behind an operation that the language has",
                    observed=f"{on}, which is a part of one, before it",
                    remedy="Declare this application by hand: docs/language.md has the operations.",
                )
        operation = self._behind_one(operation)
        if not self._fits(operation):
            self._processor(replace(operation, word="behind_stand_in"))
            return
        match operation.word:
            case "stream":
                self._stream(operation.node)
            case "table" | "global_table" as method:
                self._table(operation.node, operation.topic, method)
            case "global_join":
                self._global_join(operation)
            case "to":
                self._to(operation)
            case "repartition":
                self._repartition(operation)
            case "group_by":
                self._group_by(operation)
            case "aggregate" | "reduce":
                self._aggregate(operation)
            case "cogroup":
                self._cogroup(operation)
            case "join" | "left_join":
                self._join(operation)
            case "stream_join":
                self._stream_join(operation)
            case "process" | "process_values":
                self._process(operation)
            case "table_join":
                self._table_join(operation)
            case "foreign_key_join":
                self._foreign_key_join(operation)
            case "table_filter" | "table_map_values" | "to_table":
                self._of_table(operation)
            case "suppress":
                self._suppress(operation)
            case "table_group_by":
                self._group_table(operation)
            case "table_aggregate" | "table_reduce":
                self._table_aggregate(operation)
            case "split":
                self._split(operation)
            case "branch":
                self._branch(operation)
            case _:
                self._processor(operation)

    def _behind_one(self, operation: Operation) -> Operation:
        """Merge the streams before a node that ``Topology.addProcessor`` or ``addSink`` has put behind several."""
        streams = {"merge": 2, "to": 1, "process": 1, "process_values": 1}.get(operation.word, len(operation.on))
        first, *others = operation.on or ("",)
        if (merged := others[: len(operation.on) - streams]) and not {first, *merged} & self.tables:
            self.ask.note(operation.node.name, "it stands behind several nodes: merge() before it is one more node")
            for number, other in enumerate(merged):
                result = f"{operation.node.name}, merged {number}"
                self._drawn(_PREFIXES["merge"])
                self._call(Call(result, first, "merge", (Result(other),), variable="merged"))
                first = result
            return replace(operation, on=(first, *others[len(merged) :]))
        return operation

    # -- numbers and names

    def _skip_to(self, start: int | None) -> None:
        """Draw the numbers that no node has."""
        if self.again is None or start is None or start <= self.number:
            return  # a name stands where the number is another
        numbers = range(self.number, start)
        skipped = f"number {self.number}" if len(numbers) == 1 else f"numbers {self.number} to {start - 1}"
        reason = "the application reads a topic again, or has an operation without a node"
        if of_stores := [f"{number} is that of {self.stores[number]}" for number in numbers if number in self.stores]:
            reason = f"{', '.join(of_stores)}, a store of an operation that the language does not have"
        self.ask.note(skipped, f"no node has {'it' if len(numbers) == 1 else 'them'}: {reason}")
        self._draw(start - self.number, f"No node has {skipped}: {reason}.")

    def _draw(self, count: int, comment: str) -> None:
        """Draw numbers by reading a topic again."""
        if self.again is not None:
            for _ in range(count):
                self._call(Call("", TOPOLOGY, self.again.method, self.again.arguments, self.again.options, "", comment))
                comment = ""
            self.number += count

    def _drawn(self, prefix: str) -> str:
        name = f"{prefix}{self.number:010d}"
        self.number += 1
        return name

    def _named(self, node: Node, method: str) -> Options:
        """The option ``name`` of a node, where the language would give it another."""
        return {} if self._drawn(_PREFIXES[method]) == node.name else {"name": literal(node.name)}

    # -- calls

    def _call(self, call: Call) -> None:
        self.calls.append(call)
        self.made.add(call.result)

    # -- sources and sinks

    def _stream(self, node: Node) -> None:
        topic = node.topics[0] if node.topics else node.pattern or ""
        argument = literal(topic)
        if len(node.topics) > 1:
            names = ", ".join(literal(each).written for each in node.topics)
            argument = Code(f"({names})", f"({names})")
        if not node.topics:
            advice = ": name each of them. A topic that matches later is not read"
            asked = self.ask.text(node.name, f"the topics that match {node.pattern}", topic, advice)
            argument = Code(f"({asked.written},)", f"({argument.tried},)")
        value: Options = {"value": self._value(node, topic)}
        options = value | self._named(node, "stream")
        if number_of(node.name) is None or "name" not in options:  # else its number would be drawn by another
            self.again = self.again or Call("", TOPOLOGY, "stream", (argument,), value)
        partitions = " ".join(filter(None, map(self._partitions, node.topics or (topic,))))
        self._call(Call(node.name, TOPOLOGY, "stream", (argument,), options, topic, partitions))

    def _table(self, node: Node, topic: str, method: str) -> None:
        options: Options = {"value": self._value(node, topic)}
        if node.name in self.versioned:
            asked = "how long {} keeps a value that was replaced, as in 1 hour: the history retention of its store"
            options["store"] = called("Versioned", literal(node.stores[0]), self.ask.text(node.name, asked, "1 hour"))
        elif node.stores and node.stores[0] != f"{topic}-STATE-STORE-{self.number:010d}":
            options["store"] = literal(node.stores[0])
        else:
            self.number += 1
        self.number += 1  # of its source
        if self._drawn("KTABLE-SOURCE-") != node.name:
            options["name"] = literal(node.name)
        if method == "table":
            self.tables.add(node.name)
        elif "store" in options:  # which addGlobalStore() always has
            advice = "addGlobalStore() has the same nodes, and its processor may store something else than the records"
            self.ask.note(node.name, f"whether it is globalTable(): {advice}")
        self._call(Call(node.name, TOPOLOGY, method, (literal(topic),), options, topic, self._partitions(topic)))

    def _value(self, node: Node, topic: str) -> Code:
        """The serde of a topic's values."""
        told, reason = self.facts.schemas.get(topic), self.facts.reasons.get(topic, "")
        if told is None:
            return called("Json", self._asked_schema(node, topic, reason))
        if reason:
            self.ask.note(node.name, f"fields of {topic}: {reason}")
        return called("Json", schema(told))

    def _asked_schema(self, node: Node, topic: str, reason: str) -> Code:
        return _fields(self.ask.text(node.name, f"the fields of {topic}", "", f": {reason}" if reason else ""))

    def _partitions(self, topic: str) -> str:
        count = self.facts.partitions.get(topic)
        return "" if count is None else f"{topic} has {count} partition{'' if count == 1 else 's'}."

    def _to(self, operation: Operation) -> None:
        node = operation.node
        named = self._named(node, "to")
        if node.topics:
            if node.topics[0].endswith("-repartition"):
                self.ask.note(node.name, f"whether the text is complete: no node reads {node.topics[0]}")
            self._call(Call("", operation.on[0], "to", (literal(node.topics[0]),), named))
            return
        topic = self.ask.text(node.name, "the topic of each record that {} writes", f"'{node.name}'")
        topics = self.ask.text(node.name, "the topics that {} may write", node.name)
        options: Options = {"topics": Code(f"({topics.written},)", f"({topics.tried},)"), **named}
        self._call(Call("", operation.on[0], "to", (topic,), options))

    def _repartition(self, operation: Operation) -> None:
        node, topic = operation.node, operation.repartition
        assert topic is not None
        options: Options = {}
        if topic.prefix == f"KSTREAM-REPARTITION-{self.number:010d}":
            self.number += 1
        else:
            options["name"] = literal(topic.prefix)
        self.number += 3
        if topic.topic in self.facts.partitions:
            options = {"number_of_partitions": literal(self.facts.partitions[topic.topic]), **options}
        else:
            self.ask.note(node.name, f"the number of partitions of {topic.topic}, where the application gives it one")
        variable = _variable(topic.prefix, "repartition")
        self._call(Call(node.name, operation.on[0], "repartition", (), options, variable))

    def _fits(self, operation: Operation) -> bool:
        """Whether the results that an operation goes on from are the streams and tables that it needs.

        They are not where a stand-in takes the place of an operation before it.
        """
        are_tables = [on in self.tables for on in operation.on]
        match operation.word:
            case "table_join" | "foreign_key_join":
                return all(are_tables)
            case "join" | "left_join":
                return are_tables == [False, True]
            case "to_stream" | "table_filter" | "table_map_values" | "suppress" | "table_group_by":
                return are_tables == [True]
            case "table_aggregate" | "table_reduce":
                return {*operation.on} <= self.grouped_tables
            case "stream" | "table" | "global_table" | "stand_in":
                return True
        return not any(are_tables)

    def _processor(self, operation: Operation) -> None:
        node = operation.node
        written = processor_of(operation, self.ask, [on in self.tables for on in operation.on])
        options = written.options | self._named(node, written.method)
        variable = _variable(node.name, written.method)
        self._call(
            Call(node.name, operation.on[0], written.method, written.arguments, options, variable, written.comment)
        )

    def _of_table(self, operation: Operation) -> None:
        """Declare an operation whose result is a table."""
        node, method = operation.node, operation.word.removeprefix("table_")
        arguments: tuple[Argument, ...] = ()
        if method == "filter":
            arguments = (self.ask.text(node.name, "which values {} keeps", "true"),)
        elif method == "map_values":
            arguments = (self.ask.fields(node.name, "the value that {} gives"),)
            if number_of(node.name) is None:
                self.ask.note(
                    node.name, "whether it is map_values() or filter() of the table: the application named it"
                )
        options = self._named(node, operation.word)
        drawn = f"KSTREAM-TOTABLE-STATE-STORE-{self.number:010d}" if method == "to_table" else ""
        if node.stores and node.stores[0] != drawn:
            options["store"] = literal(node.stores[0])
        else:
            self.number += method == "to_table"  # the number of its store, which need not be shown
        self.number += 3 * (operation.repartition is not None)
        self.tables.add(node.name)
        self._call(Call(node.name, operation.on[0], method, arguments, options, _variable(node.name, method)))

    def _suppress(self, operation: Operation) -> None:
        node = operation.node
        options: Options = {}
        if number_of(node.name) is None:
            options["name"] = literal(node.name)
        else:
            self.number += 2
        self.tables.add(node.name)
        variable = _variable(node.name, "suppress")
        if operation.on[0] in self.suppressed:
            self.ask.note(node.name, "whether it is untilWindowCloses(): else the aggregate need not have windows")
            waits = Code("UntilWindowCloses()", "UntilWindowCloses()")
        else:
            asked = (
                "the time limit of {}, as in 5 minutes; with max_records= if its buffer is bounded, and "
                "shut_down_when_full=True if the application stops when it is full"
            )
            waits = called("UntilTimeLimit", self.ask.text(node.name, asked, "5 minutes"))
        self._call(Call(node.name, operation.on[0], "suppress", (waits,), options, variable))

    def _group_table(self, operation: Operation) -> None:
        node = operation.node
        options = self._named(node, operation.word)
        key = self.ask.text(node.name, "the key that {} gives", "count")
        self.grouped_tables.add(node.name)
        self._call(Call(node.name, operation.on[0], "group_by", (key,), options, _variable(node.name, "grouped")))

    def _table_aggregate(self, operation: Operation) -> None:
        node, [store], method = operation.node, operation.node.stores, operation.word.removeprefix("table_")
        arguments: tuple[Argument, ...] = ()
        options: Options = {}
        comment = ""
        if COUNT in self.facts.stores.get(store, ()) and method == "aggregate":
            method, comment = "count", "It looks like a count: the values of its changelog have 8 bytes."
        if method != "count":
            advice = ": count() or aggregate()" if method == "aggregate" else ""
            asked = (f"the function that adds a value in {{}}{advice}", "the function that takes a value out in {}")
            functions = tuple(Code(self.ask.text(node.name, each, "").written, "max") for each in asked)
            arguments = functions if method == "reduce" else (Code("dict", "dict"), *functions)
        if method == "aggregate":
            options["schema"] = _fields(self.ask.text(node.name, "the fields of the aggregate of {}", ""))
        if store == f"KTABLE-AGGREGATE-STATE-STORE-{self.number:010d}":
            self.number += 1
        else:
            options["store"] = literal(store)
        self.number += 2  # of the sink and the source of its topic
        options |= self._named(node, operation.word)
        self.tables.add(node.name)
        variable = _variable(store, method)
        self._call(Call(node.name, operation.on[0], method, arguments, options, variable, comment))

    def _split(self, operation: Operation) -> None:
        node = operation.node
        if number_of(node.name) is None:
            self.ask.note(node.name, "whether it is split(): the application named it")
        self._call(Call(node.name, operation.on[0], "split", (), self._named(node, "split"), "branches"))

    def _branch(self, operation: Operation) -> None:
        """Declare a branch of a split, and take its stream where something goes on from it."""
        node, split = operation.node, operation.on[0]
        self.number += 1  # which no name has
        ending = node.name.removeprefix(split)
        self.branches[split] = self.branches.get(split, 0) + 1
        options: Options = {} if ending in ("0", str(self.branches[split])) else {"name": literal(ending)}
        if ending == "0":
            self._call(Call("", split, "default_branch"))
        else:
            advice = "" if "name" not in options else ": where it is what no other takes, write default_branch()"
            condition = self.ask.text(node.name, "which records {} takes", "true", advice)
            self._call(Call("", split, "branch", (condition,), options))
        if node.after:
            variable = f"branch_{ending}" if ending.isdecimal() else ending
            self._call(Call(node.name, split, "no_default_branch", variable=variable, item=node.name))
        self.made.add(node.name)

    def _process(self, operation: Operation) -> None:
        node, ask = operation.node, self.ask
        ask.note(node.name, "what it does with each record: write a class of your own, with a method process()")
        tried = 'type("Tried", (Processor,), {"__module__": "tried", "process": lambda *given: None})'
        processor = Code("Processor", tried)
        options = self._stores_of_process(node, operation.word)
        is_of_older_version = False
        if node.stores or node.after:
            options["schema"] = _fields(ask.text(node.name, "the fields of the records that {} gives", ""))
        if number_of(node.name) is None:
            options["name"] = literal(node.name)
            if not node.stores:
                ask.note(node.name, "whether it is a processor: the numbers leave none for another operation")
        elif is_of_older_version := not node.name.startswith(_PREFIXES[operation.word]):
            options["name"] = literal(node.name)
        else:
            options |= self._named(node, operation.word)
        variable = _variable(node.name, "process")
        self._call(Call(node.name, operation.on[0], operation.word, (processor,), options, variable))
        if is_of_older_version and self.number == number_of(node.name):
            self._draw(1, f"{operation.word}() draws no number for {node.name}, which older versions have given one.")

    def _stores_of_process(self, node: Node, word: str) -> Options:
        """The store of a processor, or its stores: where there are several, and where another processor has it, too."""
        ask = self.ask
        if not node.stores:
            return {}
        if word == "process" and len(node.stores) == 1 and node.stores[0] not in self.shared:
            state = ask.text(node.name, "the fields of the values in the store of {}", "")
            return {"store": literal(node.stores[0]), "state": _fields(state)}
        ask.note(node.name, "the serdes of its stores, and which of them are a WindowStore: here each has keys of text")
        written, tried = [], []
        for store in node.stores:
            name = literal(store).written
            values = _fields(ask.text(node.name, f"the fields of the values in {store}", ""))
            written.append(f"{name}: KeyValueStore(String(), Json({values.written}))")
            tried.append(f"{name}: KeyValueStore(String(), Json({values.tried}))")
        return {"stores": Code(f"{{{', '.join(written)}}}", f"{{{', '.join(tried)}}}")}

    # -- groupings and joins

    def _group_by(self, operation: Operation) -> None:
        node = operation.node
        options = self._named(node, "group_by")
        # The name of a group_by is that of its grouping, too.
        method = "group_by" if bool(options) == (operation.grouping is not None) else "select_key"
        if method == "group_by":
            self.groupings[node.name, operation.grouping] = node.name
        variable = _variable(node.name, "grouped")
        key = self.ask.text(node.name, "the key that {} gives", "count")
        self._call(Call(node.name, operation.on[0], method, (key,), options, variable))

    def _grouping(self, stream: str, name: str | None) -> str:
        """The result that is the grouping of an aggregate."""
        if (stream, name) not in self.groupings:
            self.groupings[stream, name] = f"{stream} grouped by {name or 'its key'}"
            options: Options = {} if name is None else {"name": literal(name)}
            self._call(Call(self.groupings[stream, name], stream, "group_by_key", (), options, name or "grouped"))
        return self.groupings[stream, name]

    def _aggregate(self, operation: Operation) -> None:
        node, method = operation.node, operation.word
        [store] = node.stores
        told = self.facts.stores.get(store)
        if operation.others:
            self.ask.note(node.name, f"whether it fills the store {store}, or {' or '.join(operation.others)} does")
        grouping, comment = self._grouping(operation.on[0], operation.grouping), ""
        if told is not None and told.isdisjoint((WINDOWS, SESSIONS)):
            self.suppressed.discard(node.name)
        if (told and not told.isdisjoint((WINDOWS, SESSIONS))) or node.name in self.suppressed:
            grouping = self._windows(node, grouping, are_sessions=told is not None and SESSIONS in told)
            method = "aggregate"  # reduce() of windows takes a function, which no description shows
        if told and COUNT in told and method == "aggregate":
            method, comment = "count", "It looks like a count: the values of its changelog have 8 bytes."
        arguments: tuple[Argument, ...] = ()
        options: Options = {}
        is_told = told is not None or node.name in self.suppressed
        windows = "" if is_told else ", and whether it has windows"
        if method == "aggregate":
            advice = f": count() or aggregate(){windows}"
            arguments = (self.ask.fields(node.name, "what {} computes", "sum(count)", advice),)
        elif method == "reduce":
            advice = f": reduce() keeps the latest, max_by= the greatest, min_by= the least{windows}"
            options["max_by"] = self.ask.text(node.name, "which record {} keeps", "count", advice)
        elif windows:
            self.ask.note(node.name, "whether it has windows")
        if store == f"{_PREFIXES[method]}STATE-STORE-{self.number:010d}":
            self.number += 1
        else:
            options["store"] = literal(store)
        options |= self._named(node, method)
        self.number += 3 * (operation.repartition is not None)
        self.tables.add(node.name)
        variable = _variable(store, method)
        self._call(Call(node.name, grouping, method, arguments, options, variable, comment))

    def _cogroup(self, operation: Operation) -> None:
        node, [store] = operation.node, operation.stores
        told = self.facts.stores.get(store)
        result = self._cogrouped(operation)
        if told is None:
            self.ask.note(node.name, "whether it has windows")
        elif not told.isdisjoint((WINDOWS, SESSIONS)):
            result = self._windows(node, result, are_sessions=SESSIONS in told)
        options: Options = {}
        if store == f"COGROUPKSTREAM-AGGREGATE-STATE-STORE-{self.number:010d}":
            self.number += 1
        else:
            options["store"] = literal(store)
        self.number += 3 * sum(topic is not None for topic in operation.topics) + len(operation.on)
        if self._drawn("COGROUPKSTREAM-MERGE-") != node.name:
            options["name"] = literal(node.name.removesuffix("-cogroup-merge"))
        self.tables.add(node.name)
        self._call(Call(node.name, result, "aggregate", (), options, _variable(store, "aggregate")))

    def _cogrouped(self, operation: Operation) -> str:
        """The result that names all streams which are folded into one store."""
        groupings: list[str] = []
        for stream, name in zip(operation.on, operation.groupings, strict=True):
            grouping = self._grouping(stream, name)
            if grouping in groupings:  # a stream that is grouped twice
                grouping = f"{grouping}, once more"
                self._call(Call(grouping, stream, "group_by_key", (), {}, "grouped"))
            groupings.append(grouping)
        topics = tuple(None if topic is None else topic.topic for topic in operation.topics)
        if (known := self.cogrouped.get((*groupings, *topics))) is not None:
            return known
        result = ""
        for grouping, side in zip(groupings, operation.sides, strict=True):
            fields = self.ask.fields(side, "what {} computes of its stream", "sum(count)")
            on, arguments = (grouping, (fields,)) if not result else (result, (Result(grouping), fields))
            result = f"cogroup of {side}"
            self._call(Call(result, on, "cogroup", arguments, {}, "cogrouped"))
        self.cogrouped[(*groupings, *topics)] = result
        return result

    def _windows(self, node: Node, grouping: str, *, are_sessions: bool) -> str:
        kind, asked = "TimeWindows", "the size of the windows of {}, as in 1 minute; its second argument is their grace"
        if are_sessions:
            kind = "SessionWindows"
            asked = "the inactivity gap of the sessions of {}, as in 5 minutes; its second argument is their grace"
        windows = called(kind, self.ask.text(node.name, asked, "5 minutes" if are_sessions else "1 minute"))
        result = f"{grouping} in windows of {node.name}"
        self._call(Call(result, grouping, "windowed_by", (windows,), {}, "windows"))
        return result

    def _join(self, operation: Operation) -> None:
        node, [stream, table] = operation.node, operation.on
        if number_of(node.name) is None:
            self.ask.note(
                node.name, "whether it is join() or left_join(): its name, given by the user, does not tell it"
            )
        self.number += 3 * (operation.repartition is not None)
        fields = self.ask.fields(node.name, "the value that {} gives", "table.count")
        options: Options = {}
        if table in self.versioned:
            asked = "how long {} waits for late rows, as in 1 minute: its grace period"
            options["grace"] = self.ask.text(node.name, asked, "1 minute")
        elif node.has_buffer:
            self.ask.note(
                node.name,
                "it has a grace period (Joined.withGracePeriod), which the language has for a join with a versioned "
                "table of a topic: topology.table(…, store=Versioned('…', history='…'))",
            )
        options |= self._named(node, operation.word)
        variable = _variable(node.name, operation.word)
        self._call(Call(node.name, stream, operation.word, (Result(table), fields), options, variable))

    def _global_join(self, operation: Operation) -> None:
        node, [stream, table] = operation.node, operation.on
        if operation.others:
            self.ask.note(node.name, f"which global table it joins: {', '.join((table, *operation.others))}")
        self.ask.note(node.name, "whether it is join() or left_join(): both have the same name")
        fields = self.ask.fields(node.name, "the value that {} gives", "table.count")
        options: Options = {"key": self.ask.text(node.name, "the key that {} looks up in the global table", "count")}
        options |= self._named(node, "left_join")
        variable = _variable(node.name, "join")
        self._call(Call(node.name, stream, "join", (Result(table), fields), options, variable))

    def _stream_join(self, operation: Operation) -> None:
        node, [stream, other], join = operation.node, operation.on, operation.stream_join
        assert join is not None
        fields = self.ask.fields(node.name, "the value that {} gives", "other.count")
        asked = "how far apart in time records of {} may be, as in 5 minutes; grace= is how late they may come"
        options: Options = {"within": called("JoinWindows", self.ask.text(node.name, asked, "5 minutes"))}
        self.number += 2
        both = join.method == "outer_join"
        store = self._drawn("KSTREAM-OUTERTHIS-" if both else "KSTREAM-JOINTHIS-")
        self.number += 1
        self._judge_stores_of(join, node)
        if (given := join.windowed[0].stores[0]) != f"{store}-store":
            suffix = "-outer-this-join-store" if both else "-this-join-store"
            options["store"] = literal(given.removesuffix(suffix))
        if self._drawn(_PREFIXES["merge"]) != node.name:
            options["name"] = literal(node.name.removesuffix("-merge"))
        variable = _variable(node.name, join.method)
        self._call(Call(node.name, stream, join.method, (Result(other), fields), options, variable))

    def _judge_stores_of(self, join: DescribedStreamJoin, node: Node) -> None:
        """Say where a join of two streams has other stores than the language gives it."""
        if join.method != "join" and len({*join.sides[0].stores, *join.sides[1].stores}) == 2:
            advice = (
                "JoinWindows.of() of older versions passes a record without a match at once, and needs no third store"
            )
            self.ask.note(node.name, f"it has two stores, and {join.method}() has three: {advice}")
        this, other = (windowed.stores[0] for windowed in join.windowed)
        if number_of(this.removesuffix("-store")) is None and not this.endswith("-this-join-store"):
            advice = "the language ends the name of store= with -this-join-store and -other-join-store"
            self.ask.note(node.name, f"its stores {this} and {other} have names of their own: {advice}")

    def _table_join(self, operation: Operation) -> None:
        node, [this, other] = operation.node, operation.on
        kinds = "whether it is join(), left_join() or outer_join(): all three have the same nodes"
        self.ask.note(node.name, kinds)
        fields = self.ask.fields(node.name, "the value that {} gives", "table.count")
        options: Options = {"store": literal(node.stores[0])} if node.stores else {}
        options |= self._named(node, "join of tables")
        self.number += 2
        self.tables.add(node.name)
        self._call(Call(node.name, this, "join", (Result(other), fields), options, _variable(node.name, "join")))

    def _foreign_key_join(self, operation: Operation) -> None:
        node, [this, other] = operation.node, operation.on
        self.ask.note(node.name, "whether it is join() or left_join(): both have the same nodes")
        fields = self.ask.fields(node.name, "the value that {} gives", "table.count")
        options: Options = {
            "foreign_key": self.ask.text(node.name, "the key of the other table that {} joins", "count")
        }
        is_named = bool(node.stores) and number_of(node.stores[0]) is None
        self.number += len(operation.numbers) - (1 if is_named else 2)
        if self._drawn("KTABLE-FK-JOIN-OUTPUT-") != node.name:
            options["name"] = literal(node.name.removesuffix("-result"))
        if node.stores and node.stores[0] != f"KTABLE-FK-JOIN-OUTPUT-STATE-STORE-{self.number:010d}":
            options["store"] = literal(node.stores[0])
        self.number += not is_named
        self.tables.add(node.name)
        self._call(Call(node.name, this, "join", (Result(other), fields), options, _variable(node.name, "join")))


def _fields(asked: Code) -> Code:
    """A schema that was asked for."""
    return Code(asked.written, schema("").tried)


def _variable(name: str, method: str) -> str:
    """What to call a result: the application's name of it, or the method with the number that the library gave."""
    number = number_of(name)
    return name if number is None else f"{method}_{number}"
