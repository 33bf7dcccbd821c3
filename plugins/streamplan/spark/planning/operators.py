"""Operations applied to records, one node of a sub-topology after the other, up to the rows that are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from streamplan.errors import Refused
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.functions import PythonFunction
from streamplan.model.merge_order import has_updates, ways_that_meet
from streamplan.model.operations import (
    ACTS,
    Aggregate,
    AggregateFunction,
    Branch,
    Columns,
    Count,
    Filter,
    FilterFunction,
    FilterNot,
    FilterNotFunction,
    FlatMap,
    FlatMapFunction,
    FlatMapValues,
    FlatMapValuesFunction,
    ForEach,
    GlobalJoin,
    Join,
    KeySelect,
    Map,
    MapFunction,
    MapValues,
    MapValuesFunction,
    Merge,
    NullKeyFilter,
    Operation,
    OuterStreamJoin,
    Peek,
    PeekFunction,
    ProcessToAct,
    ProcessWithoutStores,
    Reduce,
    ReduceFunction,
    SeveralTopics,
    Split,
    Suppress,
    SuppressUpdates,
    TableFilter,
    TableJoinSide,
    TableMapValues,
    TableMapValuesFunction,
    TableReduce,
    TableSource,
    ToStream,
    ToTable,
    function_of,
)
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology, TopicChoice
from streamplan.model.stages import stage_of
from streamplan.model.windows import SEQUENCE_NUMBER_BYTES
from streamplan.serdes.internal import unreadable_expression
from streamplan.serdes.serde import HEADER_LENGTH_BYTES, MAX_BYTES, Serde, too_large
from streamplan.serdes.suppress_buffer import VERSION_HEADER
from streamplan.spark.global_tables import ReadTable
from streamplan.spark.headers import headers_as_text
from streamplan.spark.planning.compiled_plan import is_deterministic
from streamplan.spark.planning.each_expression import Expression, expressions_of, judge_each
from streamplan.spark.planning.examined_expression import examine, examine_analyzed, require_visible
from streamplan.spark.planning.extracted_timestamps import with_timestamps
from streamplan.spark.planning.field_types import declared_fields
from streamplan.spark.planning.foreign_key_join import SENT_FORMATS
from streamplan.spark.planning.global_table_join import join_with_global_table
from streamplan.spark.planning.keys import big_endian
from streamplan.spark.planning.output_rows import OutputRows, dead_letter_rows, output_rows
from streamplan.spark.planning.process_records import process_records
from streamplan.spark.planning.python_functions import branched_by, call_with, filter_by, flat_map_by, map_by
from streamplan.spark.planning.record_parts import (
    TOLD,
    filtered,
    map_values_by,
    with_key_of,
    without_told,
)
from streamplan.spark.planning.records import (
    RecordFrame,
    read_external,
    read_internal,
    read_internal_keys,
    record_has,
)
from streamplan.spark.planning.refusals import REFUSALS, Group, explain
from streamplan.spark.planning.written_values import write_values
from streamplan.spark.sink.spec import NULL_KEY
from streamplan.spark.sources import HEADERS

ApplyStateful: TypeAlias = Callable[[Processor, Sequence[RecordFrame], "OperatorPlanner"], RecordFrame]
"""Gives the records of a node, of the records of those before it, in the planner that plans the node."""


_AGGREGATES = (Count, Aggregate, Reduce, ReduceFunction, AggregateFunction, TableReduce)
_REKEY = (KeySelect, Map, FlatMap, MapFunction, FlatMapFunction)


class OperatorPlanner:
    """Plans the nodes of a sub-topology, each on the records of its predecessors.

    Args:
        subtopology: Whose nodes are planned.
        apply_stateful: Plans a node that belongs to the state (``StagePlan.apply``).
        diagnostics: Where given, a node that Spark refuses is noted in it, and the nodes after it are left out.
        acts: Whether the functions of ``foreach`` and ``peek`` are called. A recount leaves them out.
        repeats: Whether another planner plans the same operations, too: then neither is a function called for what it
            does, nor are records counted.
        keeps_rows: Whether each record has a row to the end, also where nothing is made of it.

    ``written``  what is known of the records of each output that was planned, by its number
    ``grouped``  the nodes whose records were grouped, so that those that cannot be are rejected once
    ``read``     of a sub-topology with several states the records of each source, as they were read, by its name
    ``read_table``  reads global tables in the workers; None takes them for empty: where nobody looks at the results
    ``of_tables``   has planned the tables in which the next state looks up, with each of their updates; None where this
                    planner has them
    """

    def __init__(
        self,
        subtopology: Subtopology,
        apply_stateful: ApplyStateful,
        diagnostics: list[Diagnostic] | None = None,
        *,
        acts: bool = True,
        repeats: bool = False,
        keeps_rows: bool = False,
    ) -> None:
        self.subtopology = subtopology
        self._apply_stateful = apply_stateful
        self._acts = acts and not repeats
        self._repeats = repeats
        self._keeps_rows = keeps_rows
        self._outputs = subtopology.output_numbers
        self._diagnostics = diagnostics
        self.written: dict[int, RecordFrame] = {}
        self._frames: dict[str, RecordFrame | None] = {}
        self._unknown: dict[str, frozenset[str]] = {}
        self._consumed: set[str] = set()
        self.grouped: set[str] = set()
        self._ways = ways_that_meet(subtopology)
        self.read: Mapping[str, RecordFrame] = {}
        self.read_table: ReadTable | None = None
        self.of_tables: OperatorPlanner | None = None
        self._rows: list[DataFrame] = []
        self._observations: list[tuple[str, Observation]] = []
        self._schemas: dict[str, Serde] = {}

    def bind(self, name: str, frame: RecordFrame) -> None:
        """Say what the records of a node are, instead of planning it."""
        self._frames[name] = frame

    def bind_all(self, frames: Mapping[str, RecordFrame]) -> None:
        """Say what the records of nodes are, by their names."""
        self._frames.update(frames)

    def write(self, rows: DataFrame) -> None:
        """Add rows of the columns :data:`~streamplan.spark.planning.output_rows.OUTPUT` to those that are written."""
        self._rows.append(rows)

    def plan(self, nodes: Iterable[Node]) -> None:
        """Plan the nodes that are neither planned nor bound. Sources are bound.

        Args:
            nodes: In the order in which records pass them.
        """
        for node in nodes:
            if node.name in self._frames or isinstance(node, Source):
                continue
            predecessors = [self._consume_for(node, name) for name in self.subtopology.predecessors[node.name]]
            frame: RecordFrame | None = None
            known = [predecessor for predecessor in predecessors if predecessor is not None]
            if len(known) == len(predecessors):
                frame = self._apply(node, known) if self._diagnostics is None else self._judge(node, known)
            self._frames[node.name] = frame

    def _judge(self, node: Processor | Sink, predecessors: Sequence[RecordFrame]) -> RecordFrame | None:
        """Plan a node, or note what is wrong with each of its expressions.

        After that the fields of the wrong ones are not known. What is written of such records is not judged.
        """
        assert self._diagnostics is not None
        before = (self._unknown.get(name, frozenset()) for name in self.subtopology.predecessors[node.name])
        unknown = self._unknown[node.name] = frozenset[str]().union(*before)
        if isinstance(node, Sink) and (unknown or (node.choice is not None and not node.choice.is_first)):
            return None  # the expression of several topics is judged once
        refused = None
        fields = predecessors[0].fields
        group = Group(self._sees_aggregate(node), record_has(predecessors[0].data, "window"))
        if not unknown:
            try:
                return self._examined(node, predecessors)
            except REFUSALS as error:
                text = node.choice.expression if isinstance(node, Sink) and node.choice is not None else ""
                where = "to: " if text else ""
                said = explain(error, text, fields, group)
                refused = Diagnostic(node.location, f"{where}{said.message}", said.hint)
        if isinstance(node, Processor):
            processor = node

            def attempt(operation: Operation) -> object:
                return self._examined(replace(processor, operation=operation), predecessors)

            if (judged := judge_each(node.operation, unknown, attempt)) is not None:
                for where, text, told in judged.faults:
                    said = explain(told, text, fields, group)
                    self._diagnostics.append(Diagnostic(node.location, f"{where}: {said.message}", said.hint))
                self._unknown[node.name] = judged.unknown
                node, refused = replace(node, operation=judged.operation), None if judged.faults else refused
        if refused is not None:
            self._diagnostics.append(refused)
            return None
        try:
            return self._apply(node, predecessors)
        except REFUSALS:  # what is not known is a text here, which may not fit
            return None

    def _sees_aggregate(self, node: Processor | Sink) -> bool:
        """Whether the records of a node are the updates of an aggregate, under the key of the group."""
        before = {each.name: each for each in self.subtopology.upstream_of([node])}
        names = self.subtopology.predecessors[node.name]
        while names and isinstance(found := before.get(names[0]), Processor):
            if isinstance(found.operation, _AGGREGATES):
                return True
            if isinstance(found.operation, _REKEY):
                return False
            names = self.subtopology.predecessors[found.name]
        return False

    def _examined(self, node: Processor | Sink, predecessors: Sequence[RecordFrame]) -> RecordFrame:
        """Plan a node whose expressions are also examined: Spark takes more than a declaration can mean."""
        frame = predecessors[0]
        expressions: list[Expression] = []
        if isinstance(node, Processor):
            expressions = list(expressions_of(node.operation))
        elif node.choice is not None:
            expressions = [Expression(node.choice.expression)]
        for expression in expressions:
            examine(frame.data, expression.text, frame.fields)
            if expression.is_condition:
                require_visible(frame.data, expression.text)
        made = self._apply(node, predecessors)
        read = [
            (expression.text, each)
            for expression in expressions
            if expression.sees_value_alone
            for each in examine_analyzed(frame.data, expression.text)
        ]
        assert self._diagnostics is not None
        for text, each in read:
            said = f"{text!r} reads the text {each.text} as {each.type}, and stops the application where it is none"
            hint = f"Write try_cast({each.text} as {each.type})"
            warning = Diagnostic(node.location, said, hint, is_warning=True)
            if warning not in self._diagnostics:
                self._diagnostics.append(warning)
        return made

    def plan_before(self, nodes: Sequence[Processor]) -> None:
        """Plan every node that records pass on their way into one of these."""
        self.plan(self.subtopology.upstream_of(nodes))

    def plan_beside(self, nodes: Sequence[Processor]) -> None:
        """Plan every node that is none of these and does not come after them."""
        names = {node.name for node in nodes}
        after = self.subtopology.downstream_of(names)
        self.plan(node for node in self.subtopology.nodes if node.name not in after and node.name not in names)

    def frame_of(self, name: str) -> RecordFrame:
        """Return what is known of the records of a node that is planned or bound."""
        frame = self._frames[name]
        assert frame is not None, f"{name} is planned on records that Spark refused"
        return frame

    def known(self, name: str) -> RecordFrame | None:
        """Return what is known of the records of a node; None where it is not planned, or Spark refuses it."""
        return self._frames.get(name)

    def source_frames(self) -> dict[str, RecordFrame]:
        """Return the records of each source that is bound, by its name.

        A recount does not read what the other side of a join by a foreign key has sent.
        """
        frames = {source.name: self._frames.get(source.name) for source in self.subtopology.sources}
        return {name: frame for name, frame in frames.items() if frame is not None}

    def consume(self, name: str) -> RecordFrame | None:
        """Return the records of a node for one of its successors, the rejected ones for the first successor only.

        None stands for a node that Spark refused, which only a planner with ``diagnostics`` has.
        """
        frame = self._frames[name]
        first = name not in self._consumed
        self._consumed.add(name)
        return frame if frame is None or first else frame.accepted()

    def _consume_for(self, node: Node, name: str) -> RecordFrame | None:
        """What a node is given of a node before it. A Python class may have forwarded it to another node alone."""
        frame = self.consume(name)
        if frame is None:
            return None
        frame = frame.for_child(_child_name(node))
        begun, place = self._ways.begun.get(name), self._ways.places.get((name, node.name))
        return frame if begun is None and place is None else frame.on_way(begun, place)

    def inputs_of(self, node: Processor) -> list[RecordFrame]:
        """Return the records of each node before a processor, which are planned or bound."""
        frames = []
        for predecessor in self.subtopology.predecessors[node.name]:
            frame = self._consume_for(node, predecessor)
            assert frame is not None, f"{node.name} is planned on records that Spark refused"
            frames.append(frame)
        return frames

    def write_changelog(self, node: Processor, frame: RecordFrame) -> None:
        """Write a store's updates into the partition of the task. A window stands in the bytes after the key.

        As in Kafka Streams, they have no headers, except those of the buffer of ``suppress``.
        """
        key = frame.key
        if frame.is_of_sessions:
            key = _session_key(key)
        elif frame.windowed:
            start = F.unix_millis("record.window.start")
            number = F.lit(bytes(SEQUENCE_NUMBER_BYTES))
            if frame.keeps_duplicates:
                number = F.substring(big_endian(F.col("record.sequence_number")), -SEQUENCE_NUMBER_BYTES, 4)
            key = F.concat(key, big_endian(start), number)  # WindowKeySchema
        buffers = isinstance(node.operation, SuppressUpdates)
        headers = F.lit(headers_as_text([VERSION_HEADER]) if buffers else None).cast(HEADERS)
        frame = frame.with_record(F.col("record").withField("headers", headers))
        self.written[self._outputs[node.name]] = frame
        self.write(output_rows(frame, self._outputs[node.name], key, F.col("record.value")))

    def take_output_rows(self) -> OutputRows:
        """Return what was planned since the last call, with the rejected records that no node has consumed."""
        for node in self.subtopology.nodes:
            frame = self._frames.get(node.name)
            if frame is None or node.name in self._consumed or isinstance(node, Sink):
                continue
            if isinstance(node, Processor) and isinstance(node.operation, TableJoinSide):
                continue  # what it gives is bound
            self._consumed.add(node.name)
            if not frame.no_rejects:
                self.write(dead_letter_rows(frame.rejected()))
            elif not (isinstance(node, Processor) and node.writes_store):
                # Nothing is written, but Spark must still read the records: a peek before may count them.
                self.write(dead_letter_rows(frame.data.where(F.col("record.partition") < 0)))
        output = OutputRows(tuple(self._rows), tuple(self._observations), dict(self._schemas))
        self._rows.clear()
        return output

    def _apply(self, node: Processor | Sink, predecessors: Sequence[RecordFrame]) -> RecordFrame:
        frame = predecessors[0]
        if isinstance(node, Sink):
            if frame.format in SENT_FORMATS:
                for sent in predecessors:
                    self.write_sent(node, sent)
                return replace(frame, data=frame.data.limit(0), no_rejects=True)
            return self._write_sink(node, frame)
        match node.operation:
            case Filter(condition=condition) if self._keeps_rows:
                return frame.passing_over(condition)
            case FilterNot(condition=condition) if self._keeps_rows:
                return frame.passing_over(condition, negated=True)
            case Filter(condition=condition):
                return frame.where(condition)
            case FilterNot(condition=condition):
                return frame.where(condition, negated=True)
            case Split(conditions=conditions):
                return self._split(node, frame, conditions)
            case Branch(number=number):
                return frame.where(f"record.branch = {number}").with_record(F.col("record").dropFields("branch"))
            case MapValues(value=value):
                return frame.select(value)
            case KeySelect(key=PythonFunction() as function, key_serde=key_serde):
                return without_told(with_key_of(frame, function, key_serde).with_key(TOLD, key_serde))
            case KeySelect(key=str() as key, key_serde=key_serde):
                return frame.with_key(key, key_serde)
            case Map(key=PythonFunction() as function, value=value, key_serde=key_serde):
                told = with_key_of(frame, function, key_serde)
                return without_told(told.select(value, TOLD, key_serde))
            case Map(key=str() as key, value=value, key_serde=key_serde):
                return frame.select(value, key, key_serde)
            case FlatMap(each=each, key=key, value=value, key_serde=key_serde):
                return frame.exploded(each, value, key, key_serde, keeps_rows=self._keeps_rows)
            case FlatMapValues(each=each, value=value):
                return frame.exploded(each, value, keeps_rows=self._keeps_rows)
            case FilterFunction(function=function):
                return filter_by(frame, function, keeps_rows=self._keeps_rows)
            case FilterNotFunction(function=function):
                return filter_by(frame, function, negated=True, keeps_rows=self._keeps_rows)
            case MapValuesFunction(function=function, fields=fields):
                return map_by(frame, function, dict(fields))
            case MapFunction(function=function, fields=fields, key=PythonFunction() as of_key, key_serde=key_serde):
                told = map_by(with_key_of(frame, of_key, key_serde), function, dict(fields))
                return without_told(told.with_key(TOLD, key_serde))
            case MapFunction(function=function, fields=fields, key=str() as key, key_serde=key_serde):
                return map_by(frame, function, dict(fields)).with_key(key, key_serde)
            case FlatMapFunction(function=function, fields=fields, key=key, key_serde=key_serde):
                return flat_map_by(frame, function, dict(fields), key, key_serde, keeps_rows=self._keeps_rows)
            case FlatMapValuesFunction(function=function, fields=fields):
                return flat_map_by(frame, function, dict(fields), keeps_rows=self._keeps_rows)
            case ForEach() | PeekFunction() | ProcessToAct():
                return self._act(node, frame)
            case ProcessWithoutStores() as process:
                children = self.subtopology.children_of(node)
                is_same = process.function.deterministic and self._is_the_same_again(node, frame.data)
                if len(children) > 1 and not is_same:
                    raise Refused(
                        f"what {process.function.name} forwards to {' and '.join(children)} need not be the same again",
                        remedy="Put repartition(name='…') behind it, and split the stream there.",
                    )
                return process_records(frame, process, self.subtopology.id, children, self.read_table)
            case Merge() | SeveralTopics():
                return self._merge(node, predecessors)
            case Peek(metrics=metrics):
                return self._observe(node.name, frame, metrics)
            case NullKeyFilter(relaxed=relaxed):
                if frame.key_not_null or relaxed:
                    return frame
                return self._rejecting_null_keys(node, frame)
            case TableSource(store=store):
                if store is not None:
                    no_headers = F.col("record").withField("headers", F.lit(None).cast(HEADERS))
                    self.write_changelog(node, frame.accepted().with_record(no_headers))
                return frame
            case TableFilter() as table_filter:
                return self.store_updates(node, filtered(frame, table_filter))
            case TableMapValuesFunction(function=function, fields=fields):
                return self.store_updates(node, map_values_by(frame, function, dict(fields)))
            case TableMapValues(value=value):
                return self.store_updates(node, frame.with_values(value))
            case ToTable():
                if not frame.key_not_null:
                    frame = frame.rejecting(F.col("record.key").isNull(), NULL_KEY)
                return self.store_updates(node, frame)
            case ToStream() | Suppress():
                return frame
            case GlobalJoin() as join:
                return join_with_global_table(frame, join, self.read_table)
        return self._apply_stateful(node, predecessors, self)

    def _merge(self, node: Processor, frames: Sequence[RecordFrame]) -> RecordFrame:
        """Merge streams. What was made of one record has the library's order by its way; updates are behind records."""
        names = self.subtopology.predecessors[node.name]
        frames = [
            frame.behind_records() if has_updates(self.subtopology, name) else frame
            for name, frame in zip(names, frames, strict=True)
        ]
        return reduce(RecordFrame.union, frames)

    def store_updates(self, node: Processor, frame: RecordFrame) -> RecordFrame:
        """Write the updates of a table into the changelog of its store, where it has one; return those that are passed.

        Args:
            node: The processor.
            frame: The updates.
        """
        if node.store is None:
            return frame
        for condition, reason in storing_faults(frame):
            frame = frame.rejecting(condition, reason)
        stored = frame.accepted()
        self.write_changelog(node, stored.with_record(F.col("record").withField("value", stored.value)))
        return frame

    def write_sent(self, node: Node, frame: RecordFrame) -> None:
        """Write what one side of a join by a foreign key has sent, or a change of the store of its subscriptions.

        Args:
            node: The sink, or the processor that stores the subscriptions.
            frame: What :func:`~streamplan.spark.planning.foreign_key_join.sent_records` gave.
        """
        key, value = F.col("to"), F.col("sent")
        if isinstance(node, Sink):
            size = _too_large(key, value, with_headers=True)
            frame = frame.rejecting(size, too_large(MAX_BYTES))
        else:
            frame = frame.with_record(F.col("record").withField("headers", F.lit(None).cast(HEADERS)))
        self.written[self._outputs[node.name]] = frame
        self.write(output_rows(frame, self._outputs[node.name], key, value))

    def _write_sink(self, sink: Sink, frame: RecordFrame) -> RecordFrame:
        if sink.choice is not None:
            chosen = frame.data.withColumn("topic", F.expr(sink.choice.expression))
            if len(sink.choice.topics) > 1 and not self._is_the_same_again(sink, chosen):
                raise Refused(
                    "the topic of a record depends on an expression or a function that need not give the same again",
                    remedy="Put repartition(name='…') behind it, and before to().",
                )
            frame = _of_topic(frame, sink.choice)
        if sink.internal:
            self._schemas[sink.topic] = frame.schema
            if frame.serde is None:  # a count is 8 bytes, which that serde does not read
                frame = replace(frame, value_is_raw=False)
        fits = frame.as_in_internal_topic and sink.value is None
        if sink.value is not None:
            frame = write_values(frame, sink.value)
        if not fits:
            if not frame.value_is_raw:
                frame = frame.with_written_value()
            for condition, reason in storing_faults(frame, with_headers=True, is_read_again=sink.internal):
                frame = frame.rejecting(condition, reason)
        key = frame.key
        if frame.is_of_sessions:
            key = _session_key(key)
        elif frame.windowed:
            key = F.concat(key, big_endian(F.unix_millis("record.window.start")))  # TimeWindowedSerializer
        self.written[self._outputs[sink.name]] = frame
        self.write(output_rows(frame, self._outputs[sink.name], key, frame.value))
        return replace(frame, data=frame.data.limit(0), no_rejects=True)

    def _split(self, node: Processor, frame: RecordFrame, conditions: Sequence[str | PythonFunction]) -> RecordFrame:
        """Add ``record.branch``: the number of the first condition that is true, from 1; 0 where none is.

        Raises:
            Refused: A record could be in several branches, or in none: each of them is computed for itself.
        """
        frame = frame.with_record(F.col("record").withField("branch", F.lit(0)))
        for number, condition in enumerate(conditions, start=1):
            if isinstance(condition, PythonFunction):
                frame = branched_by(frame, condition, number)
            else:
                frame = frame.branched(condition, number)
        if not self._is_the_same_again(node, frame.data):
            raise Refused(
                "the branches of a record depend on an expression or a function that need not give the same again",
                remedy="Put repartition(name='…') behind it, and before the split.",
            )
        return frame

    def _is_the_same_again(self, node: Node, data: DataFrame) -> bool:
        """Whether the records of a node are the same for each of the outputs, which compute them for themselves.

        Args:
            data: Its records.
        """
        functions = [function_of(each.operation) for each in self._computed_again_before(node)]
        return is_deterministic(data) and all(each is None or each.deterministic for each in functions)

    def _computed_again_before(self, node: Node) -> list[Processor]:
        """The processors before a node whose records are computed for each of its successors: none before the state."""
        group = self.subtopology
        before = [each for each in group.processors if node.name in group.downstream_of([each.name])]
        results = [each for each in stage_of(group).nodes if not isinstance(each.operation, Join)]
        states = {each.name for each in results if each in before}
        return [
            each for each in before if each.name not in states and states.isdisjoint(group.downstream_of([each.name]))
        ]

    def _act(self, node: Processor, frame: RecordFrame) -> RecordFrame:
        """Call a function once with each record, beside what becomes of the records: several outputs may come of it."""
        assert isinstance(node.operation, ACTS)
        if self._acts and isinstance(node.operation, ProcessToAct):
            called = process_records(frame.accepted(), node.operation, self.subtopology.id, read_table=self.read_table)
            self.write(dead_letter_rows(called.rejected()))
        elif self._acts:
            self.write(dead_letter_rows(call_with(frame.accepted(), node.operation.function)))
        if isinstance(node.operation, PeekFunction):
            return frame
        self._consumed.add(node.name)  # nothing comes behind it
        if not frame.no_rejects:
            self.write(dead_letter_rows(frame.rejected()))
        return replace(frame, data=frame.data.where("false"), no_rejects=True)

    def _observe(self, name: str, frame: RecordFrame, metrics: Columns) -> RecordFrame:
        if not frame.no_rejects:  # they are not among the records that pass
            self.write(dead_letter_rows(frame.rejected()))
            frame = frame.accepted()
        if self._repeats:
            return frame
        columns = [F.expr(expression).alias(metric) for metric, expression in metrics]
        if frame.data.isStreaming:
            return replace(frame, data=frame.data.observe(name, *columns))
        observation = Observation()
        self._observations.append((name, observation))
        return replace(frame, data=frame.data.observe(observation, *columns))

    def _rejecting_null_keys(self, node: Node, frame: RecordFrame) -> RecordFrame:
        """Reject the records without a key, in the words of the field that it was to be made of."""
        key_is_null, reason = F.col("record.key").isNull(), NULL_KEY
        nodes = {node.name: node for node in self.subtopology.nodes}
        while predecessors := self.subtopology.predecessors[node.name]:
            node = nodes[predecessors[0]]
            if isinstance(node, Processor) and isinstance(node.operation, KeySelect | Map | MapFunction):
                frame = frame.rejecting(key_is_null & F.col("record.value").isNull(), "the value is null")
                if isinstance(node.operation.key, str) and node.operation.key.isidentifier():
                    reason = f"{node.operation.key} is missing"
                break
        return frame.rejecting(key_is_null, reason)


def _child_name(node: Node) -> str:
    """The name that the library has for a node. It has one sink for several topics."""
    if isinstance(node, Sink) and node.is_further:
        return node.name.removesuffix(f" to {node.topic}")
    return node.name


def read_source(subtopology: Subtopology, source: Source, schemas: Mapping[str, Serde], raw: DataFrame) -> RecordFrame:
    """Read the records of a source. The values of a repartition topic are skipped where nothing uses them.

    Args:
        subtopology: That the source belongs to.
        source: A source of it.
        schemas: The serdes of the repartition topics.
        raw: Its records in the columns :data:`streamplan.spark.sources.RAW`.
    """
    successors = [node for node in subtopology.processors if source.name in subtopology.predecessors[node.name]]
    several = len(subtopology.sources) > 1
    if source.value is not None:
        is_table = any(isinstance(node.operation, TableSource) for node in successors)
        if source.timestamp is None:
            return read_external(raw, source.value, source.key_serde, table=is_table, partition_time=several)
        frame = read_external(raw, source.value, source.key_serde, table=is_table, is_timed=False)
        return with_timestamps(frame, source.timestamp, partition_time=several)
    has_place = not (several and stage_of(subtopology).passes_updates_in_order)
    readers = [node for node in subtopology.nodes if source.name in subtopology.predecessors[node.name]]
    if has_place and not any(map(_reads_values, readers)):
        frame = read_internal_keys(raw, source.key_serde)
        if not any(isinstance(node, Sink) for node in readers):
            return frame
        return replace(frame, serde=schemas[source.topic], format=schemas[source.topic].format)
    takes_null_keys = any(map(_takes_null_keys, subtopology.operations))
    if source.carried is not None:
        return read_internal(raw, source.carried, source.key_serde, key_not_null=False, partition_time=several)
    serde, key_serde = schemas[source.topic], source.key_serde
    return read_internal(raw, serde, key_serde, key_not_null=not takes_null_keys, partition_time=several)


def _of_topic(frame: RecordFrame, choice: TopicChoice) -> RecordFrame:
    """The records of one of several topics. The records of none of them are rejected, once.

    Raises:
        Refused: The expression is no text.
    """
    made = frame.data.select(F.expr(choice.expression).alias("topic")).schema["topic"].dataType
    if not isinstance(made, StringType):
        raise Refused(
            f"the topic {choice.expression} is of type {made.simpleString()}", remedy="It is a text: cast it."
        )
    topic = F.expr(choice.expression)
    if choice.is_first:
        others = F.concat(F.lit("the topic "), topic, F.lit(f" is none of {', '.join(choice.topics)}"))
        fault = F.when(topic.isNull(), F.lit("the topic is null")).when(~topic.isin(*choice.topics), others)
        if not frame.no_rejects:
            fault = F.when(F.col("record.reason").isNull(), fault)
        reason = F.coalesce(F.col("record.reason"), fault)
        frame = replace(frame.with_record(F.col("record").withField("reason", reason)), no_rejects=False)
    takes = topic == F.lit(choice.topic)
    if not frame.no_rejects:
        takes = F.col("record.reason").isNotNull() | takes
    return replace(frame, data=frame.data.where(takes))


def _reads_values(node: Node) -> bool:
    """Whether a node needs the fields of the values. A sink that writes their bytes as they are does not."""
    if isinstance(node, Sink):
        return node.value is not None or node.choice is not None
    return not (isinstance(node, Processor) and isinstance(node.operation, Count))


def _takes_null_keys(operation: Operation) -> bool:
    match operation:
        case Join(left=True) | GlobalJoin(left=True) | NullKeyFilter(relaxed=True) | OuterStreamJoin():
            return True
        case _:
            return False


def storing_faults(
    frame: RecordFrame, *, with_headers: bool = False, is_read_again: bool = True
) -> Iterator[tuple[Column, str]]:
    """Yield what keeps a record out of a topic of ours, each with the reason of its rejection.

    Args:
        frame: The records.
        with_headers: Whether they are written with their headers.
        is_read_again: Whether we read the values that are written.
    """
    yield _too_large(frame.key, frame.value, with_headers=with_headers), too_large(MAX_BYTES)
    if is_read_again and not frame.value_is_raw and (unreadable := unreadable_expression(declared_fields(frame.data))):
        yield F.expr(unreadable), "a moment of the value is not in the years 1 to 9999"


def _too_large(key: Column, value: Column, *, with_headers: bool) -> Column:
    """Whether key and value of a record, with or without its headers, are larger than an internal topic takes."""
    size = F.coalesce(F.octet_length(key), F.lit(0)) + F.coalesce(F.octet_length(value), F.lit(0))
    if not with_headers:
        return size > MAX_BYTES
    header_size = F.aggregate(
        F.from_json("record.headers", "array<struct<key: string, value: binary>>"),
        F.lit(0),
        lambda total, header: (
            total
            + F.octet_length(header["key"])
            + F.coalesce(F.octet_length(header["value"]), F.lit(0))
            + HEADER_LENGTH_BYTES
        ),
    )
    possible = size + F.coalesce(F.octet_length("record.headers"), F.lit(0)) > MAX_BYTES  # JSON, longer than they are
    return possible & (size + F.coalesce(header_size, F.lit(0)) > MAX_BYTES)


def _session_key(key: Column) -> Column:
    """The key with its session, in a changelog (``SessionKeySchema``) as in a topic (``SessionWindowedSerializer``)."""
    moments = (F.unix_millis(f"record.window.{name}") for name in ("end", "start"))
    return F.concat(key, *map(big_endian, moments))
