"""Where a pipeline runs, and how much of its input it processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamplan.kafka.brokers import Brokers
from streamplan.kafka_types import TopicPartition
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology
from streamplan.model.stages import stage_of
from streamplan.model.start_point import OffsetMap
from streamplan.spark.noted_records import NotedRecords

_SORTED = 50_000
"""At most this many records of a stream task are sorted in Python, at some 3 kB a record.

These are the records of joins of two streams, sessions, final results and Python classes.
"""


@dataclass(frozen=True)
class Deployment:
    """Where a pipeline runs.

    ``max_offsets``  the most records of one micro-batch; None leaves it to :meth:`micro_batch`
    ``transaction_timeout_ms``  the brokers abort a transaction that nobody has ended for so long
    ``until``  by topic and partition the first offset that is not processed; other partitions have no such limit. None
               where the application does not stand beside another one
    ``held``   by topic and partition the first offset that is not processed in this run, because each worker died there
    ``narrowed``  the records that are processed one by one, to find the one at which the workers die
    """

    pipeline: Pipeline
    brokers: Brokers
    checkpoints: str
    max_offsets: int | None = None
    transaction_timeout_ms: int = 60_000
    until: OffsetMap | None = None
    held: OffsetMap = field(default_factory=dict)
    narrowed: NotedRecords | None = None

    def micro_batch(self, subtopology: Subtopology) -> int:
        """Return how many records one of its micro-batches has at most. A record counts once for each window it is in.

        A stream task costs the same in each micro-batch, however little it has to do (a Spark task in each stage, a
        transaction, its part of the state), so that more of them want more records.
        """
        if self.max_offsets:
            return self.max_offsets
        partitions = self.pipeline.partitions(subtopology)
        stage = stage_of(subtopology)
        records = _SORTED * partitions if stage.sorts_in_python else max(500_000, 100_000 * partitions)
        return max(partitions, records // stage.overlap)

    @property
    def limits(self) -> OffsetMap:
        """By topic and partition the first offset that is not processed: the lower of ``until`` and ``held``."""
        until = self.until or {}
        return {**until, **{place: min(end, until.get(place, end)) for place, end in self.held.items()}}

    def within(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, int]]:
        """Return what a micro-batch with these ranges of offsets processes: of each the part below its limit."""
        ends = {place: min(end, self.limits.get(place, end)) for place, (_, end) in ranges.items()}
        return {place: (first, ends[place]) for place, (first, _) in ranges.items() if first < ends[place]}

    @property
    def source_partitions(self) -> int:
        """The number of partitions that all queries together read."""
        pipeline = self.pipeline
        return sum(
            pipeline.partition_counts[topic]
            for subtopology in pipeline.topology.subtopologies
            for topic in pipeline.source_topics(subtopology)
        )
