"""Sub-topologies as streaming queries: each micro-batch goes through its plan into one transaction a stream task."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamplan.errors import BrokersUnavailable
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.task_ownership import ClaimedTasks
from streamplan.kafka_types import TopicPartition
from streamplan.model.processor_topology import Source, Subtopology
from streamplan.model.stages import stage_of
from streamplan.model.start_point import OffsetMap
from streamplan.serdes.serde import Serde
from streamplan.spark.deployment import Deployment
from streamplan.spark.global_tables import Reader, TableInKafka, tell_offsets
from streamplan.spark.noted_records import NARROWED
from streamplan.spark.pacing import Pacing
from streamplan.spark.planning.compiled_plan import (
    BatchRun,
    collect_in_arrow,
    compile_batch_plan,
    map_in_arrow,
    subscribed_topics,
)
from streamplan.spark.planning.plan import SubtopologyPlan, plan_subtopology
from streamplan.spark.session import AdaptiveCodegen
from streamplan.spark.sink.driver import DriverShare, write_collected
from streamplan.spark.sink.instance import this_instance
from streamplan.spark.sink.owner import TaskOwner
from streamplan.spark.sink.spec import TransactionSpec
from streamplan.spark.sink.transaction import commit_empty
from streamplan.spark.sink.writers import (
    MICRO_BATCH,
    WRITTEN_SCHEMA,
    TaskProgress,
    for_each_micro_batch,
    micro_batch_as_text,
    transactional_writer,
)
from streamplan.spark.sources import read_stream, read_ticks
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.recovery import Beginning
from streamplan.spark.status import TaskReport
from streamplan.spark.wall_clock import IdleTasks, ProcessedInput, stages_of

FULL = 50_000
"""A micro-batch this large means a backlog."""


_LEAST_PAUSE_SECONDS, _GREATEST_PAUSE_SECONDS = 1.0, 10.0
"""How long a micro-batch without records lasts, in which the driver only looks for records."""


@dataclass(frozen=True)
class MicroBatchReport:
    """What one micro-batch of a sub-topology wrote.

    ``peeked``  the metrics of each peek
    ``tasks``   which instance wrote for each stream task
    """

    subtopology: int
    batch: int
    written: int
    dead_lettered: int
    peeked: Mapping[str, Mapping[str, object]]
    tasks: tuple[TaskReport, ...] = ()


@dataclass(frozen=True)
class Query:
    """The streaming query of one sub-topology: planned before its stream tasks are claimed, and not started."""

    deployment: Deployment
    subtopology: Subtopology
    plan: SubtopologyPlan

    @property
    def schemas(self) -> Mapping[str, Serde]:
        """The serdes of the repartition topics that it writes."""
        return self.plan.schemas

    @property
    def reads(self) -> Subtopology:
        """The sub-topology that reads from Kafka."""
        return self.subtopology

    @cached_property
    def topics(self) -> Sequence[str]:
        """The topics of its sources, in the order of Spark's offset log."""
        return subscribed_topics(self.plan.streaming)

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Those that the query does."""
        return (self.subtopology,)

    def beginning(self, claimed: ClaimedTasks) -> Beginning:
        """Return what its beginning is decided by.

        Args:
            claimed: The committed positions, which no other aggregator can move.
        """
        return Beginning.of(self.deployment, claimed, self.subtopology, self.topics)

    def transaction_spec(self, claimed: ClaimedTasks, checkpoint: Checkpoint) -> TransactionSpec:
        """Return where its stream tasks read and write, without a micro-batch and its ranges: each one sets them.

        Args:
            claimed: For whom the stream tasks were claimed.
            checkpoint: The checkpoint that the query goes on with.
        """
        pipeline = self.deployment.pipeline
        topology = pipeline.topology
        dead_letters = next(spec for spec in pipeline.topics() if spec.name == topology.dead_letter_topic)
        return TransactionSpec(
            brokers=self.deployment.brokers,
            application_id=topology.application_id,
            generation=claimed.generation,
            transaction_timeout_ms=self.deployment.transaction_timeout_ms,
            subtopology=self.subtopology.id,
            ranges={},
            outputs=self.plan.outputs,
            dead_letter_topic=dead_letters.name,
            dead_letter_partitions=dead_letters.partitions,
            checkpoint=checkpoint.id,
        )

    def planned_again(self, spark: SparkSession, deployment: Deployment, schemas: Mapping[str, Serde]) -> Query:
        """Return the query planned for another deployment; see :func:`plan_query`."""
        return plan_query(spark, deployment, self.subtopology, schemas)

    def writer(
        self,
        claimed: ClaimedTasks,
        checkpoint: Checkpoint,
        report: Callable[[MicroBatchReport], None],
        pacing: Pacing,
        owner: TaskOwner,
    ) -> DataStreamWriter:
        """Return Spark's writer of the query, which can be given a trigger and started.

        Args:
            claimed: For whom the stream tasks were claimed.
            checkpoint: The checkpoint that the query goes on with.
            report: Called with each micro-batch when it is committed.
            pacing: Says how long the query waits after each micro-batch.
            owner: Writes small micro-batches in this process.
        """
        write = MicroBatchWriter(self, claimed, checkpoint, report, pacing, owner).write
        return self.stream_writer(self.plan.streaming, checkpoint, write)

    def stream_writer(
        self, streaming: DataFrame, checkpoint: Checkpoint, write: Callable[[DataFrame, int], None]
    ) -> DataStreamWriter:
        """Return Spark's writer of a streaming plan.

        Args:
            streaming: The plan.
            checkpoint: The checkpoint that the query goes on with.
            write: Is given each micro-batch and its number.
        """
        return (
            streaming.writeStream.queryName(f"{self.deployment.pipeline.topology.application_id}-{self.subtopology.id}")
            .outputMode("update" if self.plan.stateful else "append")
            .option("checkpointLocation", checkpoint.location)
            .foreachBatch(write)
        )


@dataclass(frozen=True)
class Written:
    """What one stream task wrote in a micro-batch."""

    report: TaskReport
    dead_lettered: int
    bytes: int
    topics: Collection[str]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Written:
        """Return what a row of the columns :data:`WRITTEN_SCHEMA` says."""
        report = TaskReport(row["partition"], row["instance"], row["host"], row["written"])
        return cls(report, row["dead_lettered"], row["bytes"], row["topics"])


class MicroBatchWriter:
    """Takes the micro-batches of one query to Kafka."""

    def __init__(
        self,
        query: Query,
        claimed: ClaimedTasks,
        checkpoint: Checkpoint,
        report: Callable[[MicroBatchReport], None],
        pacing: Pacing,
        owner: TaskOwner,
    ) -> None:
        plan = query.plan
        self._query = query
        self._checkpoint = checkpoint
        self._report = report
        self._pacing = pacing
        self._full = min(FULL, query.deployment.micro_batch(query.reads) // 2)
        self._kept = owner.kept
        self._share = DriverShare((plan.streaming.sparkSession.sparkContext.master or "").partition("[")[0] == "local")
        self._collected = compile_batch_plan(plan.batch, plan.collected)
        self._spec = query.transaction_spec(claimed, checkpoint)
        writer = for_each_micro_batch(self._spec, partial(transactional_writer, row_format=plan.row_format))
        self._compiled = compile_batch_plan(plan.batch, map_in_arrow(plan.rows, writer, WRITTEN_SCHEMA))
        self._codegen = AdaptiveCodegen()
        self._topics = query.deployment.pipeline.source_topics(query.reads)
        self._clock = _wall_clock(query, claimed, checkpoint)
        self._global_topics = query.subtopology.global_topics
        self._cluster = KafkaCluster(query.deployment.brokers)
        self._reader = Reader(query.subtopology.id, str(uuid4()))

    def write(self, batch: DataFrame, number: int) -> None:
        """Run the compiled plan on a micro-batch, which commits it, and report it. Spark calls this in turn."""
        spark, subtopology = batch.sparkSession, self._query.subtopology
        spec = replace(self._spec, batch=number, ranges=self._begin(spark, number))
        if self._clock is not None:
            spec = self._clock.give_times(spec, self._query.topics)
            spark.sparkContext.setLocalProperty(MICRO_BATCH, micro_batch_as_text(spec))  # for the state
        if self._global_topics:
            tell_offsets(spark, self._reader, self._cluster, self._global_topics)
        records = sum(until - first for first, until in spec.ranges.values())
        self._codegen.adjust(spark, records)
        in_driver = self._share.takes(records, len(spec.partitions))
        with self._query.plan.cached(batch) as cached:
            if in_driver:
                run, written = self._write_in_driver(spec, cached)
            else:
                run, written = self._write_in_workers(spec, cached)
        self._share.note(records, sum(task.bytes for task in written))
        commit_empty(spec, spec.partitions - {task.report.partition for task in written})
        peeked = {name: dict(run.of(peek).get) for name, peek in self._query.plan.observations}
        self._tell(subtopology, number, written, peeked)
        if self._clock is not None and not records:
            has_records = partial(self._clock.has_records, self._checkpoint.end_offsets(number, self._topics))
            self._pacing.rest_until(subtopology.id, number, has_records, self._clock.pause())
        else:
            self._pacing.rest(subtopology.id, number, more=records >= self._full)

    def _begin(self, spark: SparkSession, number: int) -> Mapping[TopicPartition, tuple[int, int]]:
        """Note that a micro-batch begins, and return the offsets that it reads."""
        self._pacing.begin(self._query.reads.id)
        narrowed = self._query.deployment.narrowed
        spark.sparkContext.setLocalProperty(NARROWED, "" if narrowed is None else str(narrowed))
        return self._query.deployment.within(self._checkpoint.offset_ranges(number, self._topics))

    def _tell(
        self,
        subtopology: Subtopology,
        batch: int,
        written: Sequence[Written],
        peeked: Mapping[str, Mapping[str, object]],
    ) -> None:
        """Report what was committed of a micro-batch, and let those go on who read it."""
        tasks = tuple(task.report for task in written)
        dead_lettered = sum(task.dead_lettered for task in written)
        count = sum(task.written for task in tasks)
        self._report(MicroBatchReport(subtopology.id, batch, count, dead_lettered, peeked, tasks))
        self._pacing.committed(subtopology.id, {topic for task in written for topic in task.topics})

    def _write_in_workers(self, spec: TransactionSpec, batch: DataFrame) -> tuple[BatchRun, list[Written]]:
        self._kept.close(spec.subtopology)  # those of the workers would fence them
        batch.sparkSession.sparkContext.setLocalProperty(MICRO_BATCH, micro_batch_as_text(spec))
        run = self._compiled.run(batch)
        return run, [Written.of(row.asDict()) for row in run.rows.collect()]

    def _write_in_driver(self, spec: TransactionSpec, batch: DataFrame) -> tuple[BatchRun, list[Written]]:
        run = self._collected.run(batch)
        rows, spec = collect_in_arrow(run.rows), self._spec_of_computed(spec)
        return run, _written_in_driver(write_collected(spec, rows, self._query.plan.row_format, self._kept))

    def _spec_of_computed(self, spec: TransactionSpec) -> TransactionSpec:
        """Return the specification with what is known when Spark has computed the micro-batch."""
        return spec


@dataclass(frozen=True)
class _WallClock:
    """Lets the time of idle stream tasks go on with the micro-batches of a query.

    ``always``     whether the time is that of the clock, which tasks with records are given, too: for punctuators
    ``committed``  by micro-batch and partition the time that was committed before this start: such a micro-batch may
                   run again
    """

    idle: IdleTasks
    processed: ProcessedInput
    checkpoint: Checkpoint
    source_topics: Sequence[str]
    committed: Mapping[int, Mapping[int, int]]
    always: bool = False

    def give_times(self, spec: TransactionSpec, sources: Sequence[str]) -> TransactionSpec:
        """Return the specification of a micro-batch with the times of idle stream tasks, and with their positions.

        Args:
            spec: The specification with the ranges of the records.
            sources: The topics of the query's sources, in the order of Spark's offset log.
        """
        assert spec.batch is not None
        now_ms = time.time_ns() // 1_000_000
        if not self.always:
            self.idle.note_records(spec.partitions, now_ms)
        times = dict(self.committed.get(spec.batch, {}))
        if not times and self.checkpoint.has_ticks(spec.batch, sources) and self.idle.is_any_due(now_ms):
            with suppress(BrokersUnavailable):  # what is processed is not known then
                until = now_ms if self.always else self.processed.until(now_ms)
                times = self.idle.give_times(until) if until is not None else {}
        if self.always:  # what a record schedules counts from the time of its micro-batch
            if spec.batch not in self.committed:
                times |= dict.fromkeys(spec.partitions, now_ms)
        else:
            times = {partition: given for partition, given in times.items() if partition not in spec.partitions}
        if not times:
            return spec
        ends = self.checkpoint.end_offsets(spec.batch, self.source_topics)
        still = {place: (end, end) for place, end in ends.items() if place[1] in times}
        return replace(spec, ranges={**still, **spec.ranges}, times=times)

    def pause(self) -> float:
        """Return for how many seconds no micro-batch without records is needed."""
        left = self.idle.next_due_ms() / 1000 - time.time()
        return min(max(_LEAST_PAUSE_SECONDS, left), _GREATEST_PAUSE_SECONDS)

    def has_records(self, ends: OffsetMap) -> bool:
        """Return whether there is something to read behind these offsets."""
        with suppress(BrokersUnavailable):
            return any(
                offsets.last_stable > ends.get((topic, partition), 0)
                for topic in self.source_topics
                for partition, offsets in self.processed.cluster.offsets(topic).items()
            )
        return False


def _wall_clock(query: Query, claimed: ClaimedTasks, checkpoint: Checkpoint) -> _WallClock | None:
    """Return what lets the time of idle stream tasks go on; None where it goes by records alone.

    What is built beside another application knows no time of its own yet: it goes by the records up to where the other
    one is.
    """
    deployment, subtopology = query.deployment, query.subtopology
    pipeline, committed = deployment.pipeline, claimed.committed[subtopology.id]
    stage = stage_of(subtopology)
    idle_ms = stage.idle_ms if stage.punctuates_ms is None else 0
    if idle_ms is None or deployment.until is not None:
        return None
    run_before: dict[int, dict[int, int]] = {}
    if committed.checkpoint == checkpoint.id:
        for (topic, partition), batch in committed.batches.items():
            if (given := committed.times.get((topic, partition))) is not None:
                run_before.setdefault(batch, {})[partition] = given
    stages = [pipeline.source_topics(each) for each in stages_of(subtopology, pipeline.topology)]
    return _WallClock(
        IdleTasks(idle_ms, pipeline.partitions(subtopology), time.time_ns() // 1_000_000, stage.punctuates_ms),
        ProcessedInput(
            KafkaCluster(deployment.brokers),
            pipeline.topology.application_id,
            stages,
            pipeline.written_topics,
        ),
        checkpoint,
        pipeline.source_topics(subtopology),
        run_before,
        always=stage.punctuates_ms is not None,
    )


def _written_in_driver(tasks: Sequence[TaskProgress]) -> list[Written]:
    instance = this_instance()
    return [
        Written(
            TaskReport(task.transaction.partition, instance.id, instance.host, task.written),
            task.dead_lettered,
            task.bytes,
            task.topics,
        )
        for task in tasks
    ]


def plan_query(
    spark: SparkSession, deployment: Deployment, subtopology: Subtopology, schemas: Mapping[str, Serde]
) -> Query:
    """Plan the query of a sub-topology.

    Args:
        spark: The session that the query runs in.
        deployment: Where the pipeline runs.
        subtopology: One of its sub-topologies.
        schemas: The serdes of the repartition topics that it reads.

    Raises:
        PySparkException: Spark refuses an expression.
        Refused: A repartition topic cannot carry a field.
    """

    def read(source: Source) -> DataFrame:
        # A table that is joined is read as far as it goes, so that no record of a stream misses a row that was there
        # before it. What a join writes is committed in parts. What is aggregated is not, and so is limited.
        limited = [other for other in subtopology.sources if other not in stage_of(subtopology).read_without_limit]
        max_offsets = max(1, deployment.micro_batch(subtopology) // len(limited)) if source in limited else None
        topic = deployment.pipeline.topology.decorate(source.topic)
        return read_stream(
            spark,
            deployment.brokers,
            topic,
            partitions=deployment.source_partitions,
            max_offsets=max_offsets,
            until={number: end for (name, number), end in deployment.limits.items() if name == topic},
        )

    ticks = partial(read_ticks, spark, deployment.pipeline.partitions(subtopology))
    read_table = TableInKafka(deployment.brokers)
    plan = plan_subtopology(deployment.pipeline, subtopology, schemas, read, ticks, read_table)
    return Query(deployment, subtopology, plan)
