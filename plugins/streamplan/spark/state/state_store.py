"""Reads what a query's state store holds, with Spark's state data source."""

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
from streamplan.model.pipeline import Pipeline
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.offset_log import checkpoint_location


@contextmanager
def _loadable(location: str) -> Iterator[str]:
    """The location, by a link where it is a path that a URI would encode: Spark's state source does not decode it."""
    if "://" in location or quote(location) == location:
        yield location
        return
    with tempfile.TemporaryDirectory(prefix="streamplan-") as directory:
        link = Path(directory) / "checkpoint"
        link.symlink_to(location)
        yield str(link)


@dataclass(frozen=True)
class StoreContent:
    """The totals of a state store as of one micro-batch.

    ``positions``  by partition (as text) the offset of the repartition topic that is read next in that state
    ``totals``     by key (as text) the count
    """

    batch: int
    positions: Mapping[str, int]
    totals: Mapping[str, int]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1))
        part.replace(path)


def read_state_stores(spark: SparkSession, pipeline: Pipeline, checkpoints: str) -> StoreContent:
    """The content of the pipeline's state store as of the last finished micro-batch, also while the query runs."""
    (subtopology,) = (group for group in pipeline.topology.subtopologies if group.stores)
    topics = pipeline.source_topics(subtopology)
    checkpoint = Checkpoint(spark, checkpoint_location(checkpoints, pipeline.topology.application_id, subtopology.id))
    batch = checkpoint.last_committed()
    if batch is None:
        raise StreamplanError(
            f"the state store of {pipeline.name} at {checkpoint.location}",
            expected="a finished micro-batch",
            observed="none",
            remedy=f"Has {pipeline.name}_aggregator run?",
        )
    # The source asks the state store coordinator, which a session without a query of its own has only after this.
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
