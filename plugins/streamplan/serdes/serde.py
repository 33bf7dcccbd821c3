"""The protocol of a serde: how the bytes of a record's value become fields, and fields bytes.

Operations and checks know this protocol only. A new format is one more module beside this one, with a class that
implements :class:`Serde`; :mod:`streamplan.serdes.json` is the first. This module imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from streamplan.errors import StreamplanError
from streamplan.kafka_types import Headers
from streamplan.serdes.columns import DecodedColumn, KeyColumn
from streamplan.serdes.field_types import FieldType
from streamplan.serdes.reason import harmless, text_of
from streamplan.serdes.schema_source import SchemaSource

if TYPE_CHECKING:
    import pyarrow as pa

Value: TypeAlias = Mapping[str, Any]
"""The fields of a value by their names. A field that is absent or null is None."""

KEY_FIELD_TYPES = ("string", "int", "bigint", "boolean")
"""The types of fields that can become a key: each value has one text, the same in Spark as in Python.

A double has many texts, and Spark's text of a timestamp depends on its time zone.
"""

MAX_BYTES = 1_048_000
"""The bytes of key, value and headers that fit, uncompressed, into a topic's ``max.message.bytes``.

The brokers' default of it is 1048588.
"""

HEADER_LENGTH_BYTES = 6
"""The most bytes that the lengths of a header's name and of its value take in a record."""


OF_THE_DEPLOYMENT = (StreamplanError, OSError, ImportError, MemoryError)
"""What stops a query: no other value would be read better. All else is the fault of a value."""

_SHOWN_OF_ERROR = 300
"""The most characters of an unexpected error that stand in a reason."""


WORDS = ("decode", "encode", "fields")
"""What users of a serde call."""


class Undecodable(ValueError):
    """A value that cannot be read. ``str()`` is the reason, as it stands in the dead-letter record."""

    def __init__(self, reason: str) -> None:
        super().__init__(harmless(reason))


class Serde(Protocol):
    """Reads and writes the values of a topic.

    Example::

        def fields_of(value: Serde) -> list[str]:
            return [*value.fields]

        fields_of(Json("id string, amount bigint"))

    An implementation is a frozen dataclass. So equal declarations are equal, and it can be pickled: Spark
    sends it to its workers. ``repr()`` is short. A method that needs pyarrow imports it, so that importing a
    declaration does not import pyarrow.
    """

    @property
    def fields(self) -> Mapping[str, str]:
        """Field name to type, in the words of :mod:`streamplan.serdes.field_types`.

        Raises:
            ValueError: The declaration is wrong.
        """

    @property
    def allowed(self) -> Mapping[str, Mapping[Any, str]]:
        """For a field the values that are allowed, each with its label. A field without an entry takes any value."""

    @property
    def max_bytes(self) -> int:
        """The most bytes that a value, its new key and the record's headers may have together."""

    @property
    def format(self) -> str:
        """Names the encoding: serdes of equal formats read each other's bytes, each its own fields of them."""

    def unrestricted(self) -> Serde:
        """The same without :attr:`allowed`, for a topic of ours: its values were judged before they were written."""

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Serde:
        """The same for the values of a topic, with the schemas that they name. Most formats name none.

        Args:
            topic: The name of the topic in Kafka.
        """

    def prepare_to_read(self) -> None:
        """Makes sure that values can be read. It is called once, before an aggregator takes the stream tasks.

        Raises:
            StreamplanError: They cannot be read now.
        """

    def prepare_to_write(self) -> None:
        """Makes known what the readers of the topic need. It is called once, before values are written.

        Raises:
            StreamplanError: That is not possible.
        """

    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value: every declared field, None where it is absent or null.

        Raises:
            Undecodable: The bytes are no such value, or a field has a type or a value that is not allowed.
            StreamplanError: Nobody can say so now, because what knows the schemas does not answer.
        """

    def encode(self, value: Value) -> bytes:
        """Writes one value. Raises ValueError where the format has no such value."""

    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records. Agrees with :meth:`decode` for each record.

        Args:
            values: A binary Arrow array or a sequence, one value a record, nulls allowed.
        """

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Writes a struct array of the declared fields as a binary array. A null stays null."""

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """The keys that grouping by ``field`` gives these values. Agrees with :func:`key_of` for each record."""

    def spark_expression(self, fields: Mapping[str, FieldType], prefix: str = "") -> str | None:
        """The Spark SQL expression that writes columns as a value in bytes; None without one.

        Args:
            fields: The fields of the value and their types. A type may be one that no serde reads.
            prefix: What the name of a field's column begins with.
        """


def is_key_field(serde: Serde, field: str | None) -> bool:
    """Whether grouping by this field can be done without Spark: the text of each value is known."""
    return field is not None and serde.fields.get(field) in KEY_FIELD_TYPES


def key_text(value: Any) -> str:
    """The text of a field's value as Spark casts it to a string, for the types in :data:`KEY_FIELD_TYPES`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_of(serde: Serde, field: str, data: bytes | None, headers: Headers = ()) -> bytes:
    """The key that grouping by ``field`` gives a record: the text of the field, in UTF-8.

    Args:
        serde: Reads the record's value.
        field: A field of one of the types :data:`KEY_FIELD_TYPES`.
        data: The record's value in bytes.
        headers: The record's headers.

    Raises:
        Undecodable: The value cannot be read, the field is absent or null, or key, value and headers together are too
            large for the repartition topic.
    """
    value = serde.decode(data)[field]
    if value is None:
        raise Undecodable(missing(field))
    key = key_text(value).encode()
    if len(key) + len(data or b"") + header_bytes(headers) > serde.max_bytes:
        raise Undecodable(too_large(serde.max_bytes))
    return key


def label_of(serde: Serde, field: str | None, key: str) -> str:
    """The label of the allowed value of ``field`` whose text is ``key``; empty without one."""
    labels = {key_text(value): label for value, label in serde.allowed.get(field or "", {}).items()}
    return labels.get(key, "")


def header_bytes(headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    """The most bytes that headers take in a record.

    Args:
        headers: Names and values. A value that is text is written in UTF-8.
    """
    return sum(
        len(name.encode()) + len(value.encode() if isinstance(value, str) else value or b"") + HEADER_LENGTH_BYTES
        for name, value in headers
    )


def unexpected(error: Exception) -> str:
    """The reason of a value that made a library raise what it does not document."""
    return harmless(f"{type(error).__name__}: {text_of(error)}", _SHOWN_OF_ERROR)


def missing(field: str) -> str:
    """The reason of a record without the field that its key is made of."""
    return f"{field} is missing"


def too_large(max_bytes: int) -> str:
    """The reason of a record that the next topic would refuse."""
    return f"key, value and headers are larger than {max_bytes} bytes"
