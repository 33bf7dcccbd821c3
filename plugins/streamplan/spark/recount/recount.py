"""Recounts a pipeline: Spark computes each sub-topology again as a batch, and compares that with what it has written.

The outputs of a sub-topology are compared with what its inputs demand, at a consistent cut: its committed positions,
and the ends of its outputs that belong to them. So records on the way between two sub-topologies are not counted twice,
and a wrong output is found in the sub-topology that wrote it. :mod:`streamplan.spark.recount.records` and
:mod:`streamplan.spark.recount.last_values` compare.

How the state of a sub-topology is recounted, stands in :mod:`streamplan.spark.planning.stages`; why it is not, in
:mod:`streamplan.model.stages`. What a join wrote depends on when a table's row came, and what a join of two streams
wrote on which records came too late, so that neither can be computed afterwards. Of such a sub-topology only the tables
and the dead letters are compared. Of a join of tables the last joined value of each key is compared, which is that of
the last values of both, whatever the order of their topics. A Python class with state processes all records of a topic
once more, where they are not too many for the memory of a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.checks.framework.check import FOR_INFORMATION, Observation, not_judged
from streamplan.checks.framework.consistent_cut import ConsistentCut, Deadline, await_consistent_cut
from streamplan.checks.recount.totals import PROCESS_AGAIN
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import TopicPartition
from streamplan.model.dead_letters import REDRIVEN_BY, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, TASK
from streamplan.model.functions import REJECT
from streamplan.model.generation import PositionMetadata
from streamplan.model.operations import (
    ACTS,
    LEAVES_OUT,
    MAKES_SEVERAL,
    SETS_KEY,
    Aggregate,
    AggregateWindowsFunction,
    Count,
    FinalAggregate,
    FinalCount,
    Merge,
    Process,
    ProcessWithStores,
    ToStream,
    function_of,
    global_topics_of,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology
from streamplan.model.stages import passing_by, stage_of
from streamplan.model.stages.foreign_key import ForeignKeyStage, foreign_key_joins, foreign_key_sides_of
from streamplan.model.stages.stage import Stage
from streamplan.model.start_point import task_times
from streamplan.model.subtopology_graph import responders_of
from streamplan.model.topics import words
from streamplan.model.windows import TimeWindows
from streamplan.reports.sink_offsets import SinkOffsets
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.operators import read_source
from streamplan.spark.planning.plan import outputs_of
from streamplan.spark.planning.recounted.foreign_keys import keys_under_way
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.planning.stages.stage_plan import Recounted, Recounting
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.recount.last_values import TimeToLive, Windowing, compare_store, compare_updates
from streamplan.spark.recount.records import compare_records
from streamplan.spark.recount.written import NAMED, Findings, WrittenTopic, without_late_keys
from streamplan.spark.sink.spec import DEAD_LETTER, Output, PartitionBy
from streamplan.spark.sources import of_partition, read_batch

_HEADERS = "array<struct<key: string, value: binary>>"

_RECORDS_OF_PARTITION = 100_000
"""A shuffle has one partition for this many records."""

_Read: TypeAlias = Callable[..., DataFrame]
"""Reads the committed records of a topic up to the given offset of each partition, and from others where given."""


def recount(
    spark: SparkSession,
    pipeline: Pipeline,
    cluster: Cluster,
    brokers: Brokers,
    sinks: SinkOffsets | None = None,
) -> list[Observation]:
    """Compute the rows of the totals check.

    Args:
        spark: A session for batches.
        pipeline: Whose outputs are compared.
        cluster: Answers positions, offsets and configurations.
        brokers: Where Spark reads the records.
        sinks: Where the application began to write its sinks, if it was reset.

    Returns:
        For each output the expected and the observed number of keys or records, and a row for each wrong one. What is
        not compared has a row that is not judged.

    Raises:
        CouldNotLook: Nothing is wrong that can be compared, and something cannot be.
    """
    assert spark.streams.active is not None  # this creates the state store coordinator, which a join needs
    names = [spec.name for spec in pipeline.topics()]
    if missing := sorted(set(names) - cluster.topics(names).keys()):
        return [Observation(f"topic {topic}", "exists", "missing") for topic in missing]
    schemas = resolve_schemas(spark, pipeline)
    read: _Read = partial(read_batch, spark, brokers)
    found = Findings()
    for subtopology in pipeline.topology.subtopologies:
        try:
            cut, firsts = _cut(pipeline, subtopology, cluster)
        except CouldNotLook as error:
            found.doubts.append(" ".join(str(error).split()))
            continue
        if not any(any(positions.values()) for positions in cut.positions.values()):
            topics = ", ".join(pipeline.source_topics(subtopology))
            found.rows.append(Observation(f"{topics}: records processed", "at least 1", "none"))
            continue
        found.rows += firsts.remarks()
        recounted = _Recount(pipeline, subtopology, cluster, schemas, read, cut, firsts, sinks or SinkOffsets())
        records = sum(end for positions in cut.positions.values() for end in positions.values())
        has_state = stage_of(subtopology).recounts_in_state
        with _shuffle_partitions(spark, pipeline.partitions(subtopology), records, has_state=has_state):
            recounted.compare(found)
    if found.doubts and all(row.agrees for row in found.rows):
        raise CouldNotLook(
            f"the totals of {pipeline.name}: {'; '.join(found.doubts)}",
            remedy="All that can be compared agrees.",
        )
    return [*found.rows, *(not_judged(doubt, "") for doubt in found.doubts)]


@contextmanager
def _shuffle_partitions(spark: SparkSession, least: int, records: int, *, has_state: bool) -> Iterator[None]:
    """Give shuffles as many partitions as there are stream tasks or cores, and more where there are many records.

    Spark has 200 by default. It joins small ones in most plans, but not in all that read persisted data.

    Args:
        spark: The session.
        least: The number of stream tasks.
        records: The number of records that are recounted.
        has_state: Whether there is a ``transformWithState``. Each of its partitions starts a state store and a Python
            process, also one without a key.
    """
    name = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    least = max(least, spark.sparkContext.defaultParallelism)
    spark.conf.set(name, least if has_state else max(least, min(int(before), records // _RECORDS_OF_PARTITION)))
    try:
        yield
    finally:
        spark.conf.set(name, before)


@dataclass(frozen=True)
class _Firsts:
    """Where the inputs of a sub-topology begin that can be recounted.

    Attributes:
        starts: Where the application began to read, by topic and partition.
        log_starts: The first offset that is there.
        whole: Tables of which nothing but superseded values is deleted.
    """

    starts: Mapping[str, Mapping[int, int]]
    log_starts: Mapping[str, Mapping[int, int]]
    whole: frozenset[str]

    def of(self, topic: str, ends: Mapping[int, int]) -> dict[int, int]:
        """Return the first offset of each partition that is read; ``ends`` are those past the last one."""
        starts, log_starts = self.starts[topic], self.log_starts[topic]
        return {number: min(max(starts.get(number, 0), log_starts[number]), end) for number, end in ends.items()}

    @property
    def deleted(self) -> dict[str, dict[int, int]]:
        """By topic and partition the first offset that is there, where records that were processed are not."""
        return {
            topic: deleted
            for topic, log_starts in self.log_starts.items()
            if topic not in self.whole
            and (deleted := {n: at for n, at in log_starts.items() if at > self.starts[topic].get(n, 0)})
        }

    def remarks(self) -> Iterator[Observation]:
        """Yield from where it is recounted, and what is not compared for that."""
        for topic, starts in self.starts.items():
            if begun := [f"{topic}-{number} offset {at:,}" for number, at in sorted(starts.items()) if at]:
                remark = f"{topic}: recounted from the start of the application at {', '.join(begun)}"
                yield Observation(remark, FOR_INFORMATION, FOR_INFORMATION)
        for topic, deleted in self.deleted.items():
            listed = ", ".join(f"{topic}-{number} below offset {at:,}" for number, at in sorted(deleted.items()))
            yield not_judged(f"what was made of {listed}", "these records were deleted")


def _other_tables(subtopology: Subtopology, pipeline: Pipeline) -> list[tuple[ForeignKeyStage, Source]]:
    """Return the joins by a foreign key of a sub-topology that sends, each with the source of its other table."""
    found = []
    joins = foreign_key_joins(subtopology)
    for join, responder in zip(joins, responders_of(subtopology, pipeline.topology), strict=True):
        of_join = (side for side in foreign_key_sides_of(responder) if side.carrying.topic == join.registration)
        source = next(of_join).source
        assert source is not None, f"sub-topology {responder.id} responds with values that no topic has"
        found.append((join, source))
    return found


def _recounted_sources(subtopology: Subtopology, pipeline: Pipeline) -> list[Source]:
    """Return the sources that a recount reads: of a join by a foreign key the other table, and not the responses."""
    others = _other_tables(subtopology, pipeline)
    responses = {join.carrying.name for join, _ in others}
    own = [source for source in subtopology.sources if source.name not in responses]
    return list({source.name: source for source in (*own, *(source for _, source in others))}.values())


def _cut(pipeline: Pipeline, subtopology: Subtopology, cluster: Cluster) -> tuple[ConsistentCut, _Firsts]:
    """Return a consistent cut of a sub-topology, and where its inputs begin.

    Where each output was made of one record, what is there of the input can be compared. An aggregate is made of all.
    """
    topics, group = pipeline.source_topics(subtopology), pipeline.topology.application_id
    responders = responders_of(subtopology, pipeline.topology)
    if responders:  # what it recounts begins with tables
        topics = tuple(pipeline.topology.decorate(source.topic) for source in _recounted_sources(subtopology, pipeline))
    observed = cluster.topics(topics)
    policies = {topic: words(observed[topic].configs.get("cleanup.policy", "")) for topic in topics}
    firsts = _Firsts(
        {topic: cluster.starts(group, topic) for topic in topics},
        {topic: {number: offsets.log_start for number, offsets in cluster.offsets(topic).items()} for topic in topics},
        frozenset(topic for topic in topics if topic in pipeline.tables and "delete" not in policies[topic]),
    )
    compacted = [topic for topic in topics if "compact" in policies[topic] and topic not in pipeline.tables]
    if stage_of(subtopology).needs_every_record and (firsts.deleted or compacted):
        begins = [f"{topic}-{n} begins at offset {at}" for topic, by in firsts.deleted.items() for n, at in by.items()]
        raise CouldNotLook(
            f"what was made of {', '.join(topics)} cannot be recounted",
            expected="every record since the start of the application",
            observed=", ".join([*begins, *(f"{topic} is compacted" for topic in compacted)]),
            remedy="Nobody can prove any more whether the deleted records were processed correctly.",
        )
    outputs = outputs_of(pipeline, subtopology)
    written = list(dict.fromkeys(output.topic for output in outputs))
    dead_letters = pipeline.topology.dead_letter_topic
    for responder in responders:
        written = list(dict.fromkeys((*written, *(output.topic for output in outputs_of(pipeline, responder)))))
        read = (*pipeline.source_topics(subtopology), *topics, *pipeline.source_topics(responder))
        topics = tuple(dict.fromkeys(read))
    return await_consistent_cut(cluster, group, topics, [*written, dead_letters], Deadline()), firsts


@dataclass(frozen=True)
class _Demanded:
    """What the inputs of a sub-topology demand.

    Attributes:
        rows: Of the columns ``OUTPUT`` of ``spark.planning.output_rows``.
        state: What else is known of the state that was recounted.
        ttl: Which values of a Python class's store are compared; None for all.
        under_way: The keys of this table of a join by a foreign key that are not compared; None without such a join.
            It is persistent.
    """

    rows: DataFrame
    state: Recounted
    ttl: TimeToLive | None
    under_way: DataFrame | None = None


@dataclass(frozen=True)
class _Recount:
    """The recount of one sub-topology at a consistent cut."""

    pipeline: Pipeline
    subtopology: Subtopology
    cluster: Cluster
    schemas: Mapping[str, Serde]
    read: _Read
    cut: ConsistentCut
    firsts: _Firsts
    sinks: SinkOffsets

    def compare(self, found: Findings) -> None:
        """Compare every output, and the dead letters."""
        numbers, outputs = self.subtopology.output_numbers, outputs_of(self.pipeline, self.subtopology)
        letters = self._letters().persist()
        demanded = self._expected()
        # Spark optimizes these rows by themselves: with the join that gives the turns it may take all memory for it.
        rows = demanded.rows.persist()
        expected = self._with_turns(rows, letters)
        try:
            for topic in dict.fromkeys(output.topic for output in outputs):
                writers = [node for node in self.subtopology.nodes if self._topic_of(node, numbers, outputs) == topic]
                if (doubt := self._doubt([*writers, *self.subtopology.upstream_of(writers)], letters)) is not None:
                    found.not_compared(topic, doubt)
                    continue
                output = outputs[numbers[writers[0].name]]
                compared = Findings()
                self._compare_output(writers, output, replace(demanded, rows=expected), numbers, compared)
                if self._times and not all(row.agrees for row in compared.rows):
                    found.doubts.append(
                        f"{topic} differs from what its records give alone: the wall clock has closed windows, and a "
                        "record may have come after it"
                    )
                    continue
                found.rows += compared.rows
                found.doubts += compared.doubts
            letters_of = f"dead letters of sub-topology {self.subtopology.id}"
            if random := _not_deterministic(self.subtopology.nodes):
                found.not_compared(letters_of, f"{random} may reject other records")
            elif acting := _rejecting_actions(self.subtopology.nodes):
                found.not_compared(letters_of, f"{acting} may have rejected records, and is not called again")
            elif table := _global_table(self.subtopology.nodes):
                found.not_compared(
                    letters_of, f"which row of the global table {table} could not be read depends on time"
                )
            elif self._not_processed:
                found.not_compared(letters_of, self._not_processed)
            else:
                found.rows.append(self._compare_dead_letters(expected, letters))
        finally:
            rows.unpersist()
            for held in (demanded.state.late, demanded.state.joined, demanded.under_way):
                if held is not None:
                    held.unpersist()
            letters.unpersist()

    @cached_property
    def _times(self) -> Mapping[int, int]:
        """By partition the time that the wall clock has given to a stream task.

        Which records came after it cannot be told from the records. They are recounted as if none had been late by it.
        """
        if self.stage.idle_ms is None:
            return {}
        topics = self.pipeline.source_topics(self.subtopology)
        times: dict[TopicPartition, int] = {}
        for place, position in self.cluster.committed_positions(self._group).items():
            metadata = PositionMetadata.parse(position.metadata) if place[0] in topics else None
            if metadata is not None and metadata.time is not None:
                times[place] = metadata.time
        return task_times(times)

    @property
    def _group(self) -> str:
        return self.pipeline.topology.application_id

    def _doubt(self, nodes: Sequence[Node], letters: DataFrame) -> str | None:
        """Say why an output cannot be recounted that these nodes have made; None where it can."""
        if random := _not_deterministic(nodes):
            return f"{random} need not return the same for the same record"
        if table := _global_table(nodes):
            return f"which row of the global table {table} a record met depends on when it was processed"
        if depends := self.stage.depends_on_arrival(nodes):
            return depends
        if self._not_processed and any(node in nodes for node in self._of_classes):
            return self._not_processed
        parts = [self.stage.part_of(node) for node in self.stage.nodes if node in nodes]
        if any(part.needs_superseded for part in parts):
            sources = [node for node in nodes if isinstance(node, Source) and self._is_compacted(node)]
            if sources:
                return f"it was made of old values, and {', '.join(node.topic for node in sources)} is compacted"
        own = [node for node in self.stage.nodes if node in nodes]
        if any(self.stage.part_of(node).is_final for node in own) and not letters.where("is_mark").isEmpty():
            return "what a dead letter gives that is processed again depends on when that was done"
        return None

    @cached_property
    def _of_classes(self) -> Sequence[Processor]:
        """The processors that call a Python class, or functions that aggregate."""
        called = Process | ProcessWithStores | AggregateWindowsFunction
        return [node for node in self.stage.nodes if isinstance(node.operation, called)]

    @cached_property
    def stage(self) -> Stage:
        """The state of the sub-topology."""
        return stage_of(self.subtopology)

    def _topic_of(self, node: Node, numbers: Mapping[str, int], outputs: Sequence[Output]) -> str | None:
        return outputs[numbers[node.name]].topic if node.name in numbers else None

    def _compare_output(
        self,
        writers: Sequence[Node],
        output: Output,
        expected: _Demanded,
        numbers: Mapping[str, int],
        found: Findings,
    ) -> None:
        """Compare what the nodes ``writers`` have written to one topic.

        The sessions of late keys are left out, and the values of a store whose time to live is over.
        """
        stage, late = self.stage, expected.state.late
        if reason := self._unknown_parts(output):
            found.not_compared(output.topic, reason)
            return

        def rows_of(*nodes: Node) -> DataFrame:
            return expected.rows.where(F.col("output").isin([numbers[node.name] for node in nodes]))

        written, demanded = self._written(writers, output), rows_of(*writers)
        upstream = self.subtopology.upstream_of(writers)
        if late is not None and any(node in stage.nodes for node in (*writers, *upstream)):
            if keys := late.count():
                found.not_compared(f"{keys:,} keys of {output.topic}", "a record of them came later than the grace")
            if output.partition_by is PartitionBy.SESSION_KEY or any(node in stage.nodes for node in writers):
                written = without_late_keys(written, late)
        replaced = stage.replaced_updates(upstream)
        if replaced and expected.under_way is not None and (keys := expected.under_way.count()):
            if any(isinstance(node, Processor) and isinstance(node.operation, SETS_KEY) for node in upstream):
                found.not_compared(output.topic, f"of {keys:,} keys a change is under way")
                return
            found.not_compared(f"{keys:,} keys of {output.topic}", "a change is under way")
            written = written.with_records(written.records.join(expected.under_way, "key", "left_anti"))
            demanded = demanded.join(expected.under_way, "key", "left_anti")
        if output.partition_by is PartitionBy.TASK:
            whole = not self.firsts.deleted
            if stage.reads_purged_topic:
                whole = not self.firsts.deleted.keys() & {
                    self.pipeline.topology.decorate(node.topic) for node in upstream if isinstance(node, Source)
                }
            of_class = isinstance(writers[0], Processor) and stage.part_of(writers[0]).ttl_ms is not None
            windowing = expected.ttl if of_class else _windowing(writers[0], demanded)
            compare_store(written, demanded, found, windowing=windowing, whole_input=whole)
            return
        compacted = any(self._is_compacted(node) for node in upstream if isinstance(node, Source))
        if not replaced and not compacted and not written.compacted:
            compare_records(written, demanded, found)
            return
        final = bool(replaced) and all(stage.part_of(node).is_final for node in replaced)
        # A recount does not know behind which record of a stream a window was closed.
        final = final and not any(node.name in passing_by(self.subtopology) for node in upstream)
        if final and expected.state.exact:
            if late is not None and output.partition_by is not PartitionBy.SESSION_KEY and not late.isEmpty():
                found.not_compared(output.topic, "some sessions of other keys cannot be recounted")
                return
            # What is made of a window was read at no offset. Its place among the results gives its order.
            compare_records(written, demanded.withColumn("offset", F.coalesce("offset", F.lit(0))), found)
            return
        # After an aggregation, each change of a total was written, and the recount knows only the last one.
        after = self.subtopology.downstream_of({node.name for node in replaced})
        passed = [node.operation for node in upstream if isinstance(node, Processor) and node.name in after]
        merged = len(replaced) > 1 or len(writers) > 1 or any(isinstance(one, Merge) for one in passed)
        other_keys = any(isinstance(operation, SETS_KEY + MAKES_SEVERAL) for operation in passed)
        left_out = any(isinstance(operation, LEAVES_OUT) for operation in passed)
        # What is made of the deletion of a session has another one's key, which is not recounted.
        left_out |= late is not None and not final and not all(isinstance(operation, ToStream) for operation in passed)
        # A join of tables without a store writes nothing by itself, and has no windows.
        windowings = [_windowing(node, rows_of(node)) for node in replaced if node.name in numbers]
        compare_updates(
            written,
            demanded,
            found,
            windowings=[windowing for windowing in windowings if windowing is not None],
            keyed=not merged and not other_keys,
            complete=not left_out and not compacted and not self.firsts.deleted,
        )

    @cached_property
    def _not_processed(self) -> str:
        """Why a Python class does not process the records again; empty where it does, or where there is none."""
        limit = plan_of(self.subtopology).most_recounted
        if limit is None:
            return ""
        if depends := self.stage.depends_on_arrival(self._of_classes):
            return depends
        counts = [
            end - self.firsts.of(topic, ends)[number]
            for topic, ends in self.cut.positions.items()
            if topic in self.firsts.starts
            for number, end in ends.items()
        ]
        if (most := max(counts)) > limit:
            return f"a stream task has {most:,} records, and {limit:,} at most are processed again"
        return ""

    def _is_compacted(self, source: Source) -> bool:
        topic = self.pipeline.topology.decorate(source.topic)
        return "compact" in words(self._configs[topic].get("cleanup.policy", ""))

    @cached_property
    def _configs(self) -> Mapping[str, Mapping[str, str]]:
        topics = self.cluster.topics([spec.name for spec in self.pipeline.topics()])
        return {name: topic.configs for name, topic in topics.items()}

    def _unknown_parts(self, output: Output) -> str:
        """Why it is not known which records of a sink are the application's; empty where it is."""
        if output.topic in self.sinks.in_turn:
            return "two applications have written it in turn, because an upgrade was taken back"
        staging = self.sinks.staging.get(output.topic)
        if staging is not None and not self.cluster.topics([staging]):
            return f"{staging}, with what was written before the application took over, was deleted"
        return ""

    def _staged(self, topic: str, begins: Mapping[int, int]) -> tuple[DataFrame, set[int]]:
        """Return what an application wrote before it took over, as if it stood before what it has written since.

        Returns:
            The records, and the partitions of which some were deleted.
        """
        staging = self.sinks.staging[topic]
        offsets = self.cluster.offsets(staging)
        ends = {number: at.last_stable for number, at in offsets.items()}
        shift = of_partition({number: begins.get(number, 0) - end for number, end in ends.items()}, F.col("partition"))
        records = self.read(staging, ends, {number: at.log_start for number, at in offsets.items()})
        records = records.withColumn("offset", F.col("offset") + shift).withColumn("topic", F.lit(topic))
        return records, {number for number, at in offsets.items() if at.log_start}

    def _written(self, writers: Sequence[Node], output: Output) -> WrittenTopic:
        """Return the records of an output that the application can have written since it began."""
        topic, configs = output.topic, self._configs[output.topic]
        policies = words(configs.get("cleanup.policy", ""))
        begins = self.sinks.begins.get(topic, {})
        starts = {number: offsets.log_start for number, offsets in self.cluster.offsets(topic).items()}
        ends = self.cut.ends[topic]
        read_from = {number: min(max(starts[number], begins.get(number, 0)), end) for number, end in ends.items()}
        incomplete = {number for number, start in starts.items() if start > begins.get(number, 0)}
        records = self.read(topic, ends, read_from)
        if topic in self.sinks.staging:
            staged, deleted = self._staged(topic, begins)
            records, incomplete = records.unionByName(staged), incomplete | deleted
        if output.partition_by is PartitionBy.TASK and "delete" not in policies:
            incomplete = set()  # such a changelog must have the last value of every key
        return WrittenTopic(
            output,
            next(spec for spec in self.pipeline.topics() if spec.name == topic),
            records,
            exclusive=all(not isinstance(node, Sink) or node.internal for node in writers),
            whole_input=not self.firsts.deleted,
            incomplete=frozenset(incomplete),
            compacted="compact" in policies,
            ordered=len(writers) == 1,
            ordered_from=self.sinks.ordered_from.get(topic, {}),
            broker_time=configs.get("message.timestamp.type") == "LogAppendTime",
        )

    def _expected(self) -> _Demanded:
        subtopology, topology = self.subtopology, self.pipeline.topology
        plan = plan_of(subtopology)
        planner = plan.planner(acts=False)
        frames = {}
        for source in _recounted_sources(subtopology, self.pipeline):
            topic = topology.decorate(source.topic)
            ends = self.cut.positions[topic]
            raw = self.read(topic, ends, self.firsts.of(topic, ends))
            frames[source.name] = read_source(subtopology, source, self.schemas, raw)

        def changelog(node: Processor) -> DataFrame:
            topic = topology.changelog_topic(node.store or "")
            return self.read(topic, self.cut.ends[topic])

        others = {join.carrying.name: frames[of.name] for join, of in _other_tables(subtopology, self.pipeline)}
        own = {source.name: frames[source.name] for source in subtopology.sources if source.name in frames}
        processes = not self._not_processed and not _not_deterministic(self.stage.nodes)
        state = plan.recount(own, planner, Recounting(changelog, self._times, others, processes))
        planner.plan(subtopology.nodes)
        rows = reduce(DataFrame.unionByName, planner.take_output_rows().rows)
        ttl = None if self.stage.ttl_ms is None else TimeToLive(self.stage.ttl_ms, state.newest_ms)
        return _Demanded(rows, state, ttl, self._under_way())

    def _under_way(self) -> DataFrame | None:
        """Return the keys of which a subscription or a response is not processed; None without a join that sends."""
        found = []
        for join in foreign_key_joins(self.subtopology):
            topics = (join.registration, join.carrying.topic)
            found.append(keys_under_way(*(self._unprocessed(self.pipeline.topology.decorate(each)) for each in topics)))
        return reduce(DataFrame.unionByName, found).distinct().persist() if found else None

    def _unprocessed(self, topic: str) -> DataFrame:
        return self.read(topic, self.cut.ends[topic], self.cut.positions[topic])

    def _with_turns(self, expected: DataFrame, letters: DataFrame) -> DataFrame:
        """Add the column ``turn``: 0, and for what a re-drive has made of a record the offset of its mark.

        So the rows of one partition of a source are written in the order of turn, offset and order.
        """
        if not any(self.cut.ends[self.pipeline.topology.dead_letter_topic].values()):
            return expected.withColumn("turn", F.lit(0).cast("bigint"))
        turns = _marks(letters).withColumnRenamed("at", "turn")
        joined = expected.join(F.broadcast(turns), ["topic", "partition", "offset"], "left")
        return joined.withColumn("turn", F.coalesce("turn", F.lit(0)))

    def _letters(self) -> DataFrame:
        """The dead letters and marks of the sub-topology, by the place of the record that they are about."""
        topic = self.pipeline.topology.dead_letter_topic
        letters = self.read(topic, self.cut.ends[topic]).where(_header(TASK).startswith(f"{self.subtopology.id}_"))
        last_header = F.try_element_at(F.from_json("headers", _HEADERS), F.lit(-1))["key"]
        return letters.select(
            _header(SOURCE_TOPIC).alias("topic"),
            _header(SOURCE_PARTITION).cast("int").alias("partition"),
            _header(SOURCE_OFFSET).cast("long").alias("offset"),
            F.coalesce(last_header == REDRIVEN_BY, F.lit(False)).alias("is_mark"),
            F.col("offset").alias("at"),
        )

    def _compare_dead_letters(self, expected: DataFrame, letters: DataFrame) -> Observation:
        topic, number = self.pipeline.topology.dead_letter_topic, self.subtopology.id
        # There is one dead letter for each operation that could not process the record, and no more.
        place = ["topic", "partition", "offset"]
        demanded = expected.where(F.col("output") == DEAD_LETTER).select(*place)
        written = letters.where("not is_mark").select(*place).exceptAll(_marks(letters).select(*place))
        for source, deleted in self.firsts.deleted.items():
            for partition, at in deleted.items():
                is_gone = (F.col("topic") == source) & (F.col("partition") == partition) & (F.col("offset") < at)
                written = written.where(~is_gone)
        note = ""
        if self.stage.recounts_last_updates:
            # What an update of a joined table became, which another one followed, is not recounted.
            demanded = demanded.where("topic is not null")
            written = written.join(demanded.distinct(), place, "left_semi")
            note = ", without what a join of tables gave,"
        unexpected = written.exceptAll(demanded)
        differences = demanded.exceptAll(written).unionByName(unexpected)
        wrong = differences.orderBy(*place).limit(NAMED).collect()
        named = ", ".join(f"{row['topic']}-{row['partition']} offset {row['offset']}" for row in wrong)
        count = demanded.count()
        return Observation(
            f"{topic}: records that sub-topology {number}{note} could not process{f' (see {named})' if named else ''}",
            count,
            count if not wrong else written.count(),
            PROCESS_AGAIN if wrong and not unexpected.join(demanded, place, "left_anti").isEmpty() else "",
        )


def _not_deterministic(nodes: Iterable[Node]) -> str:
    """Name the functions of some nodes that were declared as not deterministic; empty without one."""
    functions = [function_of(node.operation) for node in nodes if isinstance(node, Processor)]
    return ", ".join(function.name for function in functions if function is not None and not function.deterministic)


def _global_table(nodes: Iterable[Node]) -> str:
    """Return the topic of a global table in which one of some nodes looks up; empty where none does."""
    operations = (node.operation for node in nodes if isinstance(node, Processor))
    return next((topic for operation in operations for topic in global_topics_of(operation)), "")


def _rejecting_actions(nodes: Iterable[Node]) -> str:
    """Name the functions of ``foreach`` and ``peek`` that may reject records; empty without one."""
    operations = [node.operation for node in nodes if isinstance(node, Processor)]
    functions = [operation.function for operation in operations if isinstance(operation, ACTS)]
    return ", ".join(function.name for function in functions if function.on_error == REJECT)


def _marks(letters: DataFrame) -> DataFrame:
    """The records that were re-driven: topic, partition, offset, and ``at``, the offset of the mark, from 1 on."""
    return letters.where("is_mark").groupBy("topic", "partition", "offset").agg((F.min("at") + 1).alias("at"))


def _windowing(node: Node, rows: DataFrame) -> Windowing | None:
    """Return which windows of an aggregation are open, as its rows tell; None for one without windows."""
    if not isinstance(node, Processor) or not isinstance(node.operation, Count | Aggregate):
        return None
    if not isinstance(node.operation.window, TimeWindows) or isinstance(node.operation, FinalCount | FinalAggregate):
        return None
    windows = node.operation.window
    if windows.slides or windows.are_of_function:  # late keys are left out; all is recounted in the order of records
        return None
    newest = rows.agg(F.max("timestamp")).first()
    return Windowing(node.operation.window, newest[0] if newest and newest[0] is not None else 0)


def _header(name: str) -> Column:
    """The last header of this name: headers of the record itself come before those that we add."""
    headers = F.from_json("headers", _HEADERS)
    values = F.filter(headers, lambda header: header["key"] == name)
    return F.try_element_at(values, F.lit(-1))["value"].cast("string")
