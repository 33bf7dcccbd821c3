"""Which query a checkpoint belongs to, and what the stores in it hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from streamplan.model.operations import stored_by
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages import stage_of
from streamplan.model.start_point import STORE
from streamplan.model.topics import STRING_KEYS


def checkpoint_identity(pipeline: Pipeline, subtopology: Subtopology, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the identity that a checkpoint of the sub-topology carries.

    It names the topics with their ids, so that a checkpoint of a topic that was deleted and made again does not fit.

    Args:
        subtopology: One of its sub-topologies.
        topic_ids: The ids of the topics that the sub-topology reads.
    """
    stores = {node.store: store_content(subtopology, node) for node in subtopology.processors if node.writes_store}
    return {
        "application": pipeline.topology.application_id,
        "sub-topology": str(subtopology.id),
        "topics": ", ".join(
            f"{topic} ({pipeline.partition_counts[topic]} partitions, {topic_ids[topic]})"
            for topic in pipeline.source_topics(subtopology)
        ),
        **stage_of(subtopology).identity,
        **{f"{STORE}{store}": content for store, content in stores.items()},
    }


def store_content(subtopology: Subtopology, node: Processor) -> str:
    """Return what a store holds: its operation, and the serde of its keys where they are no text.

    Args:
        subtopology: That the processor belongs to.
        node: A processor that writes a store.
    """
    serde = subtopology.key_serde_of(node.name)
    operation = every_field(stored_by(node.operation))
    return operation if serde.key_type == STRING_KEYS else f"{operation} with keys of {serde.name}"


def every_field(operation: Any) -> str:
    """The text of an operation or of a serde. The ``repr`` of a serde is for people, and leaves out its defaults."""
    if not hasattr(operation, "decode") and not operation.__dataclass_params__.repr:
        return repr(operation)  # its text is made for checkpoints
    parts = {each.name: getattr(operation, each.name) for each in fields(operation) if each.repr}
    told = (f"{name}={every_field(part) if hasattr(part, 'decode') else repr(part)}" for name, part in parts.items())
    return f"{type(operation).__qualname__}({', '.join(told)})"
