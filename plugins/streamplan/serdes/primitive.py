"""Keys and values that are one text or one number, in the bytes of Kafka's own serdes (``Serdes.String()``, ...).

The one field of a value is named ``value``. Expressions see a key as ``record.key``. Numbers are big-endian, as Java
writes them.
"""

from __future__ import annotations

import math
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

from streamplan.judged import judged_constructor
from streamplan.judged_words import completed, shown
from streamplan.serdes.field_types import FieldType, StructType, parse_type
from streamplan.serdes.json import Json
from streamplan.serdes.rejection import or_each_value, refuses_values, rejects_values
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import MAX_BYTES, WORDS, Undecodable, Value
from streamplan.serdes.windowed import SessionWindowed, TimeWindowed

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    from streamplan.serdes.columns import DecodedColumn, KeyColumn

    K = TypeVar("K", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")

FIELD = "value"
"""The name of the field."""

UUID_PATTERN = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
"""The text of a UUID, as a regular expression in the words of Python, Java and Arrow."""


@dataclass(frozen=True, repr=False)
class Primitive(Generic[K]):
    """What the serdes of this module share; each is a :class:`streamplan.serdes.serde.Serde`, and one of keys.

    Attributes:
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
    """

    max_bytes: int = MAX_BYTES

    field_type: ClassVar[str]
    """The type of the field, or of the key, in Spark's DDL."""

    key_type: ClassVar[str]
    """The name of the serde of keys on the command line."""

    # -- keys

    @property
    def name(self) -> str:
        """The name of the serde, as people read it."""
        return type(self).__name__

    @property
    def declaration(self) -> str:
        """The serde as a declaration has it."""
        return f"{self.name}()"

    def read_key(self, data: bytes) -> K:
        """Reads one key.

        Raises:
            Undecodable: The bytes are no such key.
        """
        try:
            key: K = self._value(data)
            return key
        except ValueError as error:
            raise Undecodable(f"the key {error}") from error

    def __repr__(self) -> str:
        """The serde as a declaration has it."""
        return shown(self)

    def __dir__(self) -> list[str]:
        """What is declared, how values are read and written, and what Python has."""
        return completed(self, *WORDS)

    def write_key(self, key: Any) -> bytes:
        """Writes one key. Raises ValueError where the serde has no such key."""
        return self._bytes(key)

    def key_text(self, key: Any) -> str:
        """A key that was read, as people read and write it."""
        return str(key)

    def key_of_text(self, text: str) -> Any:
        """Parses a key that a person typed. Raises ValueError where the text is no such key."""
        return text

    # -- values

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

    def unrestricted(self) -> Primitive:
        """The serde itself: it excludes no value."""
        return self

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Primitive:
        """The serde itself: its values name no schema."""
        return self

    def prepare_to_read(self) -> None:
        """Nothing: values can always be read."""

    def prepare_to_write(self) -> None:
        """Nothing: every reader knows the format."""

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value.

        Raises:
            Undecodable: The bytes are no such value.
        """
        if data is None:
            raise Undecodable("the value is null")
        try:
            return {FIELD: self._value(data)}
        except ValueError as error:
            raise Undecodable(f"the value {error}") from error

    @refuses_values
    def encode(self, value: Value) -> bytes:
        """Writes one value. Raises ValueError where the field is None or has no such form."""
        return self._bytes(value.get(FIELD))

    @or_each_value
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
        """One key or value. Raises ValueError with what it is or has that it should not."""
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


@judged_constructor
@dataclass(frozen=True, repr=False)
class String(Primitive[str]):
    """A text in UTF-8, as ``StringSerializer`` writes it by default.

    Example: ``topology.stream("lines", value=String()).flat_map("split(value, ' ')", key="element", value={"word":
    "element"})``

    A value that is not UTF-8 is rejected. ``StringDeserializer`` puts a replacement character in its place.
    """

    field_type: ClassVar[str] = "string"
    key_type: ClassVar[str] = "string"

    def _value(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError("is not UTF-8") from error

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


@dataclass(frozen=True, repr=False)
class _Number(Primitive[K]):
    code: ClassVar[str]
    """The form of the bytes, in the words of :mod:`struct`, which NumPy has too."""

    def _value(self, data: bytes) -> int | float:
        if len(data) != len(self._some_value):
            size = len(self._some_value)
            raise ValueError(f"has {len(data)} bytes; {self.name} has {size}")
        number: int | float = struct.unpack(self.code, data)[0]
        if not math.isfinite(number):
            raise ValueError(f"is {number}, which is no number")
        return number

    def _bytes(self, value: Any) -> bytes:
        try:
            return struct.pack(self.code, value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value!r} is no {self.name}") from error

    def key_of_text(self, text: str) -> int | float:
        """The number that people write so; see :meth:`Primitive.key_of_text`."""
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{text!r:.60} is not a whole number") from None

    @property
    def _some_value(self) -> bytes:
        return bytes(struct.calcsize(self.code))

    def _column(self, values: pa.Array) -> pa.Array:
        from streamplan.serdes.arrow import numbers_of

        return numbers_of(values, self.code)


@judged_constructor
@dataclass(frozen=True, repr=False)
class Integer(_Number[int]):
    """A whole number in 4 bytes, as ``IntegerSerializer`` writes it.

    Example: ``topology.stream("readings", value=Integer()).filter("value > 0")``
    """

    field_type: ClassVar[str] = "int"
    key_type: ClassVar[str] = "int"
    code: ClassVar[str] = ">i"


@judged_constructor
@dataclass(frozen=True, repr=False)
class Long(_Number[int]):
    """A whole number in 8 bytes, as ``LongSerializer`` writes it: the value of a count, for example.

    Example: ``stream.select_key("amount", key_serde=Long())``
    """

    field_type: ClassVar[str] = "bigint"
    key_type: ClassVar[str] = "long"
    code: ClassVar[str] = ">q"


@judged_constructor
@dataclass(frozen=True, repr=False)
class Double(_Number[float]):
    """A floating-point number in 8 bytes, as ``DoubleSerializer`` writes it. NaN and the infinities are rejected.

    Example: ``topology.stream("temperatures", value=Double()).filter("value > 30")``
    """

    field_type: ClassVar[str] = "double"
    key_type: ClassVar[str] = "double"
    code: ClassVar[str] = ">d"

    def key_of_text(self, text: str) -> float:
        """The number that people write so; see :meth:`Primitive.key_of_text`."""
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{text!r:.60} is not a number") from None


@judged_constructor
@dataclass(frozen=True, repr=False)
class UUID(Primitive[str]):
    """A UUID as text of 36 characters, as ``UUIDSerializer`` writes it. Expressions see text in lower case.

    Example: ``topology.stream("clicks", value=Json("page string"), key_serde=UUID())``

    Text that has another form is rejected.
    """

    field_type: ClassVar[str] = "string"
    key_type: ClassVar[str] = "uuid"

    def _value(self, data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        if re.fullmatch(UUID_PATTERN, text) is None:
            raise ValueError("is no UUID of 36 characters")
        return text.lower()

    def _bytes(self, value: Any) -> bytes:
        text = str(value) if isinstance(value, str | uuid.UUID) else ""
        if re.fullmatch(UUID_PATTERN, text) is None:
            raise ValueError(f"{value!r} is no UUID")
        return text.lower().encode()

    @property
    def _some_value(self) -> bytes:
        return str(uuid.UUID(int=0)).encode()

    def _column(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = values.cast(pa.string())
        # The pattern's end would also match before a line break.
        fits = pc.and_(pc.match_substring_regex(texts, f"^{UUID_PATTERN}$"), pc.equal(pc.binary_length(values), 36))
        if not pc.all(fits).as_py():
            raise pa.ArrowInvalid("a value is no UUID")
        return pc.utf8_lower(texts)


@judged_constructor
@dataclass(frozen=True, repr=False)
class Bytes(Primitive[bytes]):
    """Any bytes, as ``ByteArraySerializer`` and ``BytesSerializer`` write them.

    Example: ``topology.stream("images", value=Bytes()).to("copied")``

    The field of such a value is binary. ``to(topic, value=Bytes())`` writes a new value with a binary field, which a
    repartition topic does not have.
    """

    field_type: ClassVar[str] = "binary"
    key_type: ClassVar[str] = "bytes"

    def key_text(self, key: Any) -> str:
        """The bytes in hexadecimal digits; see :meth:`Primitive.key_text`."""
        return bytes(key).hex()

    def key_of_text(self, text: str) -> bytes:
        """The bytes of hexadecimal digits; see :meth:`Primitive.key_of_text`."""
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ValueError(f"{text!r:.60} is not in hexadecimal digits, two for each byte") from None

    def _value(self, data: bytes) -> bytes:
        return data

    def _bytes(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray):
            raise ValueError(f"{value!r} is no bytes")
        return bytes(value)

    @property
    def _some_value(self) -> bytes:
        return b""

    def _column(self, values: pa.Array) -> pa.Array:
        return values


KeySerde: TypeAlias = String | Integer | Long | Double | UUID | Bytes | Json[Any] | TimeWindowed | SessionWindowed
"""The serdes of keys."""

STRING = String()
"""The serde of keys without a declared one."""

KEY_SERDES: Mapping[str, KeySerde] = {
    serde.key_type: serde for serde in (STRING, Integer(), Long(), Double(), UUID(), Bytes())
}
"""The serdes of keys of one text or one number, by their names on the command line."""


def key_serde_of_type(key_type: str) -> KeySerde:
    """Return the serde of keys that has a name.

    Args:
        key_type: Its ``key_type``: one of :data:`KEY_SERDES`, the type of a struct, or that of a windowed serde.
    """
    if key_type in KEY_SERDES:
        return KEY_SERDES[key_type]
    for kind in (TimeWindowed, SessionWindowed):
        if key_type.startswith(f"{kind.__name__}("):
            return kind(key_serde_of_type(key_type[len(kind.__name__) + 1 : -1]))  # type: ignore[arg-type]
    of_key = parse_type(key_type)
    assert isinstance(of_key, StructType), f"{key_type} names no serde of keys"
    return Json(", ".join(f"{name} {of_field}" for name, of_field in of_key.fields))
