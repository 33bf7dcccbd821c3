"""Keys as expressions see them, and their bytes: what the serdes of keys do, on Spark's native expressions.

Key bytes travel: topics, partitions and the stores of aggregations know nothing else. An operation sees ``record.key``
in the type of the serde.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.serdes.field_types import FieldType, StructType
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import UUID, UUID_PATTERN, Bytes, Double, Integer, KeySerde, Long, String
from streamplan.serdes.windowed import Windowed
from streamplan.spark.planning.field_types import declared_type

_UUID_BYTES = 36

_SIZE = "SIZE"
"""Stands for a number of bytes in a reason."""

_NUMBER_BYTES = {"int": 4, "bigint": 8, "double": 8}
"""By the type of a key the bytes that its serde writes."""

_TAKEN = {
    "int": ("tinyint", "smallint", "int"),
    "bigint": ("tinyint", "smallint", "int", "bigint"),
    "double": ("float", "double"),
    "string": ("string",),
    "boolean": ("boolean",),
    "binary": ("binary",),
}
"""By the type of a key the types of expressions each value of which is such a key."""


def read_key(serde: KeySerde, data: Column) -> Column:
    """Return a key in the type of its serde; null for bytes that are no such key.

    Args:
        serde: The serde of the key.
        data: The key in bytes.
    """
    match serde:
        case Integer():
            unsigned = number_of(data)
            return _if_fits(serde, data, F.shiftright(F.shiftleft(unsigned, 32), 32).cast("int"))
        case Long():
            return _if_fits(serde, data, number_of(data))
        case Double():
            number = F.java_method(F.lit("java.lang.Double"), F.lit("longBitsToDouble"), number_of(data)).cast("double")
            return _if_fits(serde, data, number)
        case UUID():
            return F.lower(data.cast("string"))
        case Bytes():
            return data
        case Json():
            return F.from_json(data.cast("string"), serde.field_type)
        case Windowed():
            return _windowed_key(serde, data)
    return data.cast("string")


def write_key(serde: KeySerde, key: Column) -> Column:
    """Return a key in bytes.

    Args:
        serde: The serde of the key.
        key: The key in the type of the serde.
    """
    match serde:
        case Integer():
            return F.unhex(F.right(F.lpad(F.hex(key), 16, "0"), F.lit(8)))
        case Long():
            return big_endian(key)
        case Double():
            bits = F.java_method(F.lit("java.lang.Double"), F.lit("doubleToLongBits"), key).cast("bigint")
            return F.when(key.isNotNull(), big_endian(bits))
        case Json():
            return F.to_json(key).cast("binary")
        case Windowed():
            bounds = (big_endian(key.getField(name)) for name in serde.bounds)
            return F.concat(write_key(key_alone(serde), key.getField("key")), *bounds)
    return key.cast("binary")


def key_fault(serde: KeySerde, data: Column) -> Column | None:
    """Return why bytes are no key of a serde, null for those that are one; None where all bytes are one.

    The reasons are those of the serde's ``read_key``.

    Args:
        serde: The serde of the key.
        data: The key in bytes.
    """
    match serde:
        case UUID():
            is_uuid = (F.octet_length(data) == _UUID_BYTES) & data.cast("string").rlike(f"^{UUID_PATTERN}$")
            return F.when(~is_uuid, F.lit("the key is no UUID of 36 characters"))
        case Json():
            read = read_key(serde, data)
            is_key = reduce(and_, (read.getField(name).isNotNull() for name in serde.fields))
            is_key &= write_key(serde, read).eqNullSafe(data)
            return F.when(data.isNotNull() & ~is_key, F.lit(f"the key is not as {serde.name} writes it"))
        case Windowed():
            size = F.octet_length(data)
            before, _, behind = serde.fault_of_size(_SIZE).partition(_SIZE)
            too_short = F.concat(F.lit(before), size, F.lit(behind))
            fault = key_fault(key_alone(serde), _without_window(serde, data))
            no_key = F.lit(None).cast("string") if fault is None else fault
            return F.when(size < F.lit(serde.window_bytes), too_short).otherwise(no_key)
        case Integer() | Long() | Double():
            size = F.octet_length(data)
            expected = _NUMBER_BYTES[serde.field_type]
            reason = F.concat(F.lit("the key has "), size, F.lit(f" bytes; {serde.name} has {expected}"))
            wrong_size = F.when(size != F.lit(expected), reason)
            if not isinstance(serde, Double):
                return wrong_size
            number = read_key(serde, data)
            text = F.replace(F.lower(number.cast("string")), F.lit("inity"), F.lit(""))
            no_number = F.concat(F.lit("the key is "), text, F.lit(", which is no number"))
            return F.coalesce(
                wrong_size, F.when(F.isnan(number) | (F.abs(number).eqNullSafe(F.lit(float("inf")))), no_number)
            )
    return None


def new_key(serde: KeySerde, data: DataFrame, expression: str) -> tuple[Column, Column | None]:
    """Return the key that an expression gives, in the type of a serde, and the reason of one that the serde rejects.

    Args:
        serde: The serde of the key. ``String()`` takes the text of any value.
        data: The records.
        expression: Spark SQL.

    Raises:
        Refused: The expression has values that the serde cannot write.
    """
    value = F.expr(expression)
    if isinstance(serde, String):
        return value.cast("string"), None
    of_value = declared_type(data.select(value.alias("key")).schema["key"].dataType)
    if not _takes(serde, of_value):
        remedy = f"Cast it: cast({expression} as {serde.field_type})."
        if isinstance(serde, Json | Windowed):
            remedy = f"Give it these fields, in this order: struct({', '.join(serde.fields)})."
        if isinstance(serde, Windowed):
            start = "unix_millis(record.window.start) as start"
            remedy = f"Give it these fields, in this order: struct({', '.join(serde.fields)}). For example {start}."
        raise Refused(f"the key is of type {of_value}, and {serde.name} writes {serde.field_type}", remedy=remedy)
    key = value.cast(serde.field_type)
    if isinstance(serde, Json | Windowed):
        faults = [F.when(key.getField(name).isNull(), F.lit(f"the key has no {name}")) for name in serde.fields]
        if isinstance(serde, Windowed) and isinstance(serde.key, UUID | Double):
            written = write_key(serde, key)
            if (fault := key_fault(serde, written)) is not None:
                faults.append(fault)
            key = read_key(serde, written)
        return key, F.when(key.isNotNull(), F.coalesce(*faults))
    if not isinstance(serde, UUID | Double):
        return key, None
    written = write_key(serde, key)
    return read_key(serde, written), key_fault(serde, written)


def _takes(serde: KeySerde, of_value: FieldType) -> bool:
    """Whether each value of a type is a key of a serde."""
    if isinstance(serde, Windowed):
        types = {**dict.fromkeys(serde.fields, "bigint"), "key": serde.key.field_type}
    elif isinstance(serde, Json):
        types = dict(serde.fields)
    else:
        return str(of_value) in (*_TAKEN[serde.field_type], "void")
    if not isinstance(of_value, StructType):
        return str(of_value) == "void"
    names = [name for name, _ in of_value.fields]
    return names == [*types] and all(
        str(of_part) in (*_TAKEN[types[name]], "void") for name, of_part in of_value.fields
    )


def key_alone(serde: Windowed) -> KeySerde:
    """Return the serde of the key in a key with a window."""
    return cast("KeySerde", serde.key)


def _without_window(serde: Windowed, data: Column) -> Column:
    return F.substring(data, F.lit(1), F.octet_length(data) - F.lit(serde.window_bytes))


def _windowed_key(serde: Windowed, data: Column) -> Column:
    """The struct of a key and its window; null for bytes that are too few."""
    parts = {"key": read_key(key_alone(serde), _without_window(serde, data))}
    for place, name in enumerate(serde.bounds):
        behind = F.lit(serde.window_bytes - 8 * place - 1)
        parts[name] = number_of(F.substring(data, F.octet_length(data) - behind, F.lit(8)))
    read = F.struct(*(parts[name].alias(name) for name in serde.fields))
    return F.when(F.octet_length(data) >= F.lit(serde.window_bytes), read)


def big_endian(number: Column) -> Column:
    """Return a whole number in 8 bytes, as Java writes it."""
    return F.unhex(F.lpad(F.hex(number), 16, "0"))


def number_of(data: Column) -> Column:
    """Return the number that bytes hold, big-endian; a negative one only where there are eight."""
    return F.conv(F.hex(data), 16, -10).cast("bigint")  # to a negative base: signed


def number_in_key(bytes_before_end: int) -> Column:
    """Return the number of 8 bytes in the column ``key`` that begins so many bytes before its end."""
    return number_of(F.expr(f"substring(key, octet_length(key) - {bytes_before_end - 1}, 8)"))


def _if_fits(serde: KeySerde, data: Column, key: Column) -> Column:
    """A key that is computed only where its bytes are as many as the serde writes."""
    return F.when(F.octet_length(data) == _NUMBER_BYTES[serde.field_type], key)
