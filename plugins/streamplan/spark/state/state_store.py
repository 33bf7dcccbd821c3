"""Reads what the state store of a query holds, with Spark's data source for state."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamplan.errors import StreamplanError
from streamplan.files import write_atomically
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka_types import TopicPartition
from streamplan.model.generation import PositionMetadata
from streamplan.model.pipeline import Pipeline
from streamplan.spark.state.checkpoint import Checkpoint, Checkpoints
from streamplan.spark.state.checkpoint_name import checkpoints_location

_FINISH_SECONDS = 60.0
"""For so long a moment is waited for in which no micro-batch is being committed."""


@contextmanager
def _loadable(location: str) -> Iterator[str]:
    """Give a path under which Spark's data source for state finds the checkpoint.

    Spark encodes the path as a URI and does not decode it again. So where encoding would change the path, this is a
    temporary link to it.
    """
    if "://" in location or quote(location) == location:
        yield location
        return
    with tempfile.TemporaryDirectory(prefix="streamplan-") as directory:
        link = Path(directory) / "checkpoint"
        link.symlink_to(location)
        yield str(link)


@dataclass(frozen=True)
class StoreContent:
    """The totals in a state store after one micro-batch.

    Attributes:
        batch: Number of the micro-batch.
        positions: For each partition (as text) of the repartition topic, the offset that is read next.
        totals: For each key (as text) its count.
    """

    batch: int
    positions: Mapping[str, int]
    totals: Mapping[str, int]

    def write(self, path: Path) -> None:
        """Write the content as JSON, atomically. ``reports/results.py`` reads it."""
        write_atomically(path, json.dumps(asdict(self), indent=1))


def read_state_stores(spark: SparkSession, pipeline: Pipeline, checkpoints: str, brokers: Brokers) -> StoreContent:
    """Return the content of the pipeline's state store after the last finished micro-batch. The query may run.

    Args:
        spark: Any session.
        pipeline: A pipeline with one sub-topology that has state.
        checkpoints: The directory of all checkpoints, a path or a URI.
        brokers: They have the positions of a sub-topology that is linked with the one before it.

    Raises:
        StreamplanError: No micro-batch has finished yet, or none for which the positions are known.
    """
    (subtopology,) = (group for group in pipeline.topology.subtopologies if group.stores)
    topics = pipeline.source_topics(subtopology)
    location = checkpoints_location(checkpoints, pipeline.topology.application_id)
    checkpoint = Checkpoints(spark, location).find(subtopology.id)
    batch = None if checkpoint is None else checkpoint.last_committed()
    if checkpoint is None or batch is None:
        raise StreamplanError(
            f"the state store of sub-topology {subtopology.id} of {pipeline.name} in {location}",
            expected="a finished micro-batch",
            observed="none",
            remedy=f"Has {pipeline.name}_aggregator run?",
        )
    if checkpoint.has_read(topics):
        positions = checkpoint.end_offsets(batch, topics)
    else:
        batch, positions = _committed(checkpoint, pipeline.topology.application_id, topics, KafkaCluster(brokers))
    # The data source asks the state store coordinator. A session without a query of its own has one only after this.
    assert spark.streams.active is not None
    with _loadable(checkpoint.location) as loadable:
        rows = (
            spark.read.format("statestore")
            .option("batchId", batch)
            .load(loadable)
            .select("key.key", F.col("value.sum").alias("total"))
            .collect()
        )
    return StoreContent(
        batch=batch,
        positions={str(partition): end for (_, partition), end in positions.items()},
        totals={row["key"]: row["total"] for row in rows},
    )


def _committed(
    checkpoint: Checkpoint, application_id: str, topics: Sequence[str], cluster: KafkaCluster
) -> tuple[int, dict[TopicPartition, int]]:
    """Return a finished micro-batch of a linked sub-topology, and the positions that it has committed.

    Kafka only has those of the last micro-batch, which may not be finished when they are read.

    Raises:
        StreamplanError: A re-drive has written into the topics, so that the positions name no checkpoint until the next
            start; or each time another micro-batch was begun.
    """
    deadline = time.monotonic() + _FINISH_SECONDS
    while True:
        batch = checkpoint.last_committed()
        committed = cluster.committed_positions(application_id)
        found = {place: at for place, at in committed.items() if place[0] in topics}
        parsed = [PositionMetadata.parse(at.metadata) for at in found.values()]
        if any(each is not None and not each.checkpoint for each in parsed):
            raise StreamplanError(
                f"the positions of group {application_id} in {', '.join(topics)}",
                expected=f"that they name checkpoint {checkpoint.id}",
                observed="none: dead letters were processed again",
                remedy="Start the aggregator, which reads what they gave, and run this again.",
            )
        batches = [each.batch or 0 for each in parsed if each is not None and each.checkpoint == checkpoint.id]
        finished = batch is not None and all(each <= batch for each in batches) and len(batches) == len(found)
        if batch is not None and finished and batch == checkpoint.last_committed():
            return batch, {place: at.offset for place, at in found.items()}
        if time.monotonic() > deadline:
            raise StreamplanError(
                f"the positions of group {application_id} in {', '.join(topics)}",
                expected=f"those of micro-batch {batch} of checkpoint {checkpoint.id}",
                observed=f"those of {sorted({*batches})}",
                remedy="The aggregator has begun another micro-batch each time: run this again.",
            )
        time.sleep(0.02)
