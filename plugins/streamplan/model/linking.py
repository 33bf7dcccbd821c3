"""Which sub-topologies one query can do together, so that the second does not read back what the first has written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from streamplan.model.checkpoint_identity import every_field
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    Aggregate,
    AggregateColumn,
    Count,
    Filter,
    FilterFunction,
    FilterNot,
    FilterNotFunction,
    FlatMap,
    FlatMapFunction,
    FlatMapValues,
    FlatMapValuesFunction,
    KeySelect,
    Map,
    MapFunction,
    MapValues,
    MapValuesFunction,
    NullKeyFilter,
    function_of,
)
from streamplan.model.processor_topology import Processor, Sink, Source, Subtopology
from streamplan.model.stages import stage_of
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.start_point import KafkaState
from streamplan.model.topics import STRING_KEYS
from streamplan.model.topology import Topology
from streamplan.model.windows import TimeWindows
from streamplan.serdes.serde import is_key_field


@dataclass(frozen=True)
class Link:
    """Two sub-topologies: the second reads nothing but a repartition topic that only the first one writes.

    Attributes:
        writer: The first one, which makes records of each record by itself.
        reader: The second one, which aggregates the records of each key.
    """

    writer: Subtopology
    reader: Subtopology

    @property
    def aggregate(self) -> Processor:
        """The processor of the reader that aggregates."""
        (node,) = stage_of(self.reader).nodes
        return node

    @property
    def repeats(self) -> bool:
        """Whether the first one surely makes the same records again when a micro-batch runs again after a start.

        The code of a Python function may be another by then.
        """
        return not functions_of(self.writer)

    def identity(self, writer: Mapping[str, str], reader: Mapping[str, str]) -> dict[str, str]:
        """Return the identity that a checkpoint of both carries.

        Args:
            writer: That of a checkpoint of the first one alone (:func:`.checkpoint_identity`).
            reader: That of a checkpoint of the second one alone.
        """
        (source,) = self.writer.sources
        assert source.value is not None
        found = re_keying(self.writer)
        made = found[1] if found is not None else ", ".join(map(every_field, self.writer.operations))
        return {
            **reader,
            "reads": writer["topics"],
            "re-keys": f"{every_field(source.value)} by {made}",
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


VARIABLE = "STREAMPLAN_LINKED"
"""With ``false`` in this environment variable each sub-topology has a query of its own."""


def links_of(topology: Topology) -> tuple[Link, ...]:
    """Return the sub-topologies that can be linked. Each is in one link at most."""
    return tuple(_links(topology))


def links_of_start(topology: Topology) -> tuple[Link, ...]:
    """Return the sub-topologies that a start with the environment of this process links; see :data:`VARIABLE`."""
    return () if os.environ.get(VARIABLE, "true").lower() == "false" else links_of(topology)


def _links(topology: Topology) -> Iterator[Link]:
    for reader in topology.subtopologies:
        if not _aggregates_records(reader):
            continue
        (source,) = reader.sources
        writers = [each for each in topology.subtopologies if source.topic in each.sink_topics]
        if len(writers) != 1:
            continue
        (writer,) = writers
        if _can_hand_on(writer):
            yield Link(writer, reader)


def _can_hand_on(writer: Subtopology) -> bool:
    """Whether all that a sub-topology writes is a repartition topic, with text keys, of the records of one topic."""
    if re_keying(writer) is not None:
        return writer.sinks[0].internal
    if not is_record_by_record(writer) or not all(each.deterministic for each in functions_of(writer)):
        return False
    (source,), (sink,) = writer.sources, writer.sinks
    is_text = writer.key_serde_of(sink.name).key_type == STRING_KEYS
    return sink.internal and is_text and source.value is not None


def re_keying(subtopology: Subtopology) -> tuple[Source, str] | None:
    """Return what a sub-topology reads, and the field that it makes the key; None where it does anything else.

    The text of the field is known without Spark (:func:`~streamplan.serdes.serde.is_key_field`).
    """
    match subtopology.sources, subtopology.operations, subtopology.sinks:
        case (
            (Source(timestamp=None) as source,),
            (KeySelect(key=key) as selected, NullKeyFilter(relaxed=False)),
            (_,),
        ):
            is_text = source.key_serde.key_type == selected.key_serde.key_type == STRING_KEYS
            if is_text and source.value is not None and isinstance(key, str) and is_key_field(source.value, key):
                return source, key
    return None


_RECORD_BY_RECORD = (
    *(Filter, FilterNot, FlatMap, FlatMapValues, KeySelect, Map, MapValues),
    *(FilterFunction, FilterNotFunction, FlatMapFunction, FlatMapValuesFunction, MapFunction, MapValuesFunction),
)


def functions_of(subtopology: Subtopology) -> tuple[PythonFunction, ...]:
    """Return the Python functions that make records of each record of a sub-topology by itself."""
    functions = map(function_of, subtopology.operations)
    return tuple(each for each in functions if each is not None)


def is_record_by_record(subtopology: Subtopology) -> bool:
    """Whether a sub-topology makes records of each record of a topic by itself, and writes them to one topic.

    Then the rows that are written have the order of the records.
    """
    if len(subtopology.sources) != 1 or len(subtopology.sinks) != 1 or subtopology.sources[0].timestamp is not None:
        return False
    (sink,) = subtopology.sinks
    by_record = all(
        isinstance(each, _RECORD_BY_RECORD) or (isinstance(each, NullKeyFilter) and not each.relaxed)
        for each in subtopology.operations
    )
    is_chain = all(len(before) == 1 for before in subtopology.predecessors.values() if before)
    is_chain &= (
        len({name for before in subtopology.predecessors.values() for name in before})
        == len(subtopology.processors) + 1
    )
    return by_record and is_chain and sink.choice is None


def passing(subtopology: Subtopology) -> tuple[Source, str] | None:
    """Return what a sub-topology writes as it is to one topic from outside; None where it does anything else.

    Returns:
        The source, and the field that is made the key; an empty text where the key stays.
    """
    match subtopology.sources, subtopology.processors, subtopology.sinks:
        case (Source(timestamp=None) as source,), processors, (Sink(internal=False, value=None, choice=None) as sink,):
            before = subtopology.predecessors[sink.name]
            if source.value is None or source.key_serde.key_type != STRING_KEYS:
                return None
            if not processors:
                return source, ""
            match processors:
                case (Processor(operation=KeySelect(key=key, key_serde=serde)) as node,) if before == (node.name,):
                    is_text = serde.key_type == STRING_KEYS and isinstance(key, str)
                    return (source, str(key)) if is_text and is_key_field(source.value, str(key)) else None
    return None


def _aggregates_records(reader: Subtopology) -> bool:
    """Whether all that a sub-topology does with the records of one repartition topic is one aggregate by their keys."""
    if len(reader.sources) != 1:
        return False
    stage = stage_of(reader)
    if type(stage) is not AggregateStage or len(stage.nodes) != 1 or stage.passes_updates_in_order:
        return False
    (node,), (source,) = stage.nodes, reader.sources
    takers = [name for name, before_it in reader.predecessors.items() if source.name in before_it]
    return _is_handed_on(node) and takers == [node.name] and source.key_serde.key_type == STRING_KEYS


def _is_handed_on(node: Processor) -> bool:
    """Whether the result of an aggregate does not depend on the order of the records, nor on where they are read."""
    match node.operation:
        case Count(window=None | TimeWindows()):
            return True
        case Aggregate(window=None | TimeWindows(), columns=columns):
            return all(map(_takes_any_order, columns))
    return False


_ANY_ORDER = ("sum", "count", "count_if", "min", "max", "avg", "bool_and", "bool_or")
"""The aggregate functions whose result is the same in each order. Of equal values ``max_by`` takes the latest."""

_PART_OF_RECORD = re.compile(r"\brecord\b(?:\s*\.\s*`?(\w+))?", re.IGNORECASE)

_HANDED_ON = ("key", "timestamp", "topic", "partition")
"""The parts of ``record`` that are known of a record which is not read back. Its offset is not."""

_EVERY_COLUMN = re.compile(r"[(,]\s*\*")


def _takes_any_order(column: AggregateColumn) -> bool:
    if column.function == "count" and column.arguments == "*":
        return True
    parts = {part.lower() for part in _PART_OF_RECORD.findall(column.arguments)}
    every_column = _EVERY_COLUMN.search(f"({column.arguments})") is not None
    return column.function in _ANY_ORDER and parts <= {*_HANDED_ON} and not every_column
