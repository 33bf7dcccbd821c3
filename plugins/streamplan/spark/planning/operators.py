"""Operations applied to frames, one node of a sub-topology after the other, up to the rows that are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    Aggregate,
    Columns,
    Count,
    Filter,
    FlatMap,
    Join,
    KeySelect,
    Map,
    MapValues,
    Merge,
    NullKeyFilter,
    Peek,
    Reduce,
    TableSource,
    ToStream,
)
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology
from streamplan.model.windows import SEQUENCE_NUMBER_BYTES
from streamplan.serdes.serde import MAX_BYTES, Serde, too_large
from streamplan.spark.planning.aggregation import aggregate, aggregated, shown
from streamplan.spark.planning.records import Frame, read_frame, trusted, unread_frame
from streamplan.spark.sources import HEADERS

DEAD_LETTER = -1
"""Instead of the number of an output."""

_INSTEAD = "Write Spark SQL over the fields there are"

OUTPUT = f"""partition int, output int, key binary, value binary, timestamp bigint, headers {HEADERS}, topic string,
    offset bigint, `order` array<int>, reason string"""
"""What the sink takes: for each row the stream task's partition, and the number of the output it goes to.

``timestamp`` in ms; ``topic``, ``offset`` and ``order`` where it came from; ``reason`` of a dead letter.
"""

OUTPUT_COLUMNS = (
    *("partition", "output", "key", "value", "timestamp", "headers"),
    *("topic", "offset", "order", "reason"),
)


@dataclass(frozen=True)
class Finished:
    """What a walk comes to.

    ``rows``          to be written, of the columns :data:`OUTPUT`
    ``observations``  the metrics of each peek, to be read when the rows were collected
    ``schemas``       the serdes of the repartition topics among what is written
    """

    rows: tuple[DataFrame, ...]
    observations: tuple[tuple[str, Observation], ...] = ()
    schemas: Mapping[str, Serde] = field(default_factory=dict)


class Walk:
    """Applies operations to frames, one node after the other.

    Where ``faults`` are collected, a node that Spark refuses is noted, and what lies behind it is left out.
    """

    def __init__(
        self, subtopology: Subtopology, outputs: Mapping[str, int], faults: list[Diagnostic] | None = None
    ) -> None:
        self.subtopology = subtopology
        self.rows: list[DataFrame] = []
        self.observations: list[tuple[str, Observation]] = []
        self.schemas: dict[str, Serde] = {}
        """Of the repartition topics that are written."""
        self._outputs = outputs
        self._faults = faults
        self._frames: dict[str, Frame | None] = {}
        self._taken: set[str] = set()
        self._grouped: set[str] = set()

    def put(self, name: str, frame: Frame) -> None:
        self._frames[name] = frame

    def visit(self, nodes: Iterable[Node]) -> None:
        """Those that have no frame yet."""
        for node in nodes:
            if node.name in self._frames or isinstance(node, Source):
                continue
            before = [self.take(name) for name in self.subtopology.predecessors[node.name]]
            made: Frame | None = None
            if all(frame is not None for frame in before):
                try:
                    made = self._apply(node, [frame for frame in before if frame is not None])
                except (PySparkException, Refused) as error:
                    if self._faults is None:
                        raise
                    self._faults.append(Diagnostic(node.location, _sentence(error), _INSTEAD))
            self._frames[node.name] = made

    def take(self, name: str) -> Frame | None:
        """A node's frame for one more of its successors. Rejected records go on to the first of them only."""
        frame = self._frames[name]
        first = name not in self._taken
        self._taken.add(name)
        return frame if frame is None or first else frame.good()

    def finished(self) -> Finished:
        """All rows, with rejected records of frames that nothing takes on."""
        for name, frame in self._frames.items():
            if frame is not None and name not in self._taken and not frame.clean:
                self.rows.append(_dead_letters(frame.rejected()))
        return Finished(tuple(self.rows), tuple(self.observations), self.schemas)

    def _apply(self, node: Processor | Sink, before: Sequence[Frame]) -> Frame:
        frame = before[0]
        if isinstance(node, Sink):
            return self._sink(node, frame)
        match node.operation:
            case Filter(condition=condition):
                return frame.where(condition)
            case MapValues(value=value):
                return frame.select(value)
            case KeySelect(key=key):
                return frame.with_key(key)
            case Map(key=key, value=value):
                return frame.select(value, key)
            case FlatMap(each=each, key=key, value=value):
                return frame.exploded(each, value, key)
            case Merge():
                return frame.union(*before[1:])
            case Peek(metrics=metrics):
                return self._peek(node.name, frame, metrics)
            case NullKeyFilter():
                return frame if frame.keyed else frame.rejecting(F.col("record.key").isNull(), self._keyless(node))
            case TableSource(store=store):
                if store is not None:
                    self.changelog(node, frame.good())
                return frame
            case Join(store=store, value=value, left=left):
                frame = frame.valued()
                looked_up = replace(frame, data=frame.data.withColumn("table", F.col(f"record.`{store}`")))
                return (looked_up if left else looked_up.where("table is not null")).select(value)
            case ToStream():
                return frame
            case Count() | Aggregate() | Reduce():
                return self._aggregation(node, frame)
        raise Refused(f"no query is known for {type(node.operation).__name__}")

    def _aggregation(self, node: Processor, frame: Frame) -> Frame:
        """Of a DataFrame that holds all there is."""
        frame = self.grouped(node, frame)
        folded = aggregate([node], {node.name: frame}, merged=len(self.subtopology.sources) > 1)
        held = aggregated(0, node, folded, frame)
        self.changelog(node, held)
        return shown(node, held)

    def grouped(self, node: Processor, frame: Frame) -> Frame:
        """The records that can be aggregated; the others end here, once for all aggregates of a grouping."""
        if isinstance(node.operation, Aggregate):  # as in Frame.where
            columns = node.operation.columns
            frame.data.agg(*(F.expr(f"{column.function}({column.arguments})") for column in columns))
        (before,) = self.subtopology.predecessors[node.name]
        keyless = F.col("record.key").isNull()
        if before in self._grouped:
            frame = replace(frame, data=frame.data.where(~keyless))
        elif not frame.keyed:
            frame = frame.rejecting(keyless, "the key is null")
        self._grouped.add(before)
        if not frame.clean:
            self.rows.append(_dead_letters(frame.rejected()))
        return frame.good().valued()

    def changelog(self, node: Processor, frame: Frame) -> None:
        """The store's updates, into the partition of the task. A window stands in the bytes after the key."""
        key = F.col("record.key").cast("binary")
        if frame.windowed:
            start = F.unix_millis("record.window.start")
            key = F.concat(key, _big_endian(start), F.lit(bytes(SEQUENCE_NUMBER_BYTES)))  # WindowKeySchema
        self.rows.append(_rows(frame, self._outputs[node.name], key, F.col("record.value")))

    def _sink(self, sink: Sink, frame: Frame) -> Frame:
        if sink.internal:
            self.schemas[sink.topic] = frame.schema
        size = F.coalesce(F.octet_length("record.key"), F.lit(0)) + F.coalesce(F.octet_length(frame.value), F.lit(0))
        if not frame.keyed or not frame.raw:  # else it came through such a topic before
            frame = frame.rejecting(size > MAX_BYTES, too_large(MAX_BYTES))
        key = F.col("record.key").cast("binary")
        if frame.windowed:
            key = F.concat(key, _big_endian(F.unix_millis("record.window.start")))  # TimeWindowedSerializer
        self.rows.append(_rows(frame, self._outputs[sink.name], key, frame.value))
        return replace(frame, data=frame.data.limit(0), clean=True)

    def _peek(self, name: str, frame: Frame, metrics: Columns) -> Frame:
        if not frame.clean:  # they are not among what passes
            self.rows.append(_dead_letters(frame.rejected()))
            frame = frame.good()
        columns = [F.expr(expression).alias(metric) for metric, expression in metrics]
        if frame.data.isStreaming:
            return replace(frame, data=frame.data.observe(name, *columns))
        observation = Observation()
        self.observations.append((name, observation))
        return replace(frame, data=frame.data.observe(observation, *columns))

    def _keyless(self, node: Node) -> str:
        """Why there is no key: in the words of the field that it was to be made of."""
        by_name = {one.name: one for one in self.subtopology.nodes}
        while before := self.subtopology.predecessors[node.name]:
            node = by_name[before[0]]
            if isinstance(node, Processor) and isinstance(node.operation, KeySelect | Map):
                return f"{node.operation.key} is missing" if node.operation.key.isidentifier() else "the key is null"
        return "the key is null"


def read(subtopology: Subtopology, source: Source, schemas: Mapping[str, Serde], raw: DataFrame) -> Frame:
    """The frame of a source. Values of our own topics that nobody looks at are not read."""
    after = [node for node in subtopology.processors if source.name in subtopology.predecessors[node.name]]
    if source.value is not None:
        return read_frame(raw, source.value, table=any(isinstance(node.operation, TableSource) for node in after))
    if all(isinstance(node.operation, Count) for node in after):
        return unread_frame(raw)
    return trusted(read_frame(raw, schemas[source.topic]))


def _big_endian(number: Column) -> Column:
    return F.unhex(F.lpad(F.hex(number), 16, "0"))


def _rows(frame: Frame, output: int, key: Column, value: Column) -> DataFrame:
    """Rows of the columns :data:`OUTPUT`; rejected records become dead letters."""
    columns = _output_columns(F.lit(output), key, value)
    if frame.clean:
        return frame.data.select(*columns)
    letters = _output_columns(F.lit(DEAD_LETTER), F.col("record.original_key"), F.col("record.value"))
    live = F.col("record.reason").isNull()
    return frame.data.select(
        *(
            F.when(live, column).otherwise(letter).alias(name)
            for name, column, letter in zip(OUTPUT_COLUMNS, columns, letters, strict=True)
        )
    )


def _dead_letters(data: DataFrame) -> DataFrame:
    return data.select(*_output_columns(F.lit(DEAD_LETTER), F.col("record.original_key"), F.col("record.value")))


def _output_columns(output: Column, key: Column, value: Column) -> list[Column]:
    made = {
        "output": output,
        "key": key,
        "value": value,
        "timestamp": F.unix_millis("record.timestamp"),
    }
    return [made.get(name, F.col(f"record.{name}")).alias(name) for name in OUTPUT_COLUMNS]


def _sentence(error: PySparkException | Refused) -> str:
    """What Spark says, without its code, the plan and the position."""
    text = str(error).strip().split("\n")[0].split("; line ")[0].split("SQLSTATE")[0]
    return re.sub(r"^\[[A-Z_.]+\] ", "", text).strip().rstrip(".")
