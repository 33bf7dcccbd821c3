"""Which query a checkpoint belongs to, and what the stores in it hold."""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology
from streamplan.model.start_point import STORE


def checkpoint_identity(pipeline: Pipeline, subtopology: Subtopology, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the identity that a checkpoint of the sub-topology carries.

    It names the topics with their ids, so that a checkpoint of a topic that was deleted and made again does not fit.

    Args:
        pipeline: The pipeline.
        subtopology: One of its sub-topologies.
        topic_ids: The ids of the topics that the sub-topology reads.
    """
    stores = {node.store: node.operation for node in subtopology.processors if node.writes_store}
    return {
        "application": pipeline.topology.application_id,
        "sub-topology": str(subtopology.id),
        "topics": ", ".join(
            f"{topic} ({pipeline.partition_counts[topic]} partitions, {topic_ids[topic]})"
            for topic in pipeline.source_topics(subtopology)
        ),
        **{f"{STORE}{store}": str(operation) for store, operation in stores.items()},
    }
