"""Values that a serde of the declaration writes, in Python: Spark has no expression for its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.serdes.arrow import python_values, struct_type
from streamplan.serdes.field_types import ArrayType, FieldType, MapType, Scalar, StructType, parse_type
from streamplan.serdes.primitive import FIELD, Primitive
from streamplan.serdes.reason import text_of
from streamplan.serdes.serde import Serde
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import declared_fields, declared_type
from streamplan.spark.planning.records import RecordFrame

HAS_VALUE = "_has_value"


def write_values(frame: RecordFrame, serde: Serde) -> RecordFrame:
    """Give records the bytes that a serde writes. A record whose value it cannot write is rejected with the reason.

    Args:
        frame: The records.
        serde: Writes all fields of their values. One of a single text or number writes a field of any name.

    Raises:
        Refused: A field has another type than the serde writes.
    """
    of_one = isinstance(serde, Primitive) and len(frame.fields) == 1
    names = dict(zip(serde.fields, frame.fields if of_one else serde.fields, strict=True))
    _require_types(frame, serde, names)
    if of_one:
        frame = replace(frame, data=frame.data.withColumnRenamed(frame.fields[0], FIELD))
    run = written_batches(serde)
    has_value = ~frame.has_no_value
    if isinstance(serde, Primitive):  # a null text or number is a null value, as for the serializers of Kafka
        has_value &= F.col(FIELD).isNotNull()
    marked = frame.data.withColumn(HAS_VALUE, has_value)
    columns = ", ".join(f"`{field.name}` {declared_type(field.dataType)}" for field in frame.data.schema.fields)
    return replace(
        frame,
        data=map_in_arrow(marked, run, columns),
        value_is_raw=True,
        no_rejects=False,
        serde=serde,
        format=serde.format,
    )


def written_batches(serde: Serde) -> ArrowFunction:
    """Return what gives the records of Arrow batches the bytes that a serde writes.

    The column :data:`HAS_VALUE` of a batch tells whether each record has a value.

    Args:
        serde: Writes the fields of the batches that it has.
    """
    fields_type = struct_type(serde.fields)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            records = batch["record"]
            columns = [batch[name].cast(fields_type.field(name).type) for name in serde.fields]
            rejected = pc.struct_field(records, "reason").to_pylist()
            original = pc.struct_field(records, "value").to_pylist()
            values, faults = python_values(pa.RecordBatch.from_arrays(columns, names=[*serde.fields]))
            for row, has_value in enumerate(batch[HAS_VALUE].to_pylist()):
                if rejected[row] is None:
                    try:
                        if has_value and row in faults:
                            raise ValueError(faults[row])
                        data = serde.encode(values[row]) if has_value else None
                    except ValueError as error:
                        rejected[row] = f"the value cannot be written: {text_of(error)}"
                    else:
                        original[row] = data
            replaced = {"value": pa.array(original, pa.binary()), "reason": pa.array(rejected, pa.string())}
            parts = [
                replaced.get(field.name, part) for field, part in zip(records.type, records.flatten(), strict=True)
            ]
            written = pa.StructArray.from_arrays(parts, fields=list(records.type))
            yield batch.set_column(
                batch.schema.get_field_index("record"), batch.schema.field("record"), written
            ).drop_columns([HAS_VALUE])

    return run


def _require_types(frame: RecordFrame, serde: Serde, names: Mapping[str, str]) -> None:
    """Refuse fields of other types.

    Args:
        names: By each field that the serde writes the field of the records.
    """
    types = declared_fields(frame.data)
    faults = [
        f"{names[name]} is of type {types[names[name]]}, and the serde writes {text}"
        for name, text in serde.fields.items()
        if not _is_written_as(types[names[name]], parse_type(text))
    ]
    if faults:
        raise Refused("; ".join(faults), remedy="Cast it in a map_values before.")


def _is_written_as(field_type: FieldType, written: FieldType) -> bool:
    """Whether each value of a type is one of another type. The parts of a struct may have another order."""
    match field_type, written:
        case StructType(fields=fields), StructType(fields=others):
            parts, other_parts = dict(fields), dict(others)
            return parts.keys() == other_parts.keys() and all(
                _is_written_as(part, other_parts[name]) for name, part in parts.items()
            )
        case ArrayType(element=part), ArrayType(element=other):
            return _is_written_as(part, other)
        case MapType(value=part), MapType(value=other):
            return _is_written_as(part, other)
    return field_type == written or (field_type, written) == (Scalar("int"), Scalar("bigint"))
