"""A cluster whose records are read by Spark's executors, for checks of topics that are too large for one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.parallel_read import divide
from streamplan.kafka_port import RecordBatch, Result
from streamplan.kafka_types import OffsetRanges

OFFSETS_PER_TASK = 5_000_000
"""Offsets that one Spark task reads, at most: some ten seconds."""


class DistributedCluster(KafkaCluster):
    """A Kafka cluster of which Spark tasks read shares of a topic, each from Kafka by itself."""

    def __init__(self, spark: SparkSession, brokers: Brokers) -> None:
        """Connect to nothing yet.

        Args:
            spark: Its executors need our package and reach the brokers.
        """
        super().__init__(brokers)
        self._context = spark.sparkContext

    def map_batches(
        self, topic: str, ranges: OffsetRanges, function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        """Call ``function`` in Spark tasks, each with the records of its share. See the protocol ``Cluster``."""
        offsets = sum(max(last - first, 0) for first, last in ranges.values())
        tasks = max(self._context.defaultParallelism, -(-offsets // OFFSETS_PER_TASK))
        shares = [share for share in divide(ranges, tasks) if share]
        brokers, deadline = self._brokers, self.deadline_seconds  # a function that names self could not be pickled

        def read(share: OffsetRanges) -> Result:
            return function(KafkaCluster(brokers, deadline_seconds=deadline).read(topic, share))

        yield from self._context.parallelize(shares, max(len(shares), 1)).map(read).toLocalIterator(True)
