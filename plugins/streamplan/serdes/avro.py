"""Avro records as values, in Confluent's wire format: a byte 0, the id of a schema in 4 bytes, and the record.

The declaration has the schema of the reader. That of the writer has the id, and a Schema Registry knows it.
:meth:`Avro.decode` is the reference; a column is read value by value, because Avro's library reads no columns.
"""

from __future__ import annotations

import io
import json
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from streamplan.errors import Refused
from streamplan.serdes.avro_resolution import differences
from streamplan.serdes.avro_schema import RecordSchema, parse_json, parse_record, without_logical_types
from streamplan.serdes.field_types import FieldType
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.schema_source import SchemaSource, UnknownSchema, WrittenSchema
from streamplan.serdes.serde import MAX_BYTES, Undecodable, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn, KeyColumn

MAGIC = 0
"""The first byte of a value (``AbstractKafkaSchemaSerDe.MAGIC_BYTE``)."""

_PREFIX = struct.Struct(">bI")

_UNREADABLE = (EOFError, ValueError, LookupError, TypeError, OverflowError, MemoryError)
"""What Avro's library raises where bytes are no record."""

_Decode: TypeAlias = Callable[[bytes], dict[str, Any]]


@dataclass(frozen=True)
class Avro:
    """A record of Avro in the value of a record; a :class:`streamplan.serdes.serde.Serde`.

    Example: ``topology.stream("orders", value=Avro("order.avsc"))``

    Attributes:
        schema: The schema of a record as JSON, or the path of a file with it. A relative path begins at the file that
            declares it. Values may have been written with another schema, which this one can read: it may leave out
            fields, and add fields with a default.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
        schemas: Where the schemas of values are looked up. It is not declared: :meth:`with_schemas` sets it.
        topic: The topic that the values are in, for the name of the schema's subject. It is not declared either.
    """

    schema: str
    max_bytes: int = MAX_BYTES
    schemas: SchemaSource | None = field(default=None, repr=False)
    topic: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        text = self.schema
        if not _is_json(text):
            path = _declaring_file().parent / text
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                text = str(path)  # the property `fields` says so, with the line of the declaration
            object.__setattr__(self, "schema", text)

    @property
    def record(self) -> RecordSchema:
        """The schema, read.

        Raises:
            ValueError: It is none, or a field has a type that is not read.
        """
        if not _is_json(self.schema):
            raise ValueError(
                f"the schema {self.schema} cannot be read. A relative path begins at the file that declares it"
            )
        return parse_record(self.schema)

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Field name to the text of its type."""
        return {name: str(of_field) for name, of_field in self.record.types.items()}

    @property
    def allowed(self) -> Mapping[str, Mapping[Any, str]]:
        """No value is excluded. An enum lists its own."""
        return {}

    @property
    def format(self) -> str:
        """Only serdes of the same schema read each other's bytes."""
        return f"avro {self.schema}"

    def unrestricted(self) -> Avro:
        """The serde itself: it excludes no value."""
        return self

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Avro:
        """Return the serde of the values of a topic.

        Args:
            schemas: Knows the schemas.
            topic: The name of the topic in Kafka.
        """
        return replace(self, schemas=schemas, topic=topic)

    def prepare_to_read(self) -> None:
        """Asks the registry for an answer."""
        self._registry.require_available()

    def prepare_to_write(self) -> None:
        """Registers the schema, or looks it up, as the registry's properties say."""
        self._registry.register(self.topic, self.record.name, self.schema)

    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value: every declared field, None where it is null.

        Raises:
            Undecodable: The bytes are no such value, the registry has no schema of its id, or the declared schema
                cannot read what was written.
            StreamplanError: The registry gave no answer, or there is none.
        """
        if data is None:
            raise Undecodable("the value is null")
        if len(data) < _PREFIX.size or data[0] != MAGIC:
            raise Undecodable("the value does not begin with the byte 0 and the id of a schema")
        _, schema_id = _PREFIX.unpack_from(data)
        return self._decoder(schema_id)(data)

    def encode(self, value: Value) -> bytes:
        """Writes one value. Raises ValueError where the schema has no such value."""
        try:
            plain = self.record.write(value)
        except Misfit as misfit:
            raise ValueError(f"{misfit.path.lstrip('.')} {misfit.reason}") from misfit
        schema_id = self._registry.id_of(self.topic, self.record.name, self.schema)
        return _PREFIX.pack(MAGIC, schema_id) + _write(self.schema, plain)

    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records, nulls allowed."""
        from streamplan.serdes.arrow import binary_array, decode_each

        return decode_each(self, binary_array(values))

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Writes a struct array of the declared fields as a binary array."""
        from streamplan.serdes.arrow import encode_each

        return encode_each(self, values)

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """The keys that grouping by ``field`` gives these values."""
        from streamplan.serdes.arrow import key_column

        return key_column(self, field, values)

    def spark_expression(self, fields: Mapping[str, FieldType], prefix: str = "") -> str | None:
        """None: Spark's ``to_avro`` does not know Confluent's wire format."""
        return None

    @property
    def _registry(self) -> SchemaSource:
        if self.schemas is None:
            raise Refused(
                "the Schema Registry",
                expected="its address, because values in Avro name their schema by an id",
                observed="none",
                remedy="Add schema.registry.url where bootstrap.servers stands: in the connection, or in the file of "
                "client properties.",
            )
        return self.schemas

    def _decoder(self, schema_id: int) -> _Decode:
        try:
            written = self._registry.schema(schema_id)
        except UnknownSchema as error:
            raise Undecodable(f"the Schema Registry has no schema {schema_id}") from error
        return _decoder(written, self.schema, schema_id)


def text_of_record(data: bytes, schemas: SchemaSource) -> str | None:
    """Return a value for people: the record as JSON, with all that was written. None where it is no such value.

    Args:
        data: Any value.
        schemas: Knows the schemas.

    Raises:
        StreamplanError: The schema of the value cannot be asked for.
    """
    if len(data) <= _PREFIX.size or data[0] != MAGIC:
        return None
    _, schema_id = _PREFIX.unpack_from(data)
    try:
        written = schemas.schema(schema_id) if schema_id else None  # small numbers of Java's begin with zeros
    except UnknownSchema:
        return None
    return None if written is None or written.format != "AVRO" else _text_of(data, written)


def _text_of(data: bytes, written: WrittenSchema) -> str | None:
    from fastavro import parse_schema, schemaless_reader
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    stream = io.BytesIO(data)
    stream.seek(_PREFIX.size)
    try:
        for reference in written.references:
            parse_schema(parse_json(reference), named)
        plain_writer: Any = parse_schema(parse_json(written.text), named)
        fields = schemaless_reader(stream, plain_writer, None)
    except (SchemaParseException, UnknownType, *_UNREADABLE):
        return None
    return json.dumps(fields, ensure_ascii=False, default=str) if stream.tell() == len(data) else None


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"')


def _declaring_file() -> Path:
    """The file of the nearest caller outside of this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, "<string>"):
        frame = frame.f_back  # The generated __init__ of a dataclass has no file.
    return Path(frame.f_code.co_filename if frame is not None else ".").absolute()


@lru_cache(maxsize=1024)
def _decoder(written: WrittenSchema, reader: str, schema_id: int) -> _Decode:
    """Return what reads the values of one schema. A schema that cannot be read rejects all of its values."""
    from fastavro import parse_schema, schemaless_reader
    from fastavro.read import SchemaResolutionError
    from fastavro.schema import SchemaParseException, UnknownType

    def reject(reason: str) -> _Decode:
        def decode(data: bytes) -> dict[str, Any]:
            raise Undecodable(reason)

        return decode

    if written.format != "AVRO":
        return reject(f"schema {schema_id} is one of {written.format}, and not of Avro")
    record = parse_record(reader)
    try:
        unread = [each.text for each in differences(written, reader) if each.always]
        named: dict[str, Any] = {}
        for reference in written.references:
            parse_schema(without_logical_types(parse_json(reference)), named)
        plain_writer: Any = parse_schema(without_logical_types(parse_json(written.text)), named)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
        return reject(f"schema {schema_id} cannot be used: {type(error).__name__}: {error}")
    if unread:
        return reject(f"schema {schema_id} cannot be read as declared: {'; '.join(unread)}")
    plain_reader: Any = parse_schema(record.plain, {})
    resolved = None if _is_same(written, reader) else plain_reader
    read = record.read

    def decode(data: bytes) -> dict[str, Any]:
        stream = io.BytesIO(data)
        stream.seek(_PREFIX.size)
        try:
            fields = read(schemaless_reader(stream, plain_writer, resolved))
        except Misfit as misfit:
            raise Undecodable(f"{misfit.path.lstrip('.')} {misfit.reason}") from misfit
        except SchemaResolutionError as error:
            raise Undecodable(
                f"a part of it has a type or a symbol that schema {schema_id} allows and the declaration does not"
            ) from error
        except _UNREADABLE as error:
            raise Undecodable(f"the value is no record of schema {schema_id}") from error
        if stream.tell() != len(data):
            raise Undecodable(f"the value goes on behind the record of schema {schema_id}")
        found: dict[str, Any] = fields
        return found

    return decode


def _is_same(written: WrittenSchema, reader: str) -> bool:
    return not written.references and parse_json(written.text) == parse_json(reader)


@lru_cache(maxsize=256)
def _parsed(schema: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(parse_record(schema).plain, {})


def _write(schema: str, plain: Any) -> bytes:
    from fastavro import schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, _parsed(schema), plain)
    return stream.getvalue()
