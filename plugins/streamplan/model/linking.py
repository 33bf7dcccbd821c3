"""Which sub-topologies one query can do together, so that the second does not read back what the first has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from streamplan.model.checkpoint_identity import every_field
from streamplan.model.operations import Count, KeySelect, NullKeyFilter
from streamplan.model.processor_topology import Processor, Source, Subtopology
from streamplan.model.stages import stage_of
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.start_point import KafkaState
from streamplan.model.topics import STRING_KEYS
from streamplan.model.topology import Topology


@dataclass(frozen=True)
class Link:
    """Two sub-topologies: the second reads nothing but a repartition topic that only the first one writes.

    Attributes:
        writer: The first one, which only gives records another key.
        reader: The second one, which counts the records of each key.
    """

    writer: Subtopology
    reader: Subtopology

    @property
    def counts(self) -> tuple[Processor, ...]:
        """The processors of the reader that count."""
        return stage_of(self.reader).nodes

    def identity(self, writer: Mapping[str, str], reader: Mapping[str, str]) -> dict[str, str]:
        """Return the identity that a checkpoint of both carries.

        Args:
            writer: That of a checkpoint of the first one alone (:func:`.checkpoint_identity`).
            reader: That of a checkpoint of the second one alone.
        """
        found = re_keying(self.writer)
        assert found is not None
        source, key = found
        return {
            **reader,
            "reads": writer["topics"],
            "re-keys": f"{every_field(source.value)} by {key}" if source.value is not None else key,
            LINKED: f"sub-topologies {self.writer.id} and {self.reader.id}",
        }


LINKED = "linked"
"""The part of an identity that a checkpoint of two linked sub-topologies has, and no other one."""


def linked_state(writer: KafkaState, reader: KafkaState) -> KafkaState:
    """Return what Kafka has of two linked sub-topologies, as the start of their query needs it.

    Args:
        writer: Of the first one.
        reader: Of the second one.
    """
    return replace(
        writer,
        changelog_offsets=reader.changelog_offsets,
        checkpoint=reader.checkpoint if reader.checkpoint == writer.checkpoint else "",
        batches={**writer.batches, **reader.batches},
    )


def links_of(topology: Topology) -> tuple[Link, ...]:
    """Return the sub-topologies that can be linked. Each is in one link at most."""
    return tuple(_links(topology))


def _links(topology: Topology) -> Iterator[Link]:
    for reader in topology.subtopologies:
        if not _counts_records(reader):
            continue
        (source,) = reader.sources
        writers = [each for each in topology.subtopologies if source.topic in each.sink_topics]
        if len(writers) != 1:
            continue
        (writer,) = writers
        if re_keying(writer) is not None and writer.sinks[0].internal:
            yield Link(writer, reader)


def re_keying(subtopology: Subtopology) -> tuple[Source, str] | None:
    """Return what a sub-topology reads, and the expression that it makes the key; None where it does anything else."""
    match subtopology.sources, subtopology.operations, subtopology.sinks:
        case (
            (Source(timestamp=None) as source,),
            (KeySelect(key=key) as selected, NullKeyFilter(relaxed=False)),
            (_,),
        ):
            if source.key_serde.key_type == selected.key_serde.key_type == STRING_KEYS:
                return source, key
    return None


def _counts_records(reader: Subtopology) -> bool:
    """Whether all that a sub-topology does with the records of one repartition topic is to count them by their keys."""
    if len(reader.sources) != 1:
        return False
    stage = stage_of(reader)
    if type(stage) is not AggregateStage or len(stage.nodes) != 1 or stage.passes_updates_in_order:
        return False
    (node,), (source,) = stage.nodes, reader.sources
    takers = [name for name, before_it in reader.predecessors.items() if source.name in before_it]
    counts_all = isinstance(node.operation, Count) and node.operation.window is None
    return counts_all and takers == [node.name] and source.key_serde.key_type == STRING_KEYS
