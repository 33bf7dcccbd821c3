"""The metrics of an application, made from its snapshot. The exporter gives them to Prometheus and to OpenTelemetry.

A metric that OpenTelemetry's receiver of Kafka metrics has, too, has its name: ``kafka.consumer_group.lag``. Units are
those of UCUM, as OpenTelemetry has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from streamplan.checks.framework.check import Outcome
from streamplan.model.status import AggregatorState, AggregatorStatus
from streamplan.observability.snapshot import Snapshot


@dataclass(frozen=True)
class Metric:
    """A metric, which has one value for each set of attributes.

    Attributes:
        name: The name with dots, as OpenTelemetry has it.
        unit: ``s``, ``By``, or a word in braces for what is counted.
        description: One sentence.
    """

    name: str
    unit: str
    description: str


@dataclass(frozen=True)
class Measurement:
    """One value of a metric.

    Attributes:
        metric: The metric.
        value: In the metric's unit.
        attributes: What the value belongs to.
    """

    metric: Metric
    value: float
    attributes: Mapping[str, str]


BROKEN = Metric("streamplan.pipeline.broken", "{pipeline}", "1 for what is registered and cannot be used.")
ANSWERING = Metric("streamplan.brokers.answering", "{broker}", "1 if the brokers answered the last questions, else 0.")
MEMBERS = Metric("kafka.consumer_group.members", "{member}", "Members of the application's consumer group.")
OFFSET = Metric("kafka.consumer_group.offset", "{offset}", "Committed offset of a partition that a stream task reads.")
LAG = Metric("kafka.consumer_group.lag", "{offset}", "Offsets between the committed offset and the last stable one.")
LAG_TIME = Metric("streamplan.task.lag.time", "s", "Age of the oldest record that a stream task has not processed.")
TOPIC_OFFSETS = Metric("streamplan.topic.offsets", "{offset}", "Offsets from the start of a topic to its stable end.")
TOPIC_END = Metric("streamplan.topic.end", "{offset}", "Sum of the last stable offsets of a topic's partitions.")
DEAD_LETTERS = Metric("streamplan.dead_letters", "{record}", "Dead letters that the exporter has read, by reason.")
OUTCOME = Metric("streamplan.check.outcome", "{outcome}", "1 for the outcome of the last run of a check, 0 for others.")
CHECK_TIME = Metric("streamplan.check.time", "s", "When the last run of a check began, in seconds since the epoch.")
VERIFIED = Metric("streamplan.verified.records", "{record}", "Records up to the last cut whose totals were verified.")

STATE = Metric("streamplan.aggregator.state", "{state}", "1 for the state that the aggregator last said, 0 for others.")
STARTED = Metric("streamplan.aggregator.start.time", "s", "When the aggregator started, in seconds since the epoch.")
HEARTBEAT = Metric(
    "streamplan.aggregator.heartbeat.time", "s", "When it last said its state, in seconds since the epoch."
)
DURATION = Metric("streamplan.micro_batch.duration", "s", "How long the last micro-batch with records lasted.")
WRITE_DURATION = Metric("streamplan.micro_batch.write.duration", "s", "How long its job and its transactions lasted.")
BATCH_RECORDS = Metric("streamplan.micro_batch.records", "{record}", "Records that the last micro-batch read.")
STATE_ROWS = Metric("streamplan.state.rows", "{row}", "Rows in the state stores of a sub-topology.")
STATE_MEMORY = Metric("streamplan.state.memory", "By", "Memory that the state stores of a sub-topology use.")
RESTORED = Metric("streamplan.restore.offsets", "{offset}", "Changelog offsets that a restoration has read.")
TO_RESTORE = Metric("streamplan.restore.total", "{offset}", "Changelog offsets that a restoration has to read.")
WRITTEN = Metric("streamplan.records.written", "{record}", "Records written since the aggregator started.")
DEAD_LETTERED = Metric("streamplan.records.dead_lettered", "{record}", "Records dead-lettered since it started.")
HELD = Metric("streamplan.partitions.held", "{partition}", "Partitions held back at a record at which workers died.")

AGGREGATOR_METRICS = (
    STATE,
    STARTED,
    HEARTBEAT,
    DURATION,
    WRITE_DURATION,
    BATCH_RECORDS,
    STATE_ROWS,
    STATE_MEMORY,
    RESTORED,
    TO_RESTORE,
    WRITTEN,
    DEAD_LETTERED,
    HELD,
)
"""What an aggregator knows of itself."""

METRICS = (
    BROKEN,
    ANSWERING,
    MEMBERS,
    OFFSET,
    LAG,
    LAG_TIME,
    TOPIC_OFFSETS,
    TOPIC_END,
    DEAD_LETTERS,
    OUTCOME,
    CHECK_TIME,
    VERIFIED,
    *AGGREGATOR_METRICS,
)


def measure(snapshot: Snapshot) -> Iterator[Measurement]:
    """Yield the values of all metrics that a snapshot has. What is not known has no value."""
    group = {"group": snapshot.application_id}
    pipeline = {"pipeline": snapshot.pipeline}
    yield Measurement(ANSWERING, 0 if snapshot.problem else 1, pipeline)
    if snapshot.members is not None and not snapshot.problem:
        yield Measurement(MEMBERS, len(snapshot.members), group)
    for task in snapshot.tasks:
        for each in task.inputs:
            attributes = {**group, "topic": each.topic, "partition": str(each.partition)}
            if each.position is not None and each.lag is not None:
                yield Measurement(OFFSET, each.position, attributes)
                yield Measurement(LAG, each.lag, attributes)
        if task.lag_seconds is not None:
            yield Measurement(LAG_TIME, task.lag_seconds, {**pipeline, "task": task.task})
    for topic in snapshot.topics:
        if topic.partitions is not None:
            attributes = {**pipeline, "topic": topic.name, "role": topic.role}
            yield Measurement(TOPIC_OFFSETS, topic.offsets, attributes)
            yield Measurement(TOPIC_END, topic.end, attributes)
    for reason, records in snapshot.dead_letters.items():
        yield Measurement(DEAD_LETTERS, records, {**pipeline, "reason": reason})
    for check in snapshot.checks:
        of_check = {**pipeline, "check": check.check}
        for outcome in Outcome:
            yield Measurement(OUTCOME, int(outcome is check.outcome), {**of_check, "outcome": outcome.value})
        yield Measurement(CHECK_TIME, datetime.fromisoformat(check.at).timestamp(), of_check)
    if snapshot.verified is not None:
        yield Measurement(VERIFIED, snapshot.verified.records, pipeline)
    if snapshot.aggregator is not None:
        yield from measure_aggregator(snapshot.pipeline, snapshot.aggregator)


def measure_aggregator(pipeline: str, status: AggregatorStatus) -> Iterator[Measurement]:
    """Yield the values of :data:`AGGREGATOR_METRICS`.

    Args:
        pipeline: The name of the pipeline.
        status: What the aggregator says of itself.
    """
    of_pipeline = {"pipeline": pipeline}
    for state in AggregatorState:
        yield Measurement(STATE, int(state is status.state), {**of_pipeline, "state": state.value})
    if status.started:
        yield Measurement(STARTED, datetime.fromisoformat(status.started).timestamp(), of_pipeline)
    yield Measurement(HEARTBEAT, datetime.fromisoformat(status.at).timestamp(), of_pipeline)
    yield Measurement(HELD, len(status.held), of_pipeline)
    for number, restoration in status.restorations.items():
        attributes = {**of_pipeline, "subtopology": str(number)}
        yield Measurement(RESTORED, restoration.offsets, attributes)
        yield Measurement(TO_RESTORE, restoration.total, attributes)
    for number, measures in status.measures.items():
        attributes = {**of_pipeline, "subtopology": str(number)}
        yield Measurement(DURATION, measures.seconds, attributes)
        yield Measurement(WRITE_DURATION, measures.write_seconds, attributes)
        yield Measurement(BATCH_RECORDS, measures.records, attributes)
        yield Measurement(STATE_ROWS, measures.state_rows, attributes)
        yield Measurement(STATE_MEMORY, measures.state_bytes, attributes)
        yield Measurement(WRITTEN, measures.written, attributes)
        yield Measurement(DEAD_LETTERED, measures.dead_lettered, attributes)
