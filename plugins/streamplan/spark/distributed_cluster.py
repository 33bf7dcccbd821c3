"""A cluster whose records are read by Spark's executors: the checks as they are, for topics beyond one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import SparkSession

from streamplan.checks.framework.cluster import RecordBatch, Result
from streamplan.kafka import parallel_read as shares
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster

SHARE = 5_000_000
"""Offsets that one task of Spark reads: some ten seconds."""


class DistributedCluster(KafkaCluster):
    """Each share of a :meth:`map_batches` is a task of Spark, which reads it from Kafka by itself."""

    def __init__(self, spark: SparkSession, brokers: Brokers) -> None:
        super().__init__(brokers)
        self._context = spark.sparkContext

    def map_batches(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        offsets = sum(max(last - first, 0) for first, last in ranges.values())
        count = max(self._context.defaultParallelism, -(-offsets // SHARE))
        divided = [share for share in shares.divide(ranges, count) if share]
        brokers, deadline = self._brokers, self.deadline_seconds

        def read(share: Mapping[int, tuple[int, int]]) -> Result:
            return function(KafkaCluster(brokers, deadline_seconds=deadline).read(topic, share))

        yield from self._context.parallelize(divided, max(len(divided), 1)).map(read).toLocalIterator(True)
