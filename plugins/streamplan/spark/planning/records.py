"""Records as a Spark DataFrame: the fields of the value as columns, and beside them the struct ``record``.

Expressions of a declaration are resolved against it as they stand. ``record`` has

``topic, partition, offset``  where the record was read; behind an aggregate only the task's partition
``timestamp``  of the record
``key``        string, holding the key's bytes as they are
``window``     behind a windowed aggregate: ``start``, ``end``
``headers, original_key, value``  of the record as it was read, in bytes
``reason``     why the record is rejected. It rides along, is touched by no operation, and ends in the dead-letter topic
``order``      the place of a record among those that flat_map made of one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from streamplan.errors import Refused
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.internal import repartition_serde, value_expression
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.compiled_plan import ArrowFunction, map_in_arrow
from streamplan.spark.sources import RAW

_FIELD_TYPES: Mapping[type[DataType], str] = {
    StringType: "string",
    IntegerType: "int",
    LongType: "bigint",
    DoubleType: "double",
    BooleanType: "boolean",
}


@dataclass(frozen=True)
class Frame:
    """``raw``: the value was not changed since it was read, so that its bytes go on as they are.

    ``clean``: no record is rejected; ``keyed``: none is without a key. ``serde``: reads the value where it is ``raw``;
    None for the value of a state store.
    """

    data: DataFrame
    raw: bool
    clean: bool = False
    keyed: bool = False
    serde: Serde | None = None

    @property
    def fields(self) -> list[str]:
        return [name for name in self.data.columns if name != "record"]

    @property
    def value(self) -> Column:
        """The value in bytes."""
        if self.raw:
            return F.col("record.value")
        return F.expr(value_expression(self.fields))

    @property
    def schema(self) -> Serde:
        """The serde of a topic that the values are written to and read from again.

        Raises :class:`Refused` for a field of a type that does not come back from such a topic as what it was.
        """
        if self.raw and self.serde is not None:
            return self.serde.unrestricted()
        kinds = {field.name: field.dataType for field in self.data.schema.fields if field.name != "record"}
        strange = {name: kind for name, kind in kinds.items() if type(kind) not in _FIELD_TYPES}
        wrong = [f"{name} is of type {kind.simpleString()}" for name, kind in strange.items()]
        if wrong:
            raise Refused(
                f"a repartition topic cannot carry that {', '.join(wrong)}",
                remedy=f"Cast it before to one of {', '.join(_FIELD_TYPES.values())}.",
            )
        return repartition_serde({name: _FIELD_TYPES[type(kind)] for name, kind in kinds.items()})

    def with_record(self, record: Column) -> Frame:
        return replace(self, data=self.data.withColumn("record", record))

    def good(self) -> Frame:
        """Without the rejected records."""
        return self if self.clean else replace(self, data=self.data.where("record.reason is null"), clean=True)

    def valued(self) -> Frame:
        """Without the deletions that a table passes on: aggregations and joins of Kafka Streams pass over them."""
        if not self.raw:
            return self
        has_value = F.col("record.value").isNotNull()
        return replace(
            self, data=self.data.where(has_value if self.clean else F.col("record.reason").isNotNull() | has_value)
        )

    def rejected(self) -> DataFrame:
        return self.data.where("record.reason is not null")

    def rejecting(self, condition: Column, reason: str | Column) -> Frame:
        """With further records rejected: those for which ``condition`` is true."""
        why = F.lit(reason) if isinstance(reason, str) else reason
        found = F.coalesce(F.col("record.reason"), F.when(condition, why))
        return replace(self.with_record(F.col("record").withField("reason", found)), clean=False)

    def select(self, columns: Sequence[tuple[str, str]], key: str | None = None) -> Frame:
        """A new value, and a new key where one is given, from expressions over the old ones."""
        record = F.col("record") if key is None else self._rekeyed(key)
        made = [self._live(F.expr(expression)).alias(name) for name, expression in columns]
        data = self.data.select(*made, record.alias("record"))
        return replace(self, data=data, raw=False, keyed=self.keyed and key is None, serde=None)

    def with_key(self, key: str) -> Frame:
        return replace(self.with_record(self._rekeyed(key)), keyed=False)

    @property
    def windowed(self) -> bool:
        """Whether the key is one of a window."""
        return "window" in cast(StructType, self.data.schema["record"].dataType).names

    def _rekeyed(self, key: str) -> Column:
        """A new key has no window."""
        record = F.col("record").withField("key", self._live(F.expr(key).cast("string")))
        return record.dropFields("window") if self.windowed else record

    def where(self, condition: str) -> Frame:
        self.data.where(condition)  # Spark judges it as it was written: its words are then not about what we make of it
        passed = F.coalesce(F.expr(condition), F.lit(False))
        if not self.clean:
            passed = F.col("record.reason").isNotNull() | passed
        return replace(self, data=self.data.where(passed))

    def exploded(self, each: str, columns: Sequence[tuple[str, str]], key: str) -> Frame:
        """One row for each element; a rejected one stays one."""
        elements = F.expr(each)
        if not self.clean:
            # The rejected row needs an element to survive: null, of whatever type the elements are.
            kind = cast(ArrayType, self.data.select(elements.alias("each")).schema["each"].dataType)
            nothing = F.array(F.lit(None)).cast(ArrayType(kind.elementType, containsNull=True))
            elements = F.when(F.col("record.reason").isNull(), elements).otherwise(nothing)
        rows = self.data.select("*", F.posexplode(elements).alias("_position", "element"))
        order = F.concat(F.col("record.order"), F.array(F.col("_position")))
        rows = rows.withColumn("record", F.col("record").withField("order", order)).drop("_position")
        return replace(self, data=rows).select(columns, key)

    def union(self, other: Frame) -> Frame:
        raw = self.raw and other.raw and _format(self.serde) == _format(other.serde)
        clean, keyed = self.clean and other.clean, self.keyed and other.keyed
        return Frame(self.data.unionByName(other.data), raw, clean, keyed, self.serde if raw else None)

    def _live(self, column: Column) -> Column:
        return column if self.clean else F.when(F.col("record.reason").isNull(), column)


def _format(serde: Serde | None) -> str | None:
    return None if serde is None else serde.format


def read_frame(raw: DataFrame, serde: Serde, *, table: bool = False) -> Frame:
    """The records of a topic. ``raw`` has the columns :data:`RAW`. In a ``table`` a null value is no fault."""
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in serde.fields.items())
    read = map_in_arrow(raw, _reader(serde, table), f"{RAW}, fields struct<{fields}>, reason string")
    return Frame(read.select("fields.*", _record(read, F.col("reason")).alias("record")), raw=True, serde=serde)


def unread_frame(raw: DataFrame) -> Frame:
    """The records of a topic of ours, of which nobody looks at the value."""
    return Frame(raw.select(_record(raw, F.lit(None).cast("string")).alias("record")), raw=True, clean=True, keyed=True)


def trusted(frame: Frame) -> Frame:
    """Of a topic of ours: what is in it was read, or written, by us before."""
    return replace(frame, clean=True, keyed=True)


def _record(data: DataFrame, reason: Column) -> Column:
    return F.struct(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("key").cast("string").alias("key"),
        "headers",
        F.col("key").alias("original_key"),
        "value",
        reason.alias("reason"),
        F.array().cast("array<int>").alias("order"),
    )


def _reader(serde: Serde, table: bool) -> ArrowFunction:
    kind = struct_type(serde.fields)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = batch["value"]
            decoded = serde.decode_column(values)
            reasons = [decoded.rejected.get(row) for row in range(batch.num_rows)]
            columns = [*batch.columns, decoded.fields.cast(kind), pa.array(reasons, pa.string())]
            if table:  # A null value deletes its key.
                columns[-1] = pc.if_else(pc.is_null(values), pa.scalar(None, pa.string()), columns[-1])
                columns[-1] = pc.if_else(pc.is_null(batch["key"]), pa.scalar("the key is null"), columns[-1])
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "fields", "reason"])

    return read
