"""What the committed positions of an application mean when one of its aggregators starts.

Nothing is read, and nothing is written, before this is clear: a position that is not where the application left it
would lose records or process them twice.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamplan.errors import Refused
from streamplan.kafka_types import TopicPartition
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.start_point import OffsetMap

_NAMED = 8
"""The most partitions that an error names."""

_KAFKA_STREAMS_VERSIONS = (1, 2)
_KAFKA_STREAMS_BYTES = 1 + 8
"""The version, and the partition time as a long; from version 2 on, the metadata of processors follow."""

_KAFKA_STREAMS_TEXT = 12
"""The characters of these bytes in base64."""

_TAKEN_OVER = PositionMetadata(Generation(0, "Kafka Streams"))
"""What is known of a position that Kafka Streams committed: it names no checkpoint, and nobody knows where it began."""


@dataclass(frozen=True)
class CommittedPosition:
    """A position as the group has it.

    Attributes:
        offset: The offset that is read next.
        metadata: The text that was committed with it.
    """

    offset: int
    metadata: str

    @property
    def is_of_kafka_streams(self) -> bool:
        """Whether a JVM application committed it (``TopicPartitionMetadata`` of Kafka Streams).

        Its positions and changelog topics mean what ours do, so an aggregator goes on where it has stopped.
        """
        try:
            decoded = base64.b64decode(self.metadata[:_KAFKA_STREAMS_TEXT], validate=True)
        except (binascii.Error, ValueError):
            return False
        return len(decoded) == _KAFKA_STREAMS_BYTES and decoded[0] in _KAFKA_STREAMS_VERSIONS


@dataclass(frozen=True)
class Extent:
    """What a partition holds: its first offset, and the offset past its last record."""

    log_start: int
    end: int

    @property
    def is_empty(self) -> bool:
        """Whether it holds no offset."""
        return self.end <= self.log_start


@dataclass(frozen=True)
class SubtopologyInput:
    """What is known of a sub-topology before it starts.

    Attributes:
        id: Its number.
        extents: What each partition of its source topics holds.
        written: How many offsets the internal topics that it writes have ever been given.
        has_checkpoint: Whether there is any checkpoint of it.
        starts: Where a new application begins; partitions in which that is the first offset are left out.
    """

    id: int
    extents: Mapping[TopicPartition, Extent]
    written: int = 0
    has_checkpoint: bool = False
    starts: OffsetMap = field(default_factory=dict)


@dataclass(frozen=True)
class ResolvedPositions:
    """Where a sub-topology begins.

    Attributes:
        offsets: The next offset of each partition of its source topics.
        metadata: What the positions said; partitions of a new sub-topology are left out.
    """

    offsets: OffsetMap
    metadata: Mapping[TopicPartition, PositionMetadata] = field(default_factory=dict)

    def claimed(self, generation: Generation) -> Mapping[TopicPartition, PositionMetadata]:
        """Return the metadata with which a generation commits the same positions again."""
        return {
            partition: replace(metadata, generation=generation)
            if (metadata := self.metadata.get(partition)) is not None
            else PositionMetadata(generation, start=offset)
            for partition, offset in self.offsets.items()
        }


def latest_generation(positions: Iterable[CommittedPosition]) -> Generation | None:
    """Return the newest generation that committed one of the positions; None where no aggregator did."""
    known = [PositionMetadata.parse(position.metadata) for position in positions]
    generations = [metadata.generation for metadata in known if metadata is not None]
    return max(generations, key=lambda generation: generation.number, default=None)


def resolve_positions(
    application_id: str,
    subtopologies: Sequence[SubtopologyInput],
    committed: Mapping[TopicPartition, CommittedPosition],
) -> Mapping[int, ResolvedPositions]:
    """Decide where each sub-topology begins.

    A sub-topology is new when it has no position, no checkpoint, and nothing in the internal topics that it writes. It
    begins at ``starts``, else at the first offset of its source topics. That offset is committed with each position
    from then on, so that everybody knows from where it has counted.

    Positions of Kafka Streams are taken over. A JVM application commits a position only where it has read a record.

    Args:
        application_id: The application id, which names the consumer group.
        subtopologies: All sub-topologies of the application.
        committed: The positions of the group; partitions without one are left out.

    Returns:
        The positions of each sub-topology, by its id.

    Raises:
        Refused: A position is missing, was committed by another program, or lies outside of what its topic holds.
    """
    _refuse_foreign(application_id, subtopologies, committed)
    return {subtopology.id: _resolve(application_id, subtopology, committed) for subtopology in subtopologies}


def foreign_position_error(application_id: str, positions: Mapping[TopicPartition, CommittedPosition]) -> Refused:
    """Return the error of an aggregator that finds positions which no aggregator has committed.

    Args:
        application_id: The application id.
        positions: These positions.
    """
    return Refused(
        f"positions of group {application_id}",
        expected="only positions that an aggregator of this application committed",
        observed=_listed(
            f"{topic}-{partition} at {position.offset}, with the metadata {position.metadata!r}"
            for (topic, partition), position in sorted(positions.items())
        ),
        remedy="Another program committed them: an offset tool, or a consumer with this group id. To go on there would "
        f"lose records or process them twice: reset the application {application_id}.",
    )


def _refuse_foreign(
    application_id: str,
    subtopologies: Sequence[SubtopologyInput],
    committed: Mapping[TopicPartition, CommittedPosition],
) -> None:
    foreign = {
        partition: committed[partition]
        for subtopology in subtopologies
        for partition in subtopology.extents
        if partition in committed
        and PositionMetadata.parse(committed[partition].metadata) is None
        and not committed[partition].is_of_kafka_streams
    }
    if foreign:
        raise foreign_position_error(application_id, foreign)


def _resolve(
    application_id: str, subtopology: SubtopologyInput, committed: Mapping[TopicPartition, CommittedPosition]
) -> ResolvedPositions:
    positions = {partition: committed[partition] for partition in subtopology.extents if partition in committed}
    is_taken_over = any(position.is_of_kafka_streams for position in positions.values())
    unread = {
        partition: extent.log_start
        for partition, extent in subtopology.extents.items()
        if is_taken_over and partition not in positions and extent.is_empty
    }
    missing = sorted(subtopology.extents.keys() - positions.keys() - unread.keys())
    if not positions and not subtopology.has_checkpoint and not subtopology.written:
        return ResolvedPositions(
            {
                partition: subtopology.starts.get(partition, extent.log_start)
                for partition, extent in subtopology.extents.items()
            }
        )
    if missing:
        raise Refused(
            f"group {application_id} has no position for {_listed(f'{topic}-{number}' for topic, number in missing)}",
            expected="a position in each partition, because the application has run before",
            remedy="Let the Kafka Streams application read these partitions to their ends, and then stop it."
            if is_taken_over
            else "They were deleted or have expired (the brokers' offsets.retention.minutes), or the topic has more "
            "partitions than before: reset the application.",
        )
    beyond = {
        partition: position
        for partition, position in positions.items()
        if position.offset > subtopology.extents[partition].end
    }
    if beyond:
        raise Refused(
            f"sub-topology {subtopology.id}: positions beyond the end of their topics",
            expected=_listed(
                f"{topic}-{number} at {subtopology.extents[topic, number].end} at most" for topic, number in beyond
            ),
            observed=_listed(f"{topic}-{number} at {position.offset}" for (topic, number), position in beyond.items()),
            remedy="The brokers lost records that were processed, or the topic was made again. New records up to the "
            "positions would be skipped: reset the application.",
        )
    return ResolvedPositions(
        {partition: position.offset for partition, position in positions.items()} | unread,
        {
            partition: PositionMetadata.parse(position.metadata) or _TAKEN_OVER
            for partition, position in positions.items()
        },
    )


def _listed(items: Iterable[str]) -> str:
    listed = list(items)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
