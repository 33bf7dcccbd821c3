"""Records as a Spark DataFrame: the fields of the value as columns, and beside them the struct ``record``.

Expressions of a declaration are resolved against it as they stand. ``record`` has

``topic, partition, offset``  where the record was read; after an aggregate only the partition of the stream task
``timestamp``  of the record
``key``        in the type of its serde. That of ``String()`` is a string, holding the key's bytes as they are
``window``     after a windowed aggregate: ``start``, ``end``
``session``    after an aggregate of sessions: that the window is one
``sequence_number``  of a record that a join of two streams has stored, among those of its key and time
``headers, original_key, value``  of the record as it was read, in bytes
``reason``     why the record is rejected. A rejected record passes all operations unchanged and ends in the dead-letter
               topic
``written``    the value in bytes where it was made and is about to be written
``original_value``  behind an operation of a table that may have deleted the value: what ``value`` was before
``order``      the place of a record among those that flat_map made of one
``ends``       where each record that was read keeps a row: that the row is the last one of its record
``child``      of a record that a Python class has forwarded, the only node that takes it; null for all
``partition_time``  where several topics are read, the newest timestamp (ms) in the micro-batch of its partition so far;
               by it their records are put in order. That of an update that was merged with records is behind all
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from streamplan.errors import Refused
from streamplan.model.dead_letters import Origin
from streamplan.model.left_out import REASON_LEFT_OUT, records_left_out
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.field_types import FIELD_TYPES
from streamplan.serdes.internal import repartition_serde, value_expression
from streamplan.serdes.primitive import STRING, KeySerde, String
from streamplan.serdes.serde import MAX_BYTES, Serde, too_large
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import declared_fields, unreadable_types
from streamplan.spark.planning.keys import key_fault, new_key, read_key, write_key
from streamplan.spark.planning.partition_times import PartitionTimes
from streamplan.spark.sink.spec import NULL_KEY, PASSED_OVER
from streamplan.spark.sources import HEADERS, RAW
from streamplan.spark.timestamps import timestamp_faults

BEHIND_ALL_TIME = (1 << 63) - 1
"""A partition time that is behind all others."""


CHILD = "child"


@dataclass(frozen=True)
class RecordFrame:
    """Records, and what is known of all of them.

    ``value_is_raw``  the value was not changed since it was read, so that its bytes are written as they are
    ``no_rejects``    no record is rejected
    ``key_not_null``  no record is without a key
    ``serde``         reads the value where it is raw; None for the value of a state store
    ``format``        names the encoding of the value where it is raw
    ``key_serde``     reads and writes the keys
    """

    data: DataFrame
    value_is_raw: bool
    no_rejects: bool = False
    key_not_null: bool = False
    serde: Serde | None = None
    format: str | None = None
    key_serde: KeySerde = STRING

    @property
    def fields(self) -> list[str]:
        """The names of the value's fields."""
        return [name for name in self.data.columns if name != "record"]

    @property
    def key(self) -> Column:
        """The key in bytes, without those of a window; null for a record without a key."""
        return write_key(self.key_serde, F.col("record.key"))

    @property
    def value(self) -> Column:
        """The value in bytes, null for a record without a value."""
        if self.value_is_raw:
            return F.col("record.value")
        if record_has(self.data, "written"):
            return F.col("record.written")
        return F.when(~self.has_no_value, F.expr(value_expression(declared_fields(self.data))))

    def with_written_value(self) -> RecordFrame:
        """Make the bytes of the value once, for all that needs them: ``record.written``, null where it is rejected."""
        return self.with_record(F.col("record").withField("written", self._unless_rejected(self.value)))

    @property
    def has_value(self) -> Column:
        """Whether a record has a value that is not null."""
        return ~self.has_no_value

    @property
    def has_no_value(self) -> Column:
        """Whether a record has a null value.

        A new value that was made of a null value is null as long as all its fields are.
        """
        is_null = F.col("record.value").isNull()
        if self.value_is_raw:
            return is_null
        return reduce(and_, (F.col(f"`{name}`").isNull() for name in self.fields), is_null)

    @property
    def schema(self) -> Serde:
        """The serde of a topic that the values are written to and read from again.

        Raises:
            Refused: A field has a type that cannot be read back from such a topic.
        """
        if self.value_is_raw and self.serde is not None:
            return self.serde.unrestricted()
        types = declared_fields(self.data)
        unsupported = [
            f"{name} is of type {of_field}" for name, of_field in types.items() if any(unreadable_types(of_field))
        ]
        if unsupported:
            raise Refused(
                f"a repartition topic cannot carry that {', '.join(unsupported)}",
                remedy=f"Cast it before to one of {', '.join(FIELD_TYPES)}.",
            )
        return repartition_serde(types)

    @property
    def as_in_internal_topic(self) -> bool:
        """Whether the records are as they came from a topic of ours: not too large for the next one."""
        return self.key_not_null and self.value_is_raw

    @property
    def with_fields(self) -> RecordFrame:
        """The same where the fields are the value: bytes that no serde reads, such as those of a count, are not."""
        return replace(self, value_is_raw=False) if self.value_is_raw and self.serde is None else self

    @property
    def ends(self) -> Column:
        """Whether a row is the last of those that were made of a record, where they are told; else it is true."""
        return F.col("record.ends") if record_has(self.data, "ends") else F.lit(True)

    @property
    def windowed(self) -> bool:
        """Whether the key is one of a window."""
        return record_has(self.data, "window")

    @property
    def is_of_sessions(self) -> bool:
        """Whether the window of the key is a session."""
        return record_has(self.data, "session")

    @property
    def keeps_duplicates(self) -> bool:
        """Whether records of the same key and window are told apart by a number."""
        return record_has(self.data, "sequence_number")

    @property
    def keeps_original_value(self) -> bool:
        """Whether an operation of a table may have deleted values, so that a dead letter has those of before."""
        return record_has(self.data, "original_value")

    def with_record(self, record: Column) -> RecordFrame:
        """Replace the struct ``record``."""
        return replace(self, data=self.data.withColumn("record", record))

    def accepted(self) -> RecordFrame:
        """Leave out the rejected records."""
        return (
            self if self.no_rejects else replace(self, data=self.data.where("record.reason is null"), no_rejects=True)
        )

    def moving_time(self) -> RecordFrame:
        """Leave out the records that do not move the stream time on. A record of a table that has no key does."""
        moves = F.col("record.reason").isNull() | (F.col("record.reason") == NULL_KEY)
        return self if self.no_rejects else replace(self, data=self.data.where(moves), no_rejects=True)

    def with_value(self) -> RecordFrame:
        """Leave out the records with a null value, as Kafka Streams does.

        Sources: ``KStreamAggregate``, ``KStreamReduce`` and ``KStreamKTableJoinProcessor``.
        """
        passes = self.has_value if self.no_rejects else F.col("record.reason").isNotNull() | self.has_value
        return replace(self, data=self.data.where(passes))

    def for_child(self, name: str) -> RecordFrame:
        """Leave out the records that a Python class has forwarded to another node than this one."""
        if not record_has(self.data, CHILD):
            return self
        child = F.col(f"record.{CHILD}")
        taken = replace(self, data=self.data.where(child.isNull() | (child == F.lit(name))))
        return taken.with_record(F.col("record").dropFields(CHILD))

    def rejected(self) -> DataFrame:
        """Only the rejected records."""
        return self.data.where("record.reason is not null")

    def rejecting(self, condition: Column, reason: str) -> RecordFrame:
        """Reject the records for which ``condition`` is true, besides those that are rejected already."""
        first_reason = F.coalesce(F.col("record.reason"), F.when(condition, F.lit(reason)))
        return replace(self.with_record(F.col("record").withField("reason", first_reason)), no_rejects=False)

    def select(
        self, columns: Sequence[tuple[str, str]], key: str | None = None, key_serde: KeySerde | None = None
    ) -> RecordFrame:
        """Make a new value, and a new key where one is given with its serde, from expressions over the old ones."""
        fields = [self._unless_rejected(F.expr(expression)).alias(name) for name, expression in columns]
        if key is None or key_serde is None:
            data = self.data.select(*fields, "record")
            return replace(self, data=data, value_is_raw=False, serde=None)
        record, rejects = self._rekeyed(key, key_serde)
        data = self.data.select(*fields, record.alias("record"))
        return replace(
            self,
            data=data,
            value_is_raw=False,
            no_rejects=self.no_rejects and not rejects,
            key_not_null=False,
            serde=None,
            key_serde=key_serde,
        )

    def with_key(self, key: str, key_serde: KeySerde) -> RecordFrame:
        """Set the key to the value of an expression, as a serde writes it."""
        record, rejects = self._rekeyed(key, key_serde)
        no_rejects = self.no_rejects and not rejects
        return replace(self.with_record(record), no_rejects=no_rejects, key_not_null=False, key_serde=key_serde)

    def where(self, condition: str, *, negated: bool = False) -> RecordFrame:
        """Keep the records for which a condition of the declaration is true, and the rejected ones.

        Args:
            negated: Whether those are kept for which it is not true.
        """
        self.data.where(condition)  # so that Spark's error quotes the condition as it was declared
        passes = F.coalesce(F.expr(condition), F.lit(False))
        passes = ~passes if negated else passes
        if not self.no_rejects:
            passes = F.col("record.reason").isNotNull() | passes
        return replace(self, data=self.data.where(passes))

    def passing_over(self, condition: str, *, negated: bool = False) -> RecordFrame:
        """Let the other records than :meth:`where` keeps pass as rejected ones that nobody writes: a row of each stays.

        Args:
            negated: Whether those are kept for which it is not true.
        """
        self.data.where(condition)  # so that Spark's error quotes the condition as it was declared
        passes = F.coalesce(F.expr(condition), F.lit(False))
        return self.rejecting(passes if negated else ~passes, PASSED_OVER)

    def branched(self, condition: str, number: int) -> RecordFrame:
        """Give the records of no branch, for which a condition is true, the number of a branch."""
        self.data.where(condition)  # so that Spark's error quotes the condition as it was declared
        takes = (F.col("record.branch") == 0) & F.coalesce(F.expr(condition), F.lit(False))
        if not self.no_rejects:
            takes = F.col("record.reason").isNull() & takes
        branch = F.when(takes, F.lit(number)).otherwise(F.col("record.branch"))
        return self.with_record(F.col("record").withField("branch", branch))

    def deleting(self, condition: str, *, negated: bool) -> RecordFrame:
        """Give the records a null value for which a condition of the declaration is not true. Rejected ones stay.

        Args:
            negated: Whether those keep their value for which it is not true.
        """
        self.data.where(condition)  # so that Spark's error quotes the condition as it was declared
        passes = F.coalesce(F.expr(condition), F.lit(False))
        passes = ~passes if negated else passes
        if not self.no_rejects:
            passes = F.col("record.reason").isNotNull() | passes
        fields = [F.when(passes, F.col(f"`{name}`")).alias(name) for name in self.fields]
        record = self.with_original_value().withField("value", F.when(passes, F.col("record.value")))
        return replace(self, data=self.data.select(*fields, record.alias("record")))

    def with_values(self, columns: Sequence[tuple[str, str]]) -> RecordFrame:
        """Make a new value, from expressions over the old one, of each value that is not null."""
        made = [F.when(self.has_value, self._unless_rejected(F.expr(each))).alias(name) for name, each in columns]
        self.data.select(*(F.expr(each) for _, each in columns))  # so that Spark's error quotes them as declared
        return replace(self, data=self.data.select(*made, "record"), value_is_raw=False, serde=None)

    def with_original_value(self) -> Column:
        """``record`` with the value that a dead letter of it has."""
        record = F.col("record")
        return record if self.keeps_original_value else record.withField("original_value", F.col("record.value"))

    def exploded(
        self,
        each: str,
        columns: Sequence[tuple[str, str]],
        key: str | None = None,
        key_serde: KeySerde | None = None,
        *,
        keeps_rows: bool = False,
    ) -> RecordFrame:
        """Make one record for each element of the array ``each``; a rejected record stays one.

        Args:
            each: An expression.
            columns: The fields of the new value.
            key: The new key; None where it stays.
            key_serde: Writes the new key.
            keeps_rows: Whether a record without elements has a row, too; see :meth:`passing_over`.

        Raises:
            Refused: ``each`` is no array.
        """
        elements = F.expr(each)
        array = self.data.select(elements.alias("each")).schema["each"].dataType
        if not isinstance(array, ArrayType):
            remedy = "Write an expression of an array, as in split(line, ' ')"
            raise Refused(f"{each} is of type {array.simpleString()}, and has no elements", remedy=remedy)
        if keeps_rows:
            return self._exploded_with_ends(each).select(columns, key, key_serde)
        if not self.no_rejects:
            # The rejected row needs an element to survive: null, of the type that the elements have.
            one_null = F.array(F.lit(None)).cast(ArrayType(array.elementType, containsNull=True))
            elements = F.when(F.col("record.reason").isNull(), elements).otherwise(one_null)
        rows = self.data.select("*", F.posexplode(elements).alias("_position", "element"))
        order = F.concat(F.col("record.order"), F.array(F.col("_position")))
        rows = rows.withColumn("record", F.col("record").withField("order", order)).drop("_position")
        return replace(self, data=rows).select(columns, key, key_serde)

    def _exploded_with_ends(self, each: str) -> RecordFrame:
        """A row for each element, and one for a record without elements, which passes as :meth:`passing_over` says."""
        data = self.data.withColumn("_elements", self._unless_rejected(F.expr(each)))
        data = data.withColumn("_count", F.size("_elements"))
        rows = data.select("*", F.posexplode_outer("_elements").alias("_position", "element"))
        frame = replace(self, data=rows).made_of_each(F.col("_position"), F.col("_position") + 1 == F.col("_count"))
        return replace(frame, data=frame.data.drop("_elements", "_count", "_position"))

    def made_of_each(self, position: Column, is_last: Column) -> RecordFrame:
        """Say which rows were made of a record.

        Args:
            position: The place of the row among those that were made of the record; null where it stands for none.
            is_last: Whether the row is the last one of them. It is not asked where the position is null.
        """
        ends = self.ends & F.coalesce(is_last, F.lit(True))
        order = F.concat(F.col("record.order"), F.array(F.coalesce(position, F.lit(0))))
        record = F.col("record").withField("order", order).withField("ends", ends)
        return self.with_record(record).rejecting(position.isNull(), PASSED_OVER)

    def on_way(self, begun: int | None, place: int | None) -> RecordFrame:
        """Add places to the ``order`` of each record.

        Args:
            begun: Comes before those that there are.
            place: Comes behind them.
        """
        first, last = (F.array(*([] if each is None else [F.lit(each)])).cast("array<int>") for each in (begun, place))
        return self.with_record(F.col("record").withField("order", F.concat(first, F.col("record.order"), last)))

    def behind_records(self) -> RecordFrame:
        """Put the updates of stores behind the records of a micro-batch, which have a topic and an offset.

        As in the library, which flushes its record cache behind the records of a commit.
        """
        time = F.when(F.col("record.topic").isNull(), BEHIND_ALL_TIME).otherwise(F.col("record.partition_time"))
        return self.with_record(F.col("record").withField("partition_time", time))

    def union(self, other: RecordFrame) -> RecordFrame:
        """Both frames' records; what is known of all of them must be known of both."""
        value_is_raw = self.value_is_raw and other.value_is_raw and self.format == other.format
        same_fields = self.serde is not None and other.serde is not None and self.serde.fields == other.serde.fields
        frames = [self, other]
        if any(frame.keeps_original_value for frame in frames):
            frames = [frame.with_record(frame.with_original_value()) for frame in frames]
        parts, others = (cast(StructType, frame.data.schema["record"].dataType).names for frame in frames)
        if parts != others and set(parts) == set(others):  # Spark takes the parts of a struct by their places
            in_order = F.struct(*(F.col(f"record.{name}").alias(name) for name in parts))
            frames[1] = frames[1].with_record(in_order)
        return RecordFrame(
            frames[0].data.unionByName(frames[1].data),
            value_is_raw=value_is_raw,
            no_rejects=self.no_rejects and other.no_rejects,
            key_not_null=self.key_not_null and other.key_not_null,
            serde=self.serde if value_is_raw and same_fields else None,
            format=self.format if value_is_raw else None,
            key_serde=self.key_serde,
        )

    def _rekeyed(self, key: str, key_serde: KeySerde) -> tuple[Column, bool]:
        """The struct ``record`` with another key, and whether it may be rejected. A new key has no window."""
        column, fault = new_key(key_serde, self.data, key)
        record = F.col("record").withField("key", self._unless_rejected(column))
        if fault is not None:
            record = record.withField("reason", F.coalesce(F.col("record.reason"), self._unless_rejected(fault)))
        names = [*(["window"] if self.windowed else []), *(["session"] if self.is_of_sessions else [])]
        return record.dropFields(*names) if names else record, fault is not None

    def _unless_rejected(self, column: Column) -> Column:
        return column if self.no_rejects else F.when(F.col("record.reason").isNull(), column)


def record_has(data: DataFrame, name: str) -> bool:
    """Return whether the struct ``record`` of a DataFrame has a part of this name."""
    return name in cast(StructType, data.schema["record"].dataType).names


def rejecting_binary_keys(frame: RecordFrame) -> RecordFrame:
    """Reject keys that should be text and are not: the state is stored by text. Elsewhere any bytes are a key."""
    if not isinstance(frame.key_serde, String):
        return frame
    text = F.try_validate_utf8("record.key")
    frame = frame.rejecting(F.col("record.key").isNotNull() & text.isNull(), "the key is not UTF-8")
    return frame.with_record(F.col("record").withField("key", text))


def read_external(
    raw: DataFrame,
    serde: Serde,
    key_serde: KeySerde,
    *,
    table: bool = False,
    partition_time: bool = False,
    is_timed: bool = True,
) -> RecordFrame:
    """Read the records of a topic that others write. Those with a timestamp that has a fault are rejected.

    Args:
        raw: Rows of the columns :data:`streamplan.spark.sources.RAW`.
        serde: Reads the values.
        key_serde: Reads the keys. A record with a key that it cannot read is rejected.
        table: Whether the topic is a table, whose records need a key.
        partition_time: Whether ``record.partition_time`` is told; else it is null.
        is_timed: Whether the records have the timestamps of the topic. If not, one with a fault is null, and rejects
            no record.
    """
    reader = _reader(serde, table=table, partition_time=partition_time, is_timed=is_timed)
    return _read(raw, serde, key_serde, reader)


def read_internal(
    raw: DataFrame, serde: Serde, key_serde: KeySerde, *, key_not_null: bool = True, partition_time: bool = False
) -> RecordFrame:
    """Read the records of a repartition topic, which we wrote: none is rejected.

    Args:
        raw: As for :func:`read_external`.
        serde: As for :func:`read_external`.
        key_serde: Reads the keys.
        key_not_null: Whether each has a key.
        partition_time: As for :func:`read_external`.
    """
    frame = _read(raw, serde, key_serde, _reader(serde, any_timestamp=True, partition_time=partition_time))
    return replace(frame, no_rejects=not records_left_out(), key_not_null=key_not_null)


def read_stored(raw: DataFrame, serde: Serde, key_serde: KeySerde) -> RecordFrame:
    """Read the records of a topic that we wrote, with any timestamp; see :func:`read_external`."""
    return _read(raw, serde, key_serde, _reader(serde, any_timestamp=True))


def read_internal_keys(raw: DataFrame, key_serde: KeySerde) -> RecordFrame:
    """Read the records of a repartition topic without their values."""
    record = _record(key_serde, F.lit(None).cast("string"), F.lit(None).cast("bigint"))
    records = raw.select(record.alias("record"))
    return RecordFrame(records, value_is_raw=True, no_rejects=True, key_not_null=True, key_serde=key_serde)


def read_handed_on(rows: DataFrame, serde: Serde, key_serde: KeySerde, topic: str) -> RecordFrame:
    """Read the records of a repartition topic that were handed on, see :class:`.HandedOnRecords`.

    Each has a value, of which the bytes are not there.

    Args:
        rows: Of the columns :data:`~streamplan.spark.sink.handed_on.RECORDS`, and ``fields`` where there are any.
        serde: Has read the values.
        key_serde: Reads the keys.
        topic: The name of the topic in Kafka.
    """
    known = {
        "topic": F.lit(topic),
        "offset": F.lit(None).cast("bigint"),
        "headers": F.lit(None).cast(HEADERS),
        "value": F.lit("").cast("binary"),
    }
    record = _record(key_serde, F.lit(None).cast("string"), F.lit(None).cast("bigint"))
    fields = ["fields.*"] if "fields" in rows.columns else []
    return RecordFrame(
        rows.withColumns(known).select(*fields, record.alias("record")),
        value_is_raw=True,
        no_rejects=True,
        key_not_null=True,
        serde=serde,
        format=serde.format,
        key_serde=key_serde,
    )


def _read(raw: DataFrame, serde: Serde, key_serde: KeySerde, reader: ArrowFunction) -> RecordFrame:
    fields = ", ".join(f"`{name}`: {data_type}" for name, data_type in serde.fields.items())
    rows = map_in_arrow(raw, reader, f"{RAW}, fields struct<{fields}>, reason string, partition_time bigint")
    fault = key_fault(key_serde, F.col("key"))
    reason = F.col("reason") if fault is None else F.coalesce("reason", fault)
    records = rows.select("fields.*", _record(key_serde, reason, F.col("partition_time")).alias("record"))
    return RecordFrame(records, value_is_raw=True, serde=serde, format=serde.format, key_serde=key_serde)


def _record(key_serde: KeySerde, reason: Column, partition_time: Column) -> Column:
    return F.struct(
        "topic",
        "partition",
        "offset",
        "timestamp",
        read_key(key_serde, F.col("key")).alias("key"),
        "headers",
        F.col("key").alias("original_key"),
        "value",
        reason.alias("reason"),
        F.array().cast("array<int>").alias("order"),
        partition_time.alias("partition_time"),
    )


def _reader(
    serde: Serde,
    *,
    table: bool = False,
    any_timestamp: bool = False,
    partition_time: bool = False,
    is_timed: bool = True,
) -> ArrowFunction:
    fields_type = struct_type(serde.fields)
    records = records_left_out()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        times = PartitionTimes()
        for batch in noted(batches):
            values = batch["value"]
            left_out = _rows_left_out(records, batch) if records else None
            if left_out is not None:
                values = pc.if_else(left_out, pa.scalar(None, pa.binary()), values)
            decoded = serde.decode_column(values)
            reasons = pc.if_else(pc.is_null(values), pa.scalar(None, pa.string()), decoded.reasons())
            if left_out is not None:
                reasons = pc.if_else(left_out, pa.scalar(REASON_LEFT_OUT), reasons)
            if not any_timestamp:
                batch, judged = _without_faulty_timestamps(batch, reasons)
                reasons = judged if is_timed else reasons
            time = times.of(batch, reasons) if partition_time else pa.nulls(batch.num_rows, pa.int64())
            if table:
                size = pc.add(pc.binary_length(batch["key"]), pc.binary_length(values))
                exceeds = pc.greater(size, MAX_BYTES).fill_null(False)  # its changelog would refuse it
                fault = pc.if_else(exceeds, pa.scalar(too_large(MAX_BYTES)), pa.scalar(None, pa.string()))
                fault = pc.if_else(pc.is_null(batch["key"]), pa.scalar(NULL_KEY), fault)
                reasons = pc.coalesce(reasons, fault)
            columns = [*batch.columns, decoded.fields.cast(fields_type), reasons, time]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "fields", "reason", "partition_time"])

    return read


def _rows_left_out(records: frozenset[Origin], batch: pa.RecordBatch) -> pa.Array:
    """Return whether each row is one of these records, as booleans."""
    places = zip(*(batch[name].to_pylist() for name in Origin._fields), strict=True)
    return pa.array([place in records for place in places], pa.bool_())


def _without_faulty_timestamps(batch: pa.RecordBatch, reasons: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
    """Reject the records with a faulty timestamp, and set it to null: it would stop what computes with it.

    Args:
        batch: With a column ``timestamp``, in microseconds.
        reasons: The reasons that the records have already. They are kept.
    """
    timestamps = batch["timestamp"]
    faults = timestamp_faults(pc.divide(timestamps.cast(pa.int64()), 1000))
    if faults is None:
        return batch, reasons
    sound = pc.if_else(pc.is_null(faults), timestamps, pa.scalar(None, timestamps.type))
    position = batch.schema.get_field_index("timestamp")
    return batch.set_column(position, "timestamp", sound), pc.coalesce(reasons, faults)
