"""Reads what the state store of a query holds, with Spark's data source for state."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamplan.errors import StreamplanError
from streamplan.files import write_atomically
from streamplan.model.pipeline import Pipeline
from streamplan.spark.state.checkpoint import Checkpoints
from streamplan.spark.state.checkpoint_name import checkpoints_location


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


def read_state_stores(spark: SparkSession, pipeline: Pipeline, checkpoints: str) -> StoreContent:
    """Return the content of the pipeline's state store after the last finished micro-batch. The query may run.

    Args:
        spark: Any session.
        pipeline: A pipeline with one sub-topology that has state.
        checkpoints: The directory of all checkpoints, a path or a URI.

    Raises:
        StreamplanError: No micro-batch has finished yet.
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
        positions={str(partition): end for (_, partition), end in checkpoint.end_offsets(batch, topics).items()},
        totals={row["key"]: row["total"] for row in rows},
    )
