"""What an output topic holds, as far as an application can have written it, and what a comparison with it finds.

A topic of the application itself (a changelog, a repartition topic) holds nothing else. A topic of a sink may hold
more: records of another producer, and those of an earlier run, which a reset leaves there. It may hold less, because
its retention or compaction deletes records. What can be proved is proved. What cannot is a doubt, and a doubt is not
green.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from streamplan.checks.framework.check import Observation, not_judged
from streamplan.model.timestamps import FIRST_WRITABLE_MS
from streamplan.model.topics import STRING_KEYS, TopicSpec
from streamplan.model.windows import STORED_SESSION_BYTES
from streamplan.spark.sink.spec import Output

NAMED = 20
"""The most wrong records or keys of an output that get a row each; the others are counted."""


@dataclass
class Findings:
    """What a recount has found.

    Attributes:
        rows: What was compared.
        doubts: What could not be decided: each with the subject, the reason, and what to do.
    """

    rows: list[Observation] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def compared(self, subject: str, expected: int, observed: int) -> None:
        """Add a row with two numbers."""
        self.rows.append(Observation(subject, expected, observed))

    def not_compared(self, subject: str, reason: str) -> None:
        """Add a row that says why something is not compared."""
        self.rows.append(not_judged(subject, reason))


@dataclass(frozen=True)
class WrittenTopic:
    """The records of an output topic.

    Attributes:
        output: The topic.
        spec: What it is to the topology.
        records: The records, in the columns ``RAW`` of :mod:`streamplan.spark.sources`.
        exclusive: Whether nobody but the application writes to the topic.
        whole_input: Whether every record that it was made of is still there.
        incomplete: The partitions of which records were deleted that the application may have written.
        compacted: Whether the topic keeps the last record of each key alone.
        ordered: Whether the records of a source partition are written in its order: one sink writes the topic.
        ordered_from: By partition the offset from which on the order of records is that of the sources as they are now.
        broker_time: Whether the brokers set the timestamps.
    """

    output: Output
    spec: TopicSpec
    records: DataFrame
    exclusive: bool
    whole_input: bool = True
    incomplete: frozenset[int] = frozenset()
    compacted: bool = False
    ordered: bool = True
    ordered_from: Mapping[int, int] = field(default_factory=dict)
    broker_time: bool = False

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.output.topic

    def key_text(self, key: bytes | None) -> str:
        """Return what people see of a key."""
        is_text = self.spec.key_type == STRING_KEYS and self.spec.primary_key_type is None
        return text_of(key) if key is None or is_text else self.spec.key_text(bytes(key))

    @property
    def rows(self) -> DataFrame:
        """The records with a timestamp in ms, like the rows that are demanded."""
        timestamp = F.lit(None).cast("bigint") if self.broker_time else F.unix_millis("timestamp")
        return self.records.withColumn("timestamp", timestamp)

    def with_records(self, records: DataFrame) -> WrittenTopic:
        """Return the same topic with other records."""
        return replace(self, records=records)

    def timed(self, demanded: DataFrame) -> DataFrame:
        """Return demanded rows with the timestamps that are written.

        They have none where the brokers set them, or where it is not known.
        """
        written = F.when(F.col("timestamp").isNotNull(), F.greatest("timestamp", F.lit(FIRST_WRITABLE_MS)))
        return demanded.withColumn("timestamp", F.lit(None).cast("bigint") if self.broker_time else written)


def first_rows(rows: DataFrame, *order: str) -> list[Row]:
    """Return the first rows, as many as are named."""
    return rows.orderBy(*order).limit(NAMED).collect()


def text_of(value: bytes | None) -> str:
    """Return what people see of a key or a value."""
    if value is None:
        return "none"
    if (len(value) == 8 and not bytes(value).isascii()) or bytes(value)[:4] == bytes(4):
        return str(int.from_bytes(value, "big", signed=True)) if len(value) == 8 else repr(bytes(value))
    return bytes(value).decode("utf-8", "backslashreplace")


def without_late_keys(written: WrittenTopic, late: DataFrame) -> WrittenTopic:
    """Leave out of an output the sessions of keys that are not compared.

    Args:
        written: An output whose keys have sessions.
        late: What :func:`~streamplan.spark.planning.recounted.sessions.late_keys` gave.
    """
    raw = F.expr(f"substring(key, 1, octet_length(key) - {STORED_SESSION_BYTES})")
    keys = late.select(F.col("key").cast("binary").alias("raw")).distinct()
    return written.with_records(written.records.withColumn("raw", raw).join(keys, "raw", "left_anti").drop("raw"))
