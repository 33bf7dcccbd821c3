"""Two sub-topologies in one streaming query, where the second aggregates what the first writes (:class:`.LinkedPlan`).

A micro-batch goes through both. Its records are written to the repartition topic in the transactions of the first
sub-topology, as ever. What is aggregated of them goes on through Spark's shuffle to the state of the second one, whose
transactions follow when all those of the first one are committed: the position of each stream task is then the end of
its partition. So the repartition topic has everything from which the second one can be restored, and is not read.

A micro-batch that runs again after a crash hands on all of its records, also those that are committed already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamplan.kafka.task_ownership import ClaimedTasks
from streamplan.model.linking import Link, links_of_start
from streamplan.model.processor_topology import Subtopology
from streamplan.serdes.serde import Serde
from streamplan.spark.deployment import Deployment
from streamplan.spark.pacing import Pacing
from streamplan.spark.planning.compiled_plan import BatchRun, subscribed_topics
from streamplan.spark.planning.linked import LinkedPlan, plan_linked
from streamplan.spark.query import MicroBatchReport, MicroBatchWriter, Query, Written, plan_query
from streamplan.spark.sink.handed_on import TaskReports, handed_on_to
from streamplan.spark.sink.owner import TaskOwner
from streamplan.spark.sink.spec import HandedOnInput, TransactionSpec
from streamplan.spark.sink.transaction import KeptProducers, commit_empty
from streamplan.spark.sink.writers import (
    BY_OWNER,
    MICRO_BATCH_OF_WRITER,
    for_each_micro_batch,
    handing_writer,
    micro_batch_as_text,
)
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.recovery import Beginning


@dataclass(frozen=True)
class LinkedQuery(Query):
    """The streaming query of two sub-topologies. ``subtopology`` and ``plan`` are those of the second one.

    ``linked``  the plan of both
    """

    linked: LinkedPlan

    @property
    def link(self) -> Link:
        """The two sub-topologies."""
        return self.linked.link

    @property
    def reads(self) -> Subtopology:
        """See :attr:`Query.reads`."""
        return self.link.writer

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """See :attr:`Query.topics`."""
        return tuple(subscribed_topics(self.linked.writer.streaming))

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """See :attr:`Query.subtopologies`."""
        return (self.link.writer, self.link.reader)

    def beginning(self, claimed: ClaimedTasks) -> Beginning:
        """See :meth:`Query.beginning`."""
        return Beginning.of_link(self.deployment, claimed, self.link, self.topics)

    def transaction_spec(self, claimed: ClaimedTasks, checkpoint: Checkpoint) -> TransactionSpec:
        """See :meth:`Query.transaction_spec`."""
        (topic,) = self.deployment.pipeline.source_topics(self.link.reader)
        partitions = self.deployment.pipeline.partitions(self.link.reader)
        return replace(super().transaction_spec(claimed, checkpoint), handed_on=HandedOnInput(topic, partitions))

    def planned_again(self, spark: SparkSession, deployment: Deployment, schemas: Mapping[str, Serde]) -> Query:
        """See :meth:`Query.planned_again`."""
        linked = link_queries(
            plan_query(spark, deployment, self.link.writer, schemas),
            plan_query(spark, deployment, self.link.reader, schemas),
            self.link,
            schemas,
        )
        assert linked is not None, "it was linked before"
        return linked

    def writer(
        self,
        claimed: ClaimedTasks,
        checkpoint: Checkpoint,
        report: Callable[[MicroBatchReport], None],
        pacing: Pacing,
        owner: TaskOwner,
    ) -> DataStreamWriter:
        """See :meth:`Query.writer`."""
        writer = _LinkedWriter(self, claimed, checkpoint, report, pacing, owner)
        return self.stream_writer(writer.streaming, checkpoint, writer.write)


def link_queries(writer: Query, reader: Query, link: Link, schemas: Mapping[str, Serde]) -> LinkedQuery | None:
    """Return the query that does what two queries do; None where it cannot.

    Args:
        writer: The query of the first sub-topology.
        reader: The query of the second one.
        link: The two sub-topologies.
        schemas: The serdes of the repartition topics.
    """
    deployment = writer.deployment
    records = deployment.micro_batch(reader.subtopology)  # less than those of the writer where windows overlap
    if records < deployment.micro_batch(writer.subtopology):
        deployment = replace(deployment, max_offsets=records)
        spark = writer.plan.streaming.sparkSession
        writer = plan_query(spark, deployment, writer.subtopology, schemas)
    plan = plan_linked(deployment.pipeline, link, writer.plan, schemas)
    return None if plan is None else LinkedQuery(deployment, reader.subtopology, plan.reader, plan)


def links(deployment: Deployment) -> tuple[Link, ...]:
    """Return the sub-topologies of a deployment that are linked."""
    return () if deployment.until is not None else links_of_start(deployment.pipeline.topology)


class _LinkedWriter(MicroBatchWriter):
    """Takes the micro-batches of two sub-topologies to Kafka.

    ``streaming``  the streaming plan, which writes what the first one writes
    """

    def __init__(
        self,
        query: LinkedQuery,
        claimed: ClaimedTasks,
        checkpoint: Checkpoint,
        report: Callable[[MicroBatchReport], None],
        pacing: Pacing,
        owner: TaskOwner,
    ) -> None:
        super().__init__(query, claimed, checkpoint, report, pacing, owner)
        self._link = query.link
        first = Query(query.deployment, query.link.writer, query.linked.writer)
        self._first = first.transaction_spec(claimed, checkpoint)
        spark = query.linked.writer.streaming.sparkSession
        self._reports = spark.sparkContext.accumulator({}, TaskReports())
        self._owner = owner
        handing = partial(
            handing_writer,
            row_format=query.linked.writer.row_format,
            hand_on=query.linked.hand_on,
            reports=self._reports,
            owner=owner.address,
        )
        self.streaming = query.linked.streaming(for_each_micro_batch(self._first, handing, MICRO_BATCH_OF_WRITER))

    def write(self, batch: DataFrame, number: int) -> None:
        """See :meth:`MicroBatchWriter.write`."""
        spark = batch.sparkSession
        ranges = self._begin(spark, number)
        first, second = replace(self._first, batch=number, ranges=ranges), replace(self._spec, batch=number)
        spark.sparkContext.setLocalProperty(MICRO_BATCH_OF_WRITER, micro_batch_as_text(first))
        records = sum(until - begin for begin, until in ranges.values())
        self._codegen.adjust(spark, records)
        self._reports.value = {}
        in_driver = self._share.takes(records, len(second.partitions) + len(first.partitions))
        with self._query.plan.cached(batch, always=not in_driver) as cached:
            spark.sparkContext.setLocalProperty(BY_OWNER, "true" if in_driver else "")
            if in_driver:
                self._owner.specs[first.subtopology] = first
                try:
                    run, written = self._write_in_driver(second, cached)
                finally:
                    del self._owner.specs[first.subtopology]
            else:
                self._kept.close(first.subtopology)  # those of the workers would fence them
                run, written = self._write_in_workers(second, cached)
        before = [Written.of(task.row) for task in self._reports.value.values()]
        idle = first.partitions - {task.report.partition for task in before}
        kept = self._kept if in_driver else None
        commit_empty(first, idle, kept)
        self._commit_unchanged(second, written, kept)
        self._share.note(records, sum(task.bytes for task in (*before, *written)))
        self._tell(self._link.writer, number, before, {})
        self._pacing.begin(self._link.reader.id)
        peeked = {name: dict(run.of(peek).get) for name, peek in self._query.plan.observations}
        self._tell(self._link.reader, number, written, peeked)
        self._pacing.rest(self._link.writer.id, number, more=records >= self._full)

    def _commit_unchanged(self, spec: TransactionSpec, written: Sequence[Written], kept: KeptProducers | None) -> None:
        """Commit the positions of stream tasks whose state no record has changed: all came too late for their window.

        Workers are given a row of each stream task, and have done so.
        """
        computed = self._spec_of_computed(spec)
        assert computed.handed_on is not None
        assert computed.handed_on.tasks is not None
        commit_empty(computed, computed.handed_on.tasks.keys() - {task.report.partition for task in written}, kept)

    def _spec_of_computed(self, spec: TransactionSpec) -> TransactionSpec:
        """See :meth:`MicroBatchWriter._spec_of_computed`. What was handed on is checked before it is committed."""
        assert spec.handed_on is not None
        return replace(spec, handed_on=replace(spec.handed_on, tasks=handed_on_to(self._reports.value.values())))

    def _write_in_workers(self, spec: TransactionSpec, batch: DataFrame) -> tuple[BatchRun, list[Written]]:
        """See :meth:`MicroBatchWriter._write_in_workers`. What was handed on is known when all is computed."""
        batch.write.format("noop").mode("overwrite").save()
        return super()._write_in_workers(self._spec_of_computed(spec), batch)
