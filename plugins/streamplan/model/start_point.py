"""Where a query of an aggregator begins: where its checkpoint ends, or at what is in Kafka.

Output records and positions are committed to Kafka together, so Kafka holds one consistent history. A checkpoint is a
copy of a part of that history, which saves reading the changelog topics again. It is used when it agrees with Kafka,
replaced when it is of no use, and refused when either choice could lose or double records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from streamplan.errors import Refused
from streamplan.kafka_types import TopicPartition

OffsetMap: TypeAlias = Mapping[TopicPartition, int]
"""For each topic and partition, the offset that is read next."""


class StartFrom(StrEnum):
    """Where a query takes its first offsets and its state from.

    ``POSITIONS``: the group's committed positions, without state. ``RESTORE``: the committed positions, with the state
    from the changelog topics. ``CHECKPOINT``: the end of the checkpoint.
    """

    POSITIONS = "positions"
    RESTORE = "restore"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint says.

    Attributes:
        identity: Which query it belongs to.
        committed: End offsets of the last micro-batch that was finished; None before the first micro-batch.
        planned: End offsets of the last micro-batch that was begun; None before the first micro-batch.
        batch: Number of the last micro-batch that was begun; -1 before the first micro-batch.
        corruption: Why the checkpoint cannot be read; empty when it can. If set, the other fields mean nothing.
    """

    identity: Mapping[str, str] = field(default_factory=dict)
    committed: OffsetMap | None = None
    planned: OffsetMap | None = None
    batch: int = -1
    corruption: str = ""


@dataclass(frozen=True)
class KafkaState:
    """What Kafka has of a sub-topology.

    Attributes:
        positions: Committed positions of the group. They are final: no other aggregator can move them.
        log_starts: The first offsets that the source topics still hold.
        changelog_offsets: The number of offsets that the changelog topics were ever given; 0 without state.
        checkpoint: Id of the checkpoint that the positions name; empty where they name none.
        batches: For each partition the micro-batch of that checkpoint which moved its position last.
        starts: The offsets at which the application began to read.
        times: For each partition the time in ms that the wall clock has given to its stream task last.
    """

    positions: OffsetMap
    log_starts: OffsetMap
    changelog_offsets: int
    checkpoint: str = ""
    batches: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: OffsetMap = field(default_factory=dict)
    times: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def task_times(self) -> Mapping[int, int]:
        """The same times by the partition of the stream task."""
        return task_times(self.times)


def task_times(times: Mapping[TopicPartition, int]) -> dict[int, int]:
    """Return by the partition of the stream task the newest of the times that are committed with its positions."""
    by_task: dict[int, int] = {}
    for (_, partition), time in times.items():
        by_task[partition] = max(time, by_task.get(partition, time))
    return by_task


@dataclass(frozen=True)
class StartDecision:
    """Where a query begins, and why.

    Attributes:
        start: Where it begins.
        reason: Why the checkpoint is not used; empty for a new application, and when it is used.
    """

    start: StartFrom
    reason: str = ""


STORE = "store "
"""The parts of an identity that begin so say what a store holds, and so its changelog topic."""


def resolve_start(
    query: str,
    checkpoint: CheckpointState | None,
    identity: Mapping[str, str],
    kafka: KafkaState,
    *,
    aggregates: bool,
    repeats: bool = True,
) -> StartDecision:
    """Decide where a query begins.

    Args:
        query: The query as errors name it, such as ``sub-topology 1``.
        checkpoint: What the checkpoint says that Kafka names; None where it is not complete, or nothing is named.
        identity: The identity that a checkpoint of this query has.
        kafka: What Kafka has of the query's sub-topology.
        aggregates: Whether the query aggregates. It then cannot begin within a micro-batch, as others can: what they
            write was made of single records, and of those that are committed nothing is written again.
        repeats: Whether a micro-batch that runs again leaves the same state. If it does not, and a part of it is
            committed, the state is restored.

    Raises:
        Refused: Records were deleted before they were read, the checkpoint is ahead of the committed positions, or the
            state stores are not those of the checkpoint.
    """
    _refuse_lost_records(query, kafka)
    from_kafka = StartFrom.RESTORE if kafka.changelog_offsets else StartFrom.POSITIONS
    if checkpoint is None:
        if kafka.checkpoint:
            return StartDecision(from_kafka, f"it has no complete checkpoint {kafka.checkpoint}")
        return StartDecision(from_kafka, "Kafka names no checkpoint" if kafka.changelog_offsets else "")
    if checkpoint.corruption:
        return StartDecision(from_kafka, f"its checkpoint is damaged: {checkpoint.corruption}")
    if other := _another(query, checkpoint.identity, identity):
        return StartDecision(from_kafka, f"its checkpoint belongs to another query: {other}")
    if checkpoint.planned is None:
        return StartDecision(from_kafka, "its checkpoint has no micro-batch" if kafka.changelog_offsets else "")
    processed = checkpoint.committed or {}
    _refuse_checkpoint_ahead(query, processed, kafka)
    if not kafka.changelog_offsets and _is_behind(checkpoint.planned, kafka):
        # It has no state. The driver of an earlier version has re-keyed more records than Spark knew of.
        return StartDecision(StartFrom.POSITIONS)
    for reason in _misfits(
        checkpoint.batch, processed, checkpoint.planned, kafka, aggregates=aggregates, repeats=repeats
    ):
        return StartDecision(from_kafka, f"its checkpoint does not fit: {reason}")
    return StartDecision(StartFrom.CHECKPOINT)


def _another(query: str, found: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Return in what a checkpoint is another's, from which nothing follows for this query; empty when it is its own.

    With other topics it is that of another sub-topology. Its stores may then have other names. A store of the same name
    must hold the same, for its changelog topic has that name, too.
    """
    stores = {name for name in (*found, *own) if name.startswith(STORE)}
    _refuse_other_stores(query, found, own, sorted(stores & found.keys() & own.keys()))
    for name in {**own, **found}:
        expected, observed = own.get(name, "none"), found.get(name, "none")
        if name not in stores and observed != expected:
            return f"{name} is {observed}, and not {expected}"
    _refuse_other_stores(query, found, own, sorted(stores))
    return ""


def _refuse_other_stores(query: str, found: Mapping[str, str], own: Mapping[str, str], names: Sequence[str]) -> None:
    for name in names:
        if found.get(name) != own.get(name):
            raise Refused(
                f"{query}: {name} is not that of its checkpoint",
                expected=own.get(name, "none"),
                observed=found.get(name, "none"),
                remedy="What a changelog holds cannot be read as something else. Reset the application: it then begins "
                "at the start of its input. Or give the changed operation another store= behind a repartition topic of "
                "another name: it then begins empty, with the records that come.",
            )


def _refuse_lost_records(query: str, kafka: KafkaState) -> None:
    for (topic, partition), position in sorted(kafka.positions.items()):
        start = kafka.log_starts.get((topic, partition), 0)
        if position < start:
            raise Refused(
                f"{query}: records of {topic}-{partition} were deleted before they were read",
                expected=f"the record at position {position} of the group",
                observed=f"the topic begins at offset {start}",
                remedy="They are lost. To go on without them reset the application, or set the group's position there.",
            )


def _refuse_checkpoint_ahead(query: str, processed: OffsetMap, kafka: KafkaState) -> None:
    for (topic, partition), position in sorted(kafka.positions.items()):
        end = processed.get((topic, partition), 0)
        if position < end:
            raise Refused(
                f"{query}: its checkpoint is ahead of Kafka at {topic}-{partition}",
                expected=f"a position of at least {end}, which the checkpoint has processed",
                observed=f"position {position} of the group",
                remedy="Somebody set the group's positions back, or Kafka lost data: reset the application, or bring "
                "the positions back.",
            )


def _is_behind(planned: OffsetMap, kafka: KafkaState) -> bool:
    return any(position > planned.get(place, 0) for place, position in kafka.positions.items())


def _misfits(
    batch: int, processed: OffsetMap, planned: OffsetMap, kafka: KafkaState, *, aggregates: bool, repeats: bool
) -> Iterator[str]:
    """Yield the reasons why the checkpoint's next micro-batch could not be run, or run again."""
    for (topic, partition), position in sorted(kafka.positions.items()):
        first, until = processed.get((topic, partition), 0), planned.get((topic, partition), 0)
        where = f"{topic}-{partition}"
        if position > until:
            yield f"it is behind Kafka, for it ends at {until} of {where} and the group is at {position}"
        elif aggregates and first < position < until:
            yield f"the group is at {position} of {where}, within its micro-batch from {first} to {until}"
        elif not repeats and first < position:
            yield f"the group is at {position} of {where}, and its micro-batch from {first} may give other results now"
        start = kafka.log_starts.get((topic, partition), 0)
        if first < start and first < until:
            yield f"its unfinished micro-batch reads {where} from {first}, and the topic begins at {start} by now"
    newest = max(kafka.batches.values(), default=batch)
    if newest > batch:
        yield f"it is an old copy, for its last micro-batch is {batch} and Kafka has micro-batch {newest} of it"
