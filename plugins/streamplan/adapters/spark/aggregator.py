"""Runs every sub-topology of a pipeline: side by side without end, or in turn until what is there is drained."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamplan.adapters.kafka.admin import observe_topics
from streamplan.adapters.kafka.positions import begin_positions, records_ever_written
from streamplan.adapters.spark.checkpoint import Checkpoint
from streamplan.adapters.spark.heartbeat import Heartbeat
from streamplan.adapters.spark.queries import Deployment, Written, build_query
from streamplan.adapters.spark.sink import TopicPartition
from streamplan.adapters.spark.validation import resolve_schemas
from streamplan.errors import Refused, StreamplanError
from streamplan.processor_topology import Subtopology
from streamplan.topology import Topology


@dataclass
class Progress:
    """Records written and dead-lettered so far, by sub-topology. Filled from the threads of the queries."""

    report: Callable[[str], None]
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    interval_seconds: float = 2.0
    totals: dict[int, tuple[int, int]] = field(default_factory=dict)
    _last: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, written: Written) -> None:
        self.heartbeat.written(written.subtopology, written.batch)
        with self._lock:
            before = self.totals.get(written.subtopology, (0, 0))
            self.totals[written.subtopology] = (before[0] + written.written, before[1] + written.dead_lettered)
            for name, metrics in written.peeked.items():
                listed = ", ".join(f"{metric} {value}" for metric, value in metrics.items())
                self.report(f"peek {name}, micro-batch {written.batch}: {listed}")
            if time.monotonic() - self._last >= self.interval_seconds:
                self._last = time.monotonic()
                self.report(self.line())

    def line(self) -> str:
        return " · ".join(
            f"sub-topology {number}: {records:,} records written, {dead:,} dead-lettered"
            for number, (records, dead) in sorted(self.totals.items())
        )


def refuse_unfit_topics(deployment: Deployment) -> None:
    """Every topic exists with its partition count, or :class:`Refused` naming all that do not."""
    specs = deployment.pipeline.topics()
    observed = observe_topics(deployment.bootstrap_servers, [spec.name for spec in specs])
    faults = [
        f"{spec.name} has {observed[spec.name].partitions} partitions, not {spec.partitions}"
        if spec.name in observed
        else f"{spec.name} does not exist"
        for spec in specs
        if spec.name not in observed or observed[spec.name].partitions != spec.partitions
    ]
    if faults:
        raise Refused(
            f"the topics of {deployment.pipeline.name} are not as declared: {'; '.join(faults)}",
            remedy=f"The task topics of {deployment.pipeline.name}_deploy creates them.",
        )


def refuse_unfit_checkpoint(
    checkpoint: Checkpoint,
    subtopology: Subtopology,
    topics: Sequence[str],
    positions: Mapping[TopicPartition, int],
    *,
    outputs: int,
) -> None:
    """The checkpoint and the group's positions tell one history, or :class:`Refused` with both figures.

    ``outputs`` is the sum of the end offsets of a stateful sub-topology's changelogs.
    """
    planned, committed = checkpoint.last_planned(), checkpoint.last_committed()
    if planned is None:
        if subtopology.stores and outputs:
            raise Refused(
                f"sub-topology {subtopology.id} has no checkpoint at {checkpoint.location}",
                expected=f"the state of the {outputs} records in its changelogs",
                observed="none",
                remedy="Bring the checkpoint back, or reset the application: its totals would start again from 0.",
            )
        return
    done = checkpoint.ends(committed, topics) if committed is not None else {}
    begun = checkpoint.ends(planned, topics)
    for (topic, partition), position in sorted(positions.items()):
        processed = done.get((topic, partition), 0)
        if position < processed:
            raise Refused(
                f"{topic}-{partition}: the checkpoint {checkpoint.location} is ahead of Kafka",
                expected=f"a position of at least {processed}, which the checkpoint has processed",
                observed=f"position {position} of the group",
                remedy="The group was reset or Kafka lost data: reset the application, or restore both together.",
            )
        known = begun.get((topic, partition), 0)
        if subtopology.stores and position > known:
            raise Refused(
                f"{topic}-{partition}: the checkpoint {checkpoint.location} is behind Kafka",
                expected=f"a position of at most {known}, up to which the state was built",
                observed=f"position {position} of the group",
                remedy="The checkpoint is an old copy: bring the newest back, or reset the application.",
            )


def in_flow_order(topology: Topology) -> tuple[Subtopology, ...]:
    """The sub-topologies, each behind those that write what it reads."""
    groups = topology.subtopologies
    writers = {
        reader.id: {writer.id for writer in groups if set(writer.sink_topics) & set(reader.source_topics)}
        for reader in groups
    }
    return tuple(groups[number] for number in TopologicalSorter(writers).static_order())


def run(
    spark: SparkSession,
    deployment: Deployment,
    *,
    available_now: bool,
    trigger_interval_ms: int,
    stop: threading.Event,
    report: Callable[[str], None],
    heartbeat: Heartbeat | None = None,
) -> Progress:
    """Run until drained (``available_now``), until ``stop`` is set, or until a query fails."""
    pipeline = deployment.pipeline
    refuse_unfit_topics(deployment)
    schemas = resolve_schemas(spark, pipeline)
    progress = Progress(report, heartbeat or Heartbeat())
    queries: list[StreamingQuery] = []
    try:
        for subtopology in in_flow_order(pipeline.topology):
            topics = pipeline.source_topics(subtopology)
            changelogs = [pipeline.topology.changelog_topic(store) for store in subtopology.stores]
            checkpoint = deployment.checkpoint(spark, subtopology)
            new = checkpoint.last_planned() is None
            positions = {
                (topic, partition): position
                for topic in topics
                for partition, position in begin_positions(
                    deployment.bootstrap_servers, pipeline.topology.application_id, topic, new=new
                ).items()
            }
            outputs = records_ever_written(deployment.bootstrap_servers, changelogs)
            refuse_unfit_checkpoint(checkpoint, subtopology, topics, positions, outputs=outputs)
            writer = build_query(spark, deployment, subtopology, schemas, positions, progress)
            if available_now:
                queries.append(writer.trigger(availableNow=True).start())
                _await(queries, stop, progress)
            else:
                queries.append(writer.trigger(processingTime=f"{trigger_interval_ms} milliseconds").start())
                report(f"sub-topology {subtopology.id} reads {', '.join(topics)}")
        if not available_now:
            _await(queries, stop, progress)
    finally:
        progress.heartbeat.ending()
        for query in queries:
            query.stop()
    return progress


def _await(queries: list[StreamingQuery], stop: threading.Event, progress: Progress) -> None:
    """Until every query has ended, one has failed (raised), or ``stop`` is set."""
    seen: dict[str, int] = {}
    while not stop.is_set():
        alive = [query for query in queries if query.isActive]
        for query in queries:
            error = None if query.isActive else query.exception()
            if error is not None:
                raise _cause(query, error)
            _tell_progress(query, seen, progress.report)
        progress.heartbeat.beat()
        if not alive:
            return
        stop.wait(0.2)


def _tell_progress(query: StreamingQuery, seen: dict[str, int], report: Callable[[str], None]) -> None:
    """What Spark knows of a micro-batch and we do not: late records, and peeks before a stateful operation."""
    progress = query.lastProgress
    if progress is None or progress["batchId"] == seen.get(query.name):
        return
    seen[query.name] = progress["batchId"]
    late = sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])
    if late:
        report(
            f"{query.name}, micro-batch {progress['batchId']}: {late} records came later than grace, and were dropped"
        )
    for name, row in progress["observedMetrics"].items():
        listed = ", ".join(f"{metric} {value}" for metric, value in row.asDict().items())
        report(f"peek {name}, micro-batch {progress['batchId']}: {listed}")


def _cause(query: StreamingQuery, error: StreamingQueryException) -> StreamplanError:
    text = str(error)
    refused = "streamplan.errors.Refused: "
    if refused in text:
        return Refused(text[text.index(refused) + len(refused) :].splitlines()[0])
    return StreamplanError(f"query {query.name} ended", observed=text)
