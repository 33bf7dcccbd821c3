"""Compares an output of which each record was made of one record: as multisets, and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from streamplan.checks.framework.check import Observation
from streamplan.model.partitioner import partition_for_key
from streamplan.model.windows import without_suffix
from streamplan.spark.recount.written import NAMED, Findings, WrittenTopic, first_rows, text_of
from streamplan.spark.sink.spec import Output
from streamplan.spark.sources import of_partition

_REMEMBERED_KEYS = 100_000
"""The partitions of at most this many keys are remembered."""


def compare_records(written: WrittenTopic, demanded: DataFrame, found: Findings) -> None:
    """Compare two multisets of records: key, value, timestamp, headers and partition; and their order.

    The records of one partition of a source stand in the order of that partition, in each partition of the output.
    Those that were re-driven come later, in the order of their marks.

    Args:
        written: The output.
        demanded: The rows that the inputs demand, with their ``turn``.
        found: Takes the result.
    """
    demanded = written.timed(demanded)
    pairs = _pairs(written, demanded).persist()
    try:
        _RecordComparison(written, demanded, pairs, found).judge()
    finally:
        pairs.unpersist()


_HASHED = ("key", "value", "timestamp", "headers")

_HASHES = ["hash", "hash2"]

_TURNS = ("turn", "offset", "order")
"""The columns that put the records of one partition of a source in the order in which they are written."""

_PLACED_SCHEMA = "hash bigint, hash2 bigint, partition int, offset bigint, belongs int"


def _pairs(written: WrittenTopic, demanded: DataFrame) -> DataFrame:
    """Put each demanded record beside a written one that is equal; the last of equals beside the last of equals.

    The columns of a demanded record are ``key, topic, source, turn, offset, order``, those of a written one ``place``
    and ``at``. Either are null in a row without a partner. ``other_sources`` says whether equal records come from
    several partitions of the sources, ``belongs`` where a written record that is in a wrong partition belongs.
    """
    # Two hashes of 64 bits, each with its own seed: what is not equal is not taken for equal, and nothing cancels out.
    columns = [column for name in _HASHED for column in (F.col(name).isNull(), F.col(name))]
    hashes = [F.xxhash64(*columns).alias("hash"), F.xxhash64(F.lit("again"), *columns).alias("hash2")]
    equal = Window.partitionBy(*_HASHES)
    left = demanded.select(*hashes, "key", "topic", F.col("partition").alias("source"), *_TURNS)
    by_source = equal.orderBy("topic", "source", *(F.desc(column) for column in _TURNS))
    source = F.struct("topic", "source")
    left = left.withColumns(
        {
            "number": F.row_number().over(by_source),
            "other_sources": F.min(source).over(equal) != F.max(source).over(equal),
        }
    )
    right = written.rows.select(*hashes, "key", "partition", "offset").mapInArrow(_place(written), _PLACED_SCHEMA)
    right = right.withColumnsRenamed({"partition": "place", "offset": "at"})
    right = right.withColumn("number", F.row_number().over(equal.orderBy("place", F.desc("at"))))
    return left.join(right, [*_HASHES, "number"], "full_outer")


def _place(written: WrittenTopic) -> Any:
    """Return the function that says of each record where it belongs, if it is in another partition than its key's.

    An external topic may have had fewer partitions when the record was written.
    """
    partition_of, partitions = _partition_of(written.output), written.output.partitions
    counts = range(partitions, partitions - 1 if written.exclusive else 0, -1)

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known: dict[tuple[bytes | None, int], int | None] = {}
        for batch in batches:
            belongs = []
            for at in zip(batch["key"].to_pylist(), batch["partition"].to_pylist(), strict=True):
                if at not in known:
                    key, partition = at
                    right = key is None or any(partition_of(key, count) == partition for count in counts)
                    known[at] = None if right or key is None else partition_of(key, partitions)
                belongs.append(known[at])
            names = [*_HASHES, "partition", "offset"]
            columns = [*(batch[name] for name in names), pa.array(belongs, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, names=[*names, "belongs"])
            if len(known) > _REMEMBERED_KEYS:
                known.clear()

    return place


def _partition_of(output: Output) -> Callable[[bytes, int], int]:
    suffix = output.partition_by.window_bytes
    return lambda key, partitions: partition_for_key(without_suffix(key, suffix), partitions)


@dataclass
class _RecordComparison:
    """Judges the pairs of one output; see :func:`compare_records`."""

    written: WrittenTopic
    demanded: DataFrame
    pairs: DataFrame
    found: Findings

    def judge(self) -> None:
        name, pairs = self.written.name, self.pairs
        figures = pairs.agg(
            F.count("offset").alias("demanded"),
            F.count("at").alias("written"),
            F.count(F.when(F.col("offset").isNotNull(), F.col("at"))).alias("matched"),
            F.count(F.when(F.col("offset").isNotNull(), F.col("belongs"))).alias("misplaced"),
        ).first()
        assert figures is not None, "an aggregate without groups has one row"
        missing, deleted = 0, 0
        if figures["demanded"] > figures["matched"]:
            lost = self._missing()
            missing = lost.count()
            deleted = figures["demanded"] - figures["matched"] - missing
        disordered = self._disordered()
        out_of_order = disordered.count() if self.written.ordered else 0
        if figures["demanded"] > deleted or not deleted:
            self.found.compared(
                f"{name}: records as the input demands, in its order",
                figures["demanded"] - deleted,
                figures["matched"] - figures["misplaced"] - out_of_order,
            )
        if deleted:
            self.found.not_compared(f"{deleted:,} records of {name}", "the topic has deleted its first records")
        if missing:
            self._name_missing(lost)
        if figures["misplaced"]:
            self._name_misplaced()
        if out_of_order:
            self._name_disordered(disordered)
        if figures["written"] > figures["matched"]:
            self._judge_extra(wrong=bool(missing))

    def _missing(self) -> DataFrame:
        """The demanded records that must be there and are not.

        Where the topic deletes its first records, the last of each source partition are left in each of its partitions.
        So a record is missing only behind one that is there.
        """
        missing = self.pairs.where("at is null")
        if not self.written.incomplete:
            return missing
        output = self.written.output
        partition_of = _partition_of(output)

        def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                keys = batch["key"].to_pylist()
                places = [None if key is None else partition_of(key, output.partitions) for key in keys]
                yield batch.append_column("place", pa.array(places, pa.int32()))

        columns = "key binary, topic string, source int, turn bigint, offset bigint, `order` array<int>"
        placed = missing.select("key", "topic", "source", *_TURNS).mapInArrow(place, f"{columns}, place int")
        there = self.pairs.where("at is not null and offset is not null")
        first = there.groupBy("topic", "source", "place").agg(F.min(F.struct(*_TURNS)).alias("first"))
        placed = placed.join(first, ["topic", "source", "place"], "left")
        is_behind = F.col("first").isNotNull() & (F.struct(*_TURNS) > F.col("first"))
        return placed.where(is_behind | ~F.col("place").isin(*self.written.incomplete))

    def _disordered(self) -> DataFrame:
        """The records that stand before one that came before them in the same partition of the same source."""
        pairs = self.pairs.where("at is not null and offset is not null and not other_sources")
        if self.written.ordered_from:
            begin = of_partition(self.written.ordered_from, F.col("place"))
            pairs = pairs.where(F.col("at") >= F.coalesce(begin, F.lit(0)))
        in_order = Window.partitionBy("topic", "source", "place").orderBy(*_TURNS)
        return pairs.withColumn("before", F.lag("at").over(in_order)).where("before > at")

    def _judge_extra(self, *, wrong: bool) -> None:
        """Judge the records that are not demanded. They are wrong for certain where others are missing.

        Where input was deleted, they may have been made of it.
        """
        if not self.written.whole_input:
            return
        name = self.written.name
        extra = self.pairs.where("offset is null").select(*_HASHES, "place", "at")
        hashes = extra.select(*_HASHES).distinct().withColumn("again", F.lit(True))
        copied = self.pairs.where("offset is not null").join(hashes, _HASHES, "left")
        copies = extra.join(copied.where("again").select(*_HASHES), _HASHES, "left_semi")
        if number := copies.count():
            if wrong or self.written.exclusive or not self._may_be_of_an_earlier_run(copied):
                self.found.compared(f"{name}: records that are there once more", 0, number)
                self._name_extra(copies, "once")
            else:
                self._doubt(copies, number, "that are there once more", "an earlier run may have written them")
        others = extra.join(copies.select("place", "at"), ["place", "at"], "left_anti")
        if number := others.count():
            if wrong or self.written.exclusive:
                self.found.compared(f"{name}: records that the input does not demand", 0, number)
                self._name_extra(others, "none")
            else:
                self._doubt(others, number, "that the input does not demand", "another producer may write to the topic")

    def _may_be_of_an_earlier_run(self, copied: DataFrame) -> bool:
        """Whether an application that was reset may have written the copies: it began with the first records."""
        if self.written.incomplete:
            return True
        again, at = F.coalesce("again", F.lit(False)), F.struct(*_TURNS)
        sources = copied.groupBy("topic", "source").agg(F.min_by(again, at).alias("first"), F.max(again).alias("any"))
        return sources.where("any and not first").isEmpty()

    def _doubt(self, extra: DataFrame, number: int, which: str, why: str) -> None:
        some = ", ".join(f"{row['place']} at {row['at']}" for row in first_rows(extra, "place", "at"))
        self.found.doubts.append(
            f"{self.written.name}: {number:,} records {which}, in partition {some}. Whether they are wrong cannot be"
            f" told: {why}"
        )

    def _name_missing(self, missing: DataFrame) -> None:
        keys = ["topic", "source", "offset", "order"]
        some = missing.select(*keys).orderBy(*keys).limit(NAMED)
        rows = self.demanded.withColumnRenamed("partition", "source").join(some, keys, "left_semi")
        for row in first_rows(rows, *keys):
            subject = f"{self.written.name}: record of {row['topic']}-{row['source']} offset {row['offset']}"
            place = f"missing in {self.written.name}"
            self.found.rows.append(
                Observation(subject, _record_text(self.written, row), "none", place, topic=self.written.name)
            )

    def _name_extra(self, extra: DataFrame, expected: str) -> None:
        some = extra.select(F.col("place").alias("partition"), F.col("at").alias("offset"))
        some = some.orderBy("partition", "offset").limit(NAMED)
        rows = self.written.rows.join(some, ["partition", "offset"], "left_semi")
        for row in first_rows(rows, "partition", "offset"):
            place = f"{self.written.name}-{row['partition']} offset {row['offset']}"
            subject = f"{place}: {_record_text(self.written, row)}"
            observed = "once more" if expected == "once" else "there"
            self.found.rows.append(Observation(subject, expected, observed, f"at {place}", topic=self.written.name))

    def _name_misplaced(self) -> None:
        rows = self.pairs.where("offset is not null and belongs is not null")
        for row in first_rows(rows, "place", "at"):
            subject = f"{self.written.name}: partition of key {self.written.key_text(row['key'])} at offset {row['at']}"
            place = f"at {self.written.name}-{row['place']} offset {row['at']}"
            self.found.rows.append(Observation(subject, row["belongs"], row["place"], place))

    def _name_disordered(self, disordered: DataFrame) -> None:
        for row in first_rows(disordered, "place", "at"):
            subject = (
                f"{self.written.name}-{row['place']}: record of {row['topic']}-{row['source']} offset {row['offset']}"
            )
            place = f"{self.written.name}-{row['place']} offset {row['at']}"
            self.found.rows.append(
                Observation(
                    subject,
                    f"behind offset {row['before']}",
                    f"at offset {row['at']}",
                    place,
                    topic=self.written.name,
                )
            )


def _record_text(written: WrittenTopic, row: Row) -> str:
    timestamp = "" if row["timestamp"] is None else f", timestamp {row['timestamp']}"
    headers = f", headers {row['headers']}" if row["headers"] else ""
    return f"key {written.key_text(row['key'])}, value {text_of(row['value'])}{timestamp}{headers}"
