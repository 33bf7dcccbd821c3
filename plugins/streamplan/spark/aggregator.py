"""Runs every sub-topology of a pipeline as a streaming query.

All queries run side by side without end, or one after the other until the records that are there are processed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamplan.errors import Refused, SchemaRegistryUnavailable, StreamplanError
from streamplan.kafka.cluster import KafkaCluster, await_transactions, unprocessed
from streamplan.kafka.groups import fence
from streamplan.kafka.membership import DRAIN_SECONDS
from streamplan.kafka.task_ownership import ClaimedTasks, StopRequested, TaskOwnership
from streamplan.kafka.topics import observe_topics
from streamplan.model.left_out import VARIABLE
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Sink, Source, Subtopology, TaskId
from streamplan.model.stages.foreign_key import foreign_key_joins
from streamplan.model.start_point import StartFrom
from streamplan.model.subtopology_graph import responders_of, subscribers_of, upstream_of
from streamplan.model.topics import TopicSpec, explain_changed_counts
from streamplan.model.topology import Topology
from streamplan.serdes.serde import Serde
from streamplan.spark.deployment import Deployment
from streamplan.spark.executors import Executors
from streamplan.spark.linked import LinkedQuery, link_queries, links
from streamplan.spark.noted_records import NotedRecords, noted_in
from streamplan.spark.pacing import Pacing
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.progress import Progress
from streamplan.spark.python_workers import start_python_workers
from streamplan.spark.query import Query, plan_query
from streamplan.spark.session import generate_code, keep_checkpoints_cheaply
from streamplan.spark.sink.owner import TaskOwner
from streamplan.spark.sink.writers import identity
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.recovery import checkpoints_of, continue_linked, prepare_checkpoint
from streamplan.spark.status import Heartbeat

_WATCH_SECONDS = 0.2

_MARKERS_SECONDS = 10.0
"""How long the brokers may take to end a transaction in all partitions."""

_HOLD_SECONDS = 600.0
"""The other partitions go on for this time. Then the aggregator ends with the error, and its next start tries again."""

_WORKER_DIED = "Python worker exited unexpectedly"
"""In the message of Spark's error for a worker whose process is gone."""

_TOLD = (Refused, SchemaRegistryUnavailable)
"""Errors of a task that say all that a person needs."""

_UNREADABLE_TIMESTAMP = "overflows when converting to Spark's microsecond"
"""In the message of Spark's error class KAFKA_MALFORMED_RECORD_TIMESTAMP, which comes from its Kafka source."""

_UNREADABLE_STATE = ("CANNOT_LOAD_STATE_STORE", "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED", "STATE_STORE_")
"""Spark's error classes for a state that is not as it was written."""


@dataclass(frozen=True)
class _RunningQuery:
    """A query that was started, with its plan and its checkpoint."""

    planned: Query
    query: StreamingQuery
    checkpoint: Checkpoint

    @property
    def subtopology(self) -> int:
        """The id of its sub-topology."""
        return self.planned.subtopology.id


@dataclass
class _Holds:
    """Finds the record at which each worker dies, and goes on without the rest of its partition for some time.

    ``narrow``  starts a query again that processes the records one by one
    ``restart``  starts a query again that does not read beyond the record
    ``error``    that of the first such record; None while there is none
    """

    narrow: Callable[[_RunningQuery, NotedRecords], _RunningQuery]
    restart: Callable[[_RunningQuery, NotedRecords], _RunningQuery]
    heartbeat: Heartbeat
    report: Callable[[str], None]
    error: StreamplanError | None = None
    _since: float = 0.0

    def go_on(self, failed: _RunningQuery, records: NotedRecords, error: StreamplanError) -> _RunningQuery:
        """Start a failed query again: one by one with these records, or without the rest of the partition of the one.

        Raises:
            StreamplanError: The error, where the records were processed one by one and are still several.
        """
        if not records.is_one:
            if failed.planned.deployment.narrowed is not None:
                raise error
            self.report(f"query {failed.query.name}: a Python worker died. The query processes its records one by one")
            return self.narrow(failed, records)
        if self.error is None:
            self.error, self._since = error, time.monotonic()
        self.report(f"error: {error}")
        self.report(f"{records.topic}-{records.partition} is held back at offset {records.first}; the others go on")
        self.heartbeat.held.append(str(error))
        return self.restart(failed, records)

    def require_time_left(self) -> None:
        """Raise the error when it is time to try the records again, in another start."""
        if self.error is not None and time.monotonic() - self._since > _HOLD_SECONDS:
            raise self.error


def run(
    spark: SparkSession,
    deployment: Deployment,
    *,
    available_now: bool,
    trigger_interval_ms: int,
    stop: threading.Event,
    report: Callable[[str], None],
    heartbeat: Heartbeat | None = None,
    seen: str | None = None,
) -> Progress:
    """Run a pipeline until ``stop`` is set or a query fails; with ``available_now`` until its input is processed.

    Args:
        spark: A session of :func:`streamplan.spark.session.open_session`.
        deployment: The pipeline, and where it runs.
        available_now: Process the records that are there, and return.
        trigger_interval_ms: A query without records looks for them so often, see :func:`trigger_interval_of`.
        stop: Ends the run when it is set.
        report: Gets lines for the log.
        heartbeat: Reports the aggregator's status; None reports none.
        seen: What :func:`~streamplan.kafka.task_ownership.newest_instance` returned when this start was asked for; None
            asks now. A stop that was asked for later is obeyed.

    Returns:
        The number of records written and dead-lettered.

    Raises:
        Refused: The topics, the declaration, the positions or a checkpoint are not fit, or a newer aggregator of the
            application has been started. Another attempt would not help.
        StreamplanError: A query failed.
    """
    pipeline = deployment.pipeline
    keep_checkpoints_cheaply(spark, deployment.checkpoints)
    start_python_workers(spark, identity)
    _require_topics(deployment)
    pacing = Pacing(pipeline.topology, 0 if available_now else trigger_interval_ms)
    progress = Progress(report, heartbeat or Heartbeat(), pacing)
    beside = deployment.until is not None
    with (
        TaskOwnership(pipeline, deployment.brokers, report, seen, beside) as ownership,
        TaskOwner() as owner,
    ):
        # Plan before the tasks are claimed: a declaration that is refused must not fence an aggregator that runs.
        queries, schemas = _plan_queries(spark, deployment)
        _prepare_serdes(pipeline)
        try:
            claimed = _claim(spark, deployment, ownership, report)
            running: list[_RunningQuery] = []
            planned = {query.subtopology.id: query for query in queries}

            def start(query: Query, checkpoint: Checkpoint, *, to_end: bool = available_now) -> _RunningQuery:
                # State stores have one partition for each stream task. A query reads this setting when it starts.
                spark.conf.set("spark.sql.shuffle.partitions", pipeline.partitions(query.subtopology))
                writer = query.writer(claimed, checkpoint, progress.record, pacing, owner)
                if to_end:
                    # The source of ticks has no end of its own, so that Spark would run one micro-batch alone.
                    spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", True)
                    return _RunningQuery(query, _start(spark, writer.trigger(availableNow=True)), checkpoint)
                interval = trigger_interval_of(query.reads, pipeline.topology, trigger_interval_ms)
                spark.conf.set("spark.sql.streaming.pollingDelay", f"{interval}ms")
                return _RunningQuery(query, _start(spark, writer.trigger(processingTime="0 seconds")), checkpoint)

            def prepare(query: Query) -> Checkpoint:
                spark.conf.set("spark.sql.shuffle.partitions", pipeline.partitions(query.subtopology))  # to restore
                return prepare_checkpoint(
                    spark,
                    deployment,
                    schemas,
                    ownership,
                    claimed,
                    query.beginning(claimed),
                    report,
                    progress.heartbeat.record_restoration,
                )

            def narrow(failed: _RunningQuery, records: NotedRecords) -> _RunningQuery:
                slower = replace(failed.planned.deployment, narrowed=records)
                return start(replace(failed.planned, deployment=slower), failed.checkpoint)

            def restart(failed: _RunningQuery, records: NotedRecords) -> _RunningQuery:
                before = replace(failed.planned.deployment, narrowed=None)
                held = {**before.held, (records.topic, records.partition): records.first}
                query = failed.planned.planned_again(spark, replace(before, held=held), schemas)
                planned[failed.subtopology] = query
                failed.checkpoint.note_held(f"{records.topic}-{records.partition} offset {records.first}")
                return start(query, failed.checkpoint)

            holds = _Holds(narrow, restart, progress.heartbeat, report)
            executors = Executors(spark.sparkContext)
            checkpoints: dict[int, Checkpoint] = {}
            try:
                for link in links(deployment):
                    before = planned[link.reader.id]
                    both = link_queries(planned[link.writer.id], before, link, schemas)
                    if both is None:
                        continue
                    if _reads_what_is_left(spark, both, claimed, report):
                        _await_written(deployment, link.reader, report)
                        running.append(start(before, prepare(before), to_end=True))
                        _watch(running, stop, progress, ownership, holds, executors)
                        if stop.is_set():
                            return progress
                        running.clear()
                        claimed = _claim(spark, deployment, ownership, report)
                    apart, linked = before.beginning(claimed), both.beginning(claimed)
                    continued = continue_linked(spark, deployment, ownership, claimed, apart, linked)
                    if continued is not None:
                        checkpoints[link.reader.id] = continued
                    planned[link.reader.id] = both
                    del planned[link.writer.id]
                order = in_order_of_runs(pipeline.topology) if available_now else in_flow_order(pipeline.topology)
                for subtopology in order:
                    if (query := planned.get(subtopology.id)) is None:
                        continue  # it is linked with the one that reads what it writes
                    if subtopology.id not in checkpoints:
                        checkpoints[subtopology.id] = prepare(query)
                    if available_now:
                        _await_written(deployment, query.reads, report)
                    running.append(start(query, checkpoints[subtopology.id]))
                    if available_now:
                        _watch(running, stop, progress, ownership, holds, executors)
                    else:
                        numbers = " and ".join(str(each.id) for each in query.subtopologies)
                        subject = (
                            f"sub-topologies {numbers} read"
                            if query.subtopologies[1:]
                            else f"sub-topology {numbers} reads"
                        )
                        report(f"{subject} {', '.join(pipeline.source_topics(query.reads))}")
                if not available_now:
                    _watch(
                        running, stop, progress, ownership, holds, executors, until=lambda: ownership.drain_requested
                    )
                    if ownership.drain_requested:
                        _drain(running, deployment, stop, progress, ownership, holds, executors, report)
                if holds.error is not None and not stop.is_set():
                    raise holds.error
            finally:
                progress.heartbeat.announce_stop()
                pacing.end()
                for each in running:
                    # After a signal Spark's JVM may have ended before its queries are stopped here.
                    with suppress(*((Py4JError, ConnectionError) if stop.is_set() else ())):
                        each.query.stop()
        except StopRequested as request:
            report(str(request))
            stop.set()
    return progress


def _reads_what_is_left(
    spark: SparkSession, linked: LinkedQuery, claimed: ClaimedTasks, report: Callable[[str], None]
) -> bool:
    """Return whether the second of two linked sub-topologies must first read what is left in the repartition topic.

    A checkpoint of both is followed by the micro-batch that hands on all of its records. Without such a checkpoint the
    first sub-topology goes on at its positions.
    """
    deployment, beginning = linked.deployment, linked.beginning(claimed)
    found = checkpoints_of(spark, deployment).find(linked.subtopology.id, beginning.committed.checkpoint)
    if beginning.decision(found).start is StartFrom.CHECKPOINT:
        return False
    (topic,) = deployment.pipeline.source_topics(linked.subtopology)
    positions = {number: at for (_, number), at in claimed.committed[linked.subtopology.id].positions.items()}
    left = unprocessed(KafkaCluster(deployment.brokers), {topic: positions})
    if left:
        report(f"sub-topology {linked.subtopology.id} first reads {left[topic]:,} records of {topic}")
    return bool(left)


def in_flow_order(topology: Topology) -> tuple[Subtopology, ...]:
    """Return the sub-topologies, each after those that write what it reads."""
    upstream = {subtopology.id: upstream_of(subtopology, topology) for subtopology in topology.subtopologies}
    for subscriber in topology.subtopologies:  # it is done after those that respond to it
        responders = {each.id for each in responders_of(subscriber, topology)}
        for number, before in upstream.items():
            if subscriber.id in before and number not in responders:
                before |= responders
    numbered = {subtopology.id: subtopology for subtopology in topology.subtopologies}
    return tuple(numbered[number] for number in TopologicalSorter(upstream).static_order())


def in_order_of_runs(topology: Topology) -> tuple[Subtopology, ...]:
    """Return the sub-topologies in the order in which all records pass them that are there at the beginning.

    One with a join by a foreign key sends subscriptions, and comes again for the responses. Where it joins the result
    by a foreign key once more, it comes a third time.
    """
    order = in_flow_order(topology)
    runs: list[Subtopology] = []
    for first in order:
        runs.append(first)
        for subscriber in subscribers_of(first, topology):
            runs.append(subscriber)
            if first == max(responders_of(subscriber, topology), key=order.index):
                runs += _further_runs(runs, subscriber, topology)
    return tuple(runs)


def _further_runs(runs: Sequence[Subtopology], subscriber: Subtopology, topology: Topology) -> list[Subtopology]:
    """Return the runs after which each join by a foreign key of a sub-topology has joined the results of the others."""
    further: list[Subtopology] = []
    joined: dict[str, int] = {}
    for side, responder in zip(foreign_key_joins(subscriber), responders_of(subscriber, topology), strict=True):
        before = [node.name for node in subscriber.upstream_of([side.node]) if node.name in joined]
        at = max((joined[name] for name in before), default=runs.index(subscriber))
        for each in (responder, subscriber):
            if each not in [*runs, *further][at + 1 :]:
                further.append(each)
            at = [*runs, *further].index(each, at + 1)
        joined |= {node.name: at for node in side.results}
    return further


def trigger_interval_of(subtopology: Subtopology, topology: Topology, interval_ms: int) -> int:
    """Return how often a sub-topology looks for records while there are none, in ms.

    Where it reads what others write it looks twice as often, so that a record does not wait as long again.
    """
    return max(1, interval_ms // 2) if upstream_of(subtopology, topology) else interval_ms


def _require_topics(deployment: Deployment) -> None:
    """Raise :class:`Refused`, with all faults, unless every topic exists with its number of partitions."""
    specs = deployment.pipeline.topics()
    observed = observe_topics(deployment.brokers, [spec.name for spec in specs], with_configs=False)

    def fits(spec: TopicSpec) -> bool:
        return spec.name in observed and observed[spec.name].partitions == spec.partitions

    faults = [
        f"{spec.name} has {observed[spec.name].partitions} partitions, not {spec.partitions}"
        if spec.name in observed
        else f"{spec.name} does not exist"
        for spec in specs
        if not fits(spec)
    ]
    if not faults:
        return
    name = deployment.pipeline.name
    remedies = []
    if any(spec.name not in observed for spec in specs):
        remedies.append(f"The task topics of {name}_deploy creates what does not exist.")
    others = [spec for spec in specs if not spec.owned]
    if others and any(spec.name in observed for spec in specs if not fits(spec)):
        remedies.append(explain_changed_counts(name, others))
    raise Refused(f"the topics of {name} are not as declared: {'; '.join(faults)}", remedy=" ".join(remedies))


def _plan_queries(spark: SparkSession, deployment: Deployment) -> tuple[list[Query], dict[str, Serde]]:
    """Plan every query, in flow order.

    Returns:
        The queries, and the serdes of the repartition topics.

    Raises:
        Refused: The declaration has faults; the error names every fault that Spark finds.
    """
    queries: list[Query] = []
    schemas: dict[str, Serde] = {}
    try:
        for subtopology in in_flow_order(deployment.pipeline.topology):
            queries.append(plan_query(spark, deployment, subtopology, schemas))
            schemas |= queries[-1].schemas
    except (PySparkException, Refused):
        resolve_schemas(spark, deployment.pipeline)  # raises all faults, with their lines in the declaration
        raise
    return queries, schemas


def _prepare_serdes(pipeline: Pipeline) -> None:
    """Make sure that values can be read, and that what is written can be read by others.

    Before the tasks are claimed: an aggregator that can do neither must not fence one that can.
    """
    for node in pipeline.topology.processors.nodes:
        match node:
            case Source(value=serde) if serde is not None:
                serde.prepare_to_read()
            case Sink(value=serde) if serde is not None:
                serde.prepare_to_write()


def _claim(
    spark: SparkSession, deployment: Deployment, ownership: TaskOwnership, report: Callable[[str], None]
) -> ClaimedTasks:
    """Claim all stream tasks."""
    pipeline, checkpoints = deployment.pipeline, checkpoints_of(spark, deployment)
    has_checkpoint: dict[int, bool] = {}
    for subtopology in pipeline.topology.subtopologies:
        found = checkpoints.find(subtopology.id)
        has_checkpoint[subtopology.id] = found is not None and found.has_read(pipeline.source_topics(subtopology))
    claimed = ownership.claim(has_checkpoint)
    report(f"{pipeline.topology.application_id}: {claimed.generation}")
    return claimed


def _start(spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
    """Start a query whose first stages are interpreted: a cold JVM would take long to compile them.

    From the first micro-batch on the query decides by itself.
    """
    before = spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    generate_code(spark, False)
    try:
        return writer.start()
    finally:
        generate_code(spark, before)


def _await_written(deployment: Deployment, subtopology: Subtopology, report: Callable[[str], None]) -> None:
    """Wait until what the sub-topologies before this one have written is in its topics: its query reads no further.

    The brokers confirm a transaction before its markers are in all partitions.
    """
    pipeline = deployment.pipeline
    topics = pipeline.written_topics & {*pipeline.source_topics(subtopology)}
    seconds = deployment.transaction_timeout_ms / 1000 + _MARKERS_SECONDS
    if left := await_transactions(KafkaCluster(deployment.brokers), topics, seconds):
        listed = ", ".join(f"{topic} ({count:,} offsets)" for topic, count in sorted(left.items()))
        report(f"warning: transactions are still open after {seconds:g} s. What they hold is not read: {listed}")


def _drain(
    running: list[_RunningQuery],
    deployment: Deployment,
    stop: threading.Event,
    progress: Progress,
    ownership: TaskOwnership,
    holds: _Holds,
    executors: Executors,
    report: Callable[[str], None],
) -> None:
    """End each query when it has processed what the others have written for it. So nothing is on its way afterwards."""
    pipeline, cluster = deployment.pipeline, KafkaCluster(deployment.brokers)
    application_id = pipeline.topology.application_id
    report(f"{application_id} is asked to end: it processes what is in its repartition topics")
    internal = {spec.name for spec in pipeline.internal_topics()}
    deadline = time.monotonic() + DRAIN_SECONDS
    for number, started in enumerate([*running]):
        topics = internal & {*pipeline.source_topics(started.planned.reads)}

        def is_processed(topics: Collection[str] = topics) -> bool:
            positions = {topic: cluster.positions(application_id, topic) for topic in topics}
            return not unprocessed(cluster, positions) or time.monotonic() > deadline

        remaining = running[number:]
        _watch(remaining, stop, progress, ownership, holds, executors, until=is_processed)
        running[number:] = remaining
        if isinstance(started.planned, LinkedQuery) and progress.pacing is not None:
            # What the first one writes is on its way until the second has committed, too.
            progress.pacing.let_end(started.planned.reads.id, max(0.0, deadline - time.monotonic()))
        running[number].query.stop()
        # What its workers have not committed by now is not committed any more.
        done = started.planned.subtopologies
        tasks = [TaskId(each.id, partition) for each in done for partition in range(pipeline.partitions(each))]
        fence(deployment.brokers, application_id, tasks)
    late = time.monotonic() > deadline
    ended = f"after {DRAIN_SECONDS:.0f} s, before everything was processed" if late else "as it was asked to"
    report(f"{application_id} has ended {ended}")


def _watch(
    running: list[_RunningQuery],
    stop: threading.Event,
    progress: Progress,
    ownership: TaskOwnership,
    holds: _Holds,
    executors: Executors,
    *,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Return when every query has ended, ``stop`` is set, or ``until`` says so.

    Raise when a query fails, a newer aggregator comes or the cluster gives no executor. A query whose worker died each
    time at a record goes on without the rest of its partition; ``running`` has the query that was started for it.
    """
    while not stop.is_set():
        active = [started for started in running if started.query.isActive]
        for number, started in enumerate([*running]):
            error = None if started.query.isActive else started.query.exception()
            if error is not None:
                # The queries of an aggregator that is superseded fail in many ways.
                ownership.await_claim()
                ownership.require_latest(now=True)
                failure = _query_error(started, error)
                records = noted_in(str(error)) if _WORKER_DIED in str(error) else None
                if records is None:
                    raise failure
                running[number] = started = holds.go_on(started, records, failure)
                active.append(started)
            progress.record_query([each.id for each in started.planned.subtopologies], started.query)
        progress.heartbeat.beat()
        if not active:
            return
        ownership.require_latest()
        holds.require_time_left()
        executors.require_some()
        if until():
            return
        stop.wait(_WATCH_SECONDS)


def _query_error(failed: _RunningQuery, error: StreamingQueryException) -> StreamplanError:
    """Return the error of a failed query. A checkpoint with an unreadable state is set aside."""
    text = str(error)
    for told in _TOLD:
        # So Spark's text of a failed task begins the message of an error that was raised in it.
        begins = f"{told.__module__}.{told.__qualname__}: "
        if begins in text:
            return told(text[text.index(begins) + len(begins) :].splitlines()[0])
    if malformed := [line for line in text.splitlines() if _UNREADABLE_TIMESTAMP in line]:
        return Refused(
            f"query {failed.query.name}: Spark's source cannot read the timestamp of a record",
            expected="ms since the epoch, up to the year 294247",
            observed=malformed[0][malformed[0].index("Record at") :],
            remedy="What follows it in its partition cannot be processed. Delete the topic's records up to it and "
            "reset the application. To keep such records out, leave message.timestamp.after.max.ms of the topic at the "
            "default of brokers from 4.0.",
        )
    if _WORKER_DIED in text and (records := noted_in(text)) is not None:
        return _worker_error(failed.query.name, records)
    unreadable = [line for line in text.splitlines() if any(name in line for name in _UNREADABLE_STATE)]
    if unreadable:
        aside = failed.checkpoint.set_aside()
        return StreamplanError(
            f"query {failed.query.name}: the state in its checkpoint cannot be read",
            observed=unreadable[0],
            remedy=f"It was moved to {aside}. The next start builds the state from the changelog topics.",
        )
    return StreamplanError(f"query {failed.query.name} ended", observed=text)


def _worker_error(query: str, records: NotedRecords) -> StreamplanError:
    """Return the error of a query whose Python worker died at these records, each time that Spark tried it."""
    at = f"{records.topic}-{records.partition}"
    one = records.first == records.last
    place = f"{at} offset {records.first}" if one else f"{at}, between the offsets {records.first} and {records.last}"
    first = f"{at}@{records.first}"
    record = first if one else f"{at}@<offset>"
    return StreamplanError(
        f"query {query}: a Python worker died each time at a record of {place}",
        observed="a crash of native code, or a kill for want of memory. "
        "Nothing of this partition from there on is committed",
        remedy=f"Correct what processes the record, or give the worker more memory. To go on without the record, set "
        f"{VARIABLE}={record} where the aggregator and the checks run, and start it again: the record goes to the "
        "dead-letter topic without being processed (docs/recovery.md).",
    )
