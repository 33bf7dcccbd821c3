"""Values that are one text or one number, in the bytes of Kafka's own serdes (``Serdes.String()``, ``Serdes.Long()``).

Their one field is named ``value``. Numbers are big-endian, as Java writes them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from streamplan.serdes.field_types import FieldType
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import MAX_BYTES, Undecodable, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn, KeyColumn

FIELD = "value"
"""The name of the field."""


@dataclass(frozen=True)
class _Primitive:
    """What the serdes of this module share; each is a :class:`streamplan.serdes.serde.Serde`.

    Attributes:
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
    """

    max_bytes: int = MAX_BYTES

    field_type: ClassVar[str]
    """The type of the field, in Spark's DDL."""

    @property
    def fields(self) -> Mapping[str, str]:
        """The one field and its type."""
        return {FIELD: self.field_type}

    @property
    def allowed(self) -> Mapping[str, Mapping[Any, str]]:
        """No value is excluded."""
        return {}

    @property
    def format(self) -> str:
        """Only serdes of the same class read each other's bytes."""
        return type(self).__name__.lower()

    def unrestricted(self) -> _Primitive:
        """The serde itself: it excludes no value."""
        return self

    def with_schemas(self, schemas: SchemaSource, topic: str) -> _Primitive:
        """The serde itself: its values name no schema."""
        return self

    def prepare_to_read(self) -> None:
        """Nothing: values can always be read."""

    def prepare_to_write(self) -> None:
        """Nothing: every reader knows the format."""

    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value.

        Raises:
            Undecodable: The bytes are no such value.
        """
        if data is None:
            raise Undecodable("the value is null")
        return {FIELD: self._value(data)}

    def encode(self, value: Value) -> bytes:
        """Writes one value. Raises ValueError where the field is None or has no such form."""
        return self._bytes(value.get(FIELD))

    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records, nulls allowed: whole, or one by one where a value cannot be read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from streamplan.serdes.arrow import binary_array, decode_again, decode_each, struct_type, true_rows

        values = binary_array(values)
        try:
            column = self._column(values.fill_null(self._some_value) if values.null_count else values)
        except pa.ArrowInvalid:  # one is no such value
            return decode_each(self, values)
        doubtful = pc.is_null(values)
        if pa.types.is_floating(column.type):
            doubtful = pc.or_(doubtful, pc.invert(pc.is_finite(column)))
        fields = pa.StructArray.from_arrays([column], fields=list(struct_type(self.fields)))
        return decode_again(self, values, fields, true_rows(doubtful))

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Writes a struct array of the field as a binary array."""
        from streamplan.serdes.arrow import encode_each

        return encode_each(self, values)

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """The keys that grouping by ``field`` gives these values."""
        from streamplan.serdes.arrow import key_column

        return key_column(self, field, values)

    def spark_expression(self, fields: Mapping[str, FieldType], prefix: str = "") -> str | None:
        """None: Spark writes the values of a topology as JSON."""
        return None

    def _value(self, data: bytes) -> Any:
        raise NotImplementedError

    def _bytes(self, value: Any) -> bytes:
        raise NotImplementedError

    @property
    def _some_value(self) -> bytes:
        """Any value that can be read."""
        raise NotImplementedError

    def _column(self, values: pa.Array) -> pa.Array:
        """The field of values none of which is null. Raises ``pa.ArrowInvalid`` where one cannot be read."""
        raise NotImplementedError


@dataclass(frozen=True)
class String(_Primitive):
    """A text in UTF-8, as ``StringSerializer`` writes it by default.

    Example: ``topology.stream("lines", value=String()).flat_map("split(value, ' ')", key="element", value=…)``

    A value that is not UTF-8 is rejected. ``StringDeserializer`` puts a replacement character in its place.
    """

    field_type: ClassVar[str] = "string"

    def _value(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Undecodable("the value is not UTF-8") from error

    def _bytes(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no text")
        return value.encode("utf-8")

    @property
    def _some_value(self) -> bytes:
        return b""

    def _column(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        return values.cast(pa.string())


@dataclass(frozen=True)
class _Number(_Primitive):
    code: ClassVar[str]
    """The form of the bytes, in the words of :mod:`struct`, which NumPy has too."""

    def _value(self, data: bytes) -> int | float:
        if len(data) != len(self._some_value):
            size = len(self._some_value)
            raise Undecodable(f"the value has {len(data)} bytes; {type(self).__name__} has {size}")
        number: int | float = struct.unpack(self.code, data)[0]
        if not math.isfinite(number):
            raise Undecodable(f"the value is {number}, which is no number")
        return number

    def _bytes(self, value: Any) -> bytes:
        try:
            return struct.pack(self.code, value)
        except struct.error as error:
            raise ValueError(f"{value!r} is no {type(self).__name__}") from error

    @property
    def _some_value(self) -> bytes:
        return bytes(struct.calcsize(self.code))

    def _column(self, values: pa.Array) -> pa.Array:
        from streamplan.serdes.arrow import numbers_of

        return numbers_of(values, self.code)


@dataclass(frozen=True)
class Integer(_Number):
    """A whole number in 4 bytes, as ``IntegerSerializer`` writes it."""

    field_type: ClassVar[str] = "int"
    code: ClassVar[str] = ">i"


@dataclass(frozen=True)
class Long(_Number):
    """A whole number in 8 bytes, as ``LongSerializer`` writes it: the value of a count, for example."""

    field_type: ClassVar[str] = "bigint"
    code: ClassVar[str] = ">q"


@dataclass(frozen=True)
class Double(_Number):
    """A floating-point number in 8 bytes, as ``DoubleSerializer`` writes it. NaN and the infinities are rejected."""

    field_type: ClassVar[str] = "double"
    code: ClassVar[str] = ">d"
