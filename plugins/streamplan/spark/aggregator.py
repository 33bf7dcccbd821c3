"""Runs every sub-topology of a pipeline: side by side without end, or in turn until what is there is drained."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.task_ownership import ClaimedTasks, TaskOwnership, await_end
from streamplan.kafka.topics import observe_topics
from streamplan.model.processor_topology import Subtopology
from streamplan.model.topology import Topology
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.query import Deployment, MicroBatchReport, Query, plan_query
from streamplan.spark.session import generate_code, keep_checkpoints_cheaply, start_python_workers
from streamplan.spark.sink.writers import identity
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.recovery import prepare_checkpoint
from streamplan.spark.status import Heartbeat


@dataclass
class Progress:
    """Records written and dead-lettered so far, by sub-topology. Filled from the threads of the queries."""

    report: Callable[[str], None]
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    interval_seconds: float = 2.0
    totals: dict[int, tuple[int, int]] = field(default_factory=dict)
    _last: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, written: MicroBatchReport) -> None:
        self.heartbeat.record(written.subtopology, written.batch, written.tasks)
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
    observed = observe_topics(deployment.brokers, [spec.name for spec in specs])
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


def _writers(topology: Topology) -> dict[int, set[int]]:
    """Of each sub-topology those that write what it reads."""
    groups = topology.subtopologies
    return {
        reader.id: {writer.id for writer in groups if set(writer.sink_topics) & set(reader.source_topics)}
        for reader in groups
    }


def in_flow_order(topology: Topology) -> tuple[Subtopology, ...]:
    """The sub-topologies, each behind those that write what it reads."""
    return tuple(topology.subtopologies[number] for number in TopologicalSorter(_writers(topology)).static_order())


def trigger_interval_of(subtopology: Subtopology, topology: Topology, interval_ms: int) -> int:
    """Half of it for a sub-topology that reads what others write.

    Spark's triggers fall on multiples of their interval. On the same ones it would take the processors from those that
    write at that moment, and find what they have written an interval later.
    """
    return max(1, interval_ms // 2) if _writers(topology)[subtopology.id] else interval_ms


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
    keep_checkpoints_cheaply(spark, deployment.checkpoints)
    start_python_workers(spark, identity)
    refuse_unfit_topics(deployment)
    queries, schemas = _plan(spark, deployment)  # before the claim: what is refused here must fence nobody
    progress = Progress(report, heartbeat or Heartbeat())
    ownership = TaskOwnership(pipeline, deployment.brokers, transaction_timeout_ms=deployment.transaction_timeout_ms)
    claimed = _claim(spark, deployment, ownership, report)

    def check_ownership() -> None:
        ownership.require_latest(claimed.generation)

    running: list[Running] = []
    try:
        for query in queries:
            subtopology = query.subtopology
            # State stores have one partition a stream task; a query takes this setting along when it starts.
            spark.conf.set("spark.sql.shuffle.partitions", pipeline.partitions(subtopology))
            checkpoint = prepare_checkpoint(spark, deployment, schemas, claimed, query, report)
            writer = query.writer(claimed, progress)
            if available_now:
                running.append(Running(_start(spark, writer.trigger(availableNow=True)), checkpoint))
                _await(running, stop, progress, check_ownership)
            else:
                interval = trigger_interval_of(subtopology, pipeline.topology, trigger_interval_ms)
                trigger = writer.trigger(processingTime=f"{interval} milliseconds")
                running.append(Running(_start(spark, trigger), checkpoint))
                report(f"sub-topology {subtopology.id} reads {', '.join(pipeline.source_topics(subtopology))}")
        if not available_now:
            _await(running, stop, progress, check_ownership)
    finally:
        progress.heartbeat.announce_stop()
        for one in running:
            # Told to stop, Spark's JVM may have gone by itself before we come to stop its queries.
            with suppress(*((Py4JError, ConnectionError) if stop.is_set() else ())):
                one.query.stop()
    return progress


def _claim(
    spark: SparkSession, deployment: Deployment, ownership: TaskOwnership, report: Callable[[str], None]
) -> ClaimedTasks:
    """Take over all stream tasks, and wait until an older aggregator on this machine has ended."""
    topology = deployment.pipeline.topology
    claimed = ownership.claim(
        {
            subtopology.id: deployment.checkpoint(spark, subtopology).last_planned() is not None
            for subtopology in topology.subtopologies
        }
    )
    report(f"{topology.application_id}: {claimed.generation}")
    await_end(claimed.predecessor, report)
    return claimed


def _plan(spark: SparkSession, deployment: Deployment) -> tuple[list[Query], dict[str, Serde]]:
    """Every query, in flow order, and the serdes of the repartition topics.

    Raises :class:`Refused` with every fault that Spark finds in the declaration.
    """
    queries: list[Query] = []
    schemas: dict[str, Serde] = {}
    try:
        for subtopology in in_flow_order(deployment.pipeline.topology):
            queries.append(plan_query(spark, deployment, subtopology, schemas))
            schemas |= queries[-1].schemas
    except (PySparkException, Refused):
        resolve_schemas(spark, deployment.pipeline)  # tells all faults, with their lines
        raise
    return queries, schemas


def _start(spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
    """With the first stages interpreted, whatever the query decides then: a cold JVM is long in compiling them."""
    generate_code(spark, False)
    try:
        return writer.start()
    finally:
        generate_code(spark, True)


@dataclass(frozen=True)
class Running:
    """A started query, and where it keeps its checkpoint."""

    query: StreamingQuery
    checkpoint: Checkpoint


def _await(
    running: list[Running], stop: threading.Event, progress: Progress, check_ownership: Callable[[], None]
) -> None:
    """Until every query has ended, one has failed (raised), or ``stop`` is set."""
    seen: dict[str, int] = {}
    while not stop.is_set():
        alive = [one for one in running if one.query.isActive]
        for one in running:
            error = None if one.query.isActive else one.query.exception()
            if error is not None:
                raise _cause(one, error)
            _tell_progress(one.query, seen, progress.report)
        progress.heartbeat.beat()
        if not alive:
            return
        check_ownership()
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


_UNREADABLE_STATE = ("CANNOT_LOAD_STATE_STORE", "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED", "STATE_STORE_")
"""Spark's error classes for a state that is not as it was written."""


def _cause(one: Running, error: StreamingQueryException) -> StreamplanError:
    text = str(error)
    refused = "streamplan.errors.Refused: "
    if refused in text:
        return Refused(text[text.index(refused) + len(refused) :].splitlines()[0])
    if any(name in text for name in _UNREADABLE_STATE):
        aside = one.checkpoint.set_aside()
        return StreamplanError(
            f"query {one.query.name}: the state in its checkpoint cannot be read",
            observed=next(line for line in text.splitlines() if any(name in line for name in _UNREADABLE_STATE)),
            remedy=f"It was moved to {aside}. The next start builds the state from the changelog topics.",
        )
    return StreamplanError(f"query {one.query.name} ended", observed=text)
