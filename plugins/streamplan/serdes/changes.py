"""The values in the repartition topic of a grouped table: what comes into a group, and what goes.

Source: ``ChangedSerializer`` and ``ChangedDeserializer`` of Kafka Streams 4.3.
tests/integration/testing/test_oracle.py compares with the library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamplan.serdes.columns import DecodedColumn, KeyColumn
from streamplan.serdes.field_types import FieldType, StructType, parse_type
from streamplan.serdes.rejection import or_each_value, rejects_values
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import MAX_BYTES, Serde, Undecodable, Value

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "changes"

_OLD, _NEW, _BOTH = 0, 1, 2
_SEVEN_BITS = 0x7F
_MORE = 0x80


def written_change(new: bytes | None, old: bytes | None) -> bytes:
    """Return the value of a record.

    Args:
        new: The value that comes into the group.
        old: The value that goes. At least one of both is there.
    """
    if new is None:
        assert old is not None, "a record of a repartition topic without a value"
        return old + bytes((_OLD,))
    if old is None:
        return new + bytes((_NEW,))
    return _varint(len(new)) + new + old + bytes((_BOTH,))


def parse_change(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the value that comes into the group and the one that goes.

    Raises:
        ValueError: The bytes are no value of such a topic.
    """
    match data[-1:]:
        case b"\0":
            return None, data[:-1]
        case b"\1":
            return data[:-1], None
        case b"\2":
            length, begin = _read_varint(data)
            if begin + length < len(data):
                return data[begin : begin + length], data[begin + length : -1]
    raise ValueError("the value is none of a grouped table's repartition topic")


def _varint(number: int) -> bytes:
    """Write a number that is not negative (``ByteUtils.writeVarint``, which doubles it)."""
    number, written = number << 1, bytearray()
    while number > _SEVEN_BITS:
        written.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    return bytes((*written, number))


def _read_varint(data: bytes) -> tuple[int, int]:
    """Read a number, and tell where it ends."""
    number = 0
    for place, byte in enumerate(data[:5]):
        number |= (byte & _SEVEN_BITS) << (7 * place)
        if byte < _MORE:
            return number >> 1, place + 1
    raise ValueError("the length of the new value is none")


@dataclass(frozen=True)
class Changes:
    """Reads and writes such values.

    Attributes:
        inner: The serde of the table's values.
    """

    inner: Serde

    @property
    def fields(self) -> Mapping[str, str]:
        """The value that comes, and the one that goes."""
        struct = StructType(tuple((name, parse_type(told)) for name, told in self.inner.fields.items()))
        return {"new": str(struct), "old": str(struct)}

    @property
    def allowed(self) -> Mapping[str, Mapping[Any, str]]:
        """No value is excluded: the table has judged them."""
        return {}

    @property
    def max_bytes(self) -> int:
        """The bound of all internal topics, in bytes."""
        return MAX_BYTES

    @property
    def format(self) -> str:
        """The format of a repartition topic of a grouped table."""
        return FORMAT

    def unrestricted(self) -> Changes:
        """The same without values that are allowed."""
        return Changes(self.inner.unrestricted())

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Changes:
        """The serde itself: the table knows the schemas of its values."""
        return self

    def prepare_to_read(self) -> None:
        """Make sure that values can be read."""
        self.inner.prepare_to_read()

    def prepare_to_write(self) -> None:
        """Nothing: the table's values are written as they are."""

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Read one value.

        Raises:
            Undecodable: The bytes are no such value, or the table's serde cannot read what they have.
        """
        try:
            new, old = parse_change(data or b"")
        except ValueError as error:
            raise Undecodable(str(error)) from error
        return {
            name: None if value is None else self.inner.decode(value) for name, value in (("new", new), ("old", old))
        }

    def encode(self, value: Value) -> bytes:
        """Write one value."""
        new, old = (None if value.get(name) is None else self.inner.encode(value[name]) for name in ("new", "old"))
        return written_change(new, old)

    @or_each_value
    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Read the values of many records."""
        from streamplan.serdes.arrow import binary_array, decode_each

        return decode_each(self, binary_array(values))

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Write a struct array of the declared fields."""
        from streamplan.serdes.arrow import encode_each

        return encode_each(self, values)

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """Refused: nothing is grouped by a field of these values."""
        raise ValueError("nothing is grouped by a field of a grouped table's repartition topic")

    def spark_expression(self, fields: Mapping[str, FieldType], prefix: str = "") -> str | None:
        """None: the state that has the old values writes them."""
        return None
