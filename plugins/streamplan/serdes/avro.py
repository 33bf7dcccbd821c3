"""Avro records as values, in Confluent's wire format.

:meth:`Avro.decode` is the reference; a column is read value by value. :mod:`.avro_binary` reads the bytes, and Avro's
library writes them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from streamplan.judged import judged_constructor
from streamplan.serdes.avro_binary import Malformed, NotDeclared, reader_of
from streamplan.serdes.avro_names import parse_json
from streamplan.serdes.avro_resolution import differences, undeclared_fields
from streamplan.serdes.avro_schema import RecordSchema, chosen_record, parse_record
from streamplan.serdes.field_types import FieldType
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.schema_serde import (
    PREFIX,
    Decode,
    SchemaSerde,
    declared_file,
    declared_text,
    rejecting,
    text_of_file,
)
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.schema_text import is_json
from streamplan.serdes.schema_values import Difference, told
from streamplan.serdes.serde import Undecodable, Value

_NO_SCHEMA = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What a text raises that a registry has and that is no schema."""


@judged_constructor
@dataclass(frozen=True, repr=False)
class Avro(SchemaSerde):
    """A record of Avro in the value of a record; a :class:`streamplan.serdes.serde.Serde`.

    Example: ``topology.stream("orders", value=Avro("order.avsc"))``

    Attributes:
        schema: The schema of a record as JSON, or the path of a file with it. A relative path begins at the file that
            declares it. A file may have several types, as an array or as a protocol (``.avpr``). Values may have been
            written with another schema, which this one can read: it may leave out fields, and add fields with a
            default. What is kept is the schema of the record alone.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
        schemas: Where the schemas of values are looked up. It is not declared: :meth:`with_schemas` sets it.
        topic: The topic that the values are in, for the name of the schema's subject. It is not declared either.
        record: The name of the record where the schema has several types, as ``Order``, or ``shop.Order`` if several
            namespaces have one. It is not needed for the only record of a file.
        references: A file with types that the schema names and does not define, or several. What is kept, and
            registered, is one schema that contains the types that the record names, as a class in Java has it.
    """

    record: InitVar[str] = ""
    references: InitVar[str | Sequence[str]] = ()

    schema_format: ClassVar[str] = "AVRO"
    title: ClassVar[str] = "Avro"

    def __post_init__(self, record: str, references: str | Sequence[str]) -> None:
        named = [references] if isinstance(references, str) else references
        paths = [declared_file(each) for each in named]

        def judged(text: str) -> str:
            chosen = chosen_record(text, record, tuple(_text_of_reference(path) for path in paths))
            parse_record(chosen)
            return chosen

        if not is_json(self.schema):
            object.__setattr__(self, "schema", declared_text(declared_file(self.schema), judged))
        else:
            try:
                text = judged(self.schema)
            except ValueError as error:  # the property `fields` says it, with the line of the declaration
                text = str(error)
            object.__setattr__(self, "schema", text)

    @property
    def declared_record(self) -> RecordSchema:
        """The schema, read.

        Raises:
            ValueError: It is none, or a field has a type that is not read.
        """
        if not is_json(self.schema):
            raise ValueError(self.schema)
        return parse_record(self.schema)

    @property
    def types(self) -> Mapping[str, FieldType]:
        """Field name to type."""
        return self.declared_record.types

    @property
    def record_name(self) -> str:
        """The full name of the record."""
        return self.declared_record.name

    def differences(self, written: WrittenSchema) -> tuple[Difference, ...]:
        """Return what the declared schema cannot read of values that were written with another one."""
        return differences(written, self.schema)

    def undeclared_fields(self, written: WrittenSchema) -> list[str]:
        """Return the fields of another schema that the declared one lacks, by name."""
        return undeclared_fields(written, self.schema)

    def _decoder(self, written: WrittenSchema, schema_id: int) -> Decode:
        return _decoder(written, self.schema, schema_id)

    def _write(self, value: Value) -> bytes:
        return _write(self.schema, self.declared_record.write(value))


def text_of_record(data: bytes, written: WrittenSchema) -> str | None:
    """Return a value for people: the record as JSON, with all that was written. None where it is no such value.

    Args:
        data: Any value.
        written: The schema that it names.
    """
    from fastavro import parse_schema, schemaless_reader
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        _, end = reader_of(written)(data, PREFIX.size, 0)  # Avro's library reads any bytes; see avro_binary
        if end != len(data):
            return None
        named: dict[str, Any] = {}
        for reference in written.flattened().values():
            parse_schema(parse_json(reference), named)
        plain_writer: Any = parse_schema(parse_json(written.text), named)
        fields = schemaless_reader(io.BytesIO(data[PREFIX.size :]), plain_writer, None)
        return json.dumps(fields, ensure_ascii=False, default=str)
    except (SchemaParseException, UnknownType, ArithmeticError, *_NO_SCHEMA):
        return None


def _text_of_reference(path: Path) -> str:
    """Return the schemas of a file that a declaration names by ``references=``. The fault of a file has its path."""
    try:
        text = text_of_file(path)
        parse_json(text)
    except (OSError, ValueError) as error:
        raise ValueError(f"references={str(path)!r}: {error}") from error
    return text


@lru_cache(maxsize=1024)
def _decoder(written: WrittenSchema, reader: str, schema_id: int) -> Decode:
    """Return what reads the values of one schema. A schema that cannot be read rejects all of its values."""
    convert = parse_record(reader).read
    try:
        unread = [each.text for each in differences(written, reader) if each.always]
        if unread:
            return rejecting(f"schema {schema_id} cannot be read as declared: {'; '.join(unread)}")
        read = reader_of(written, reader)
    except _NO_SCHEMA as error:
        return rejecting(f"schema {schema_id} cannot be used: {type(error).__name__}: {error}")

    def decode(data: bytes) -> dict[str, Any]:
        try:
            value, end = read(data, PREFIX.size, 0)
            if end != len(data):
                raise Undecodable(f"the value goes on behind the record of schema {schema_id}")
            found: dict[str, Any] = convert(value)
        except Misfit as misfit:
            raise Undecodable(told(misfit)) from misfit
        except NotDeclared as error:
            raise Undecodable(
                f"a part of it has a type or a symbol that schema {schema_id} allows and the declaration does not"
            ) from error
        except (IndexError, UnicodeDecodeError, Malformed) as error:
            reason = {IndexError: "it ends early", UnicodeDecodeError: "a text is not UTF-8"}.get(type(error), error)
            raise Undecodable(f"the value is no record of schema {schema_id}: {reason}") from error
        return found

    return decode


@lru_cache(maxsize=256)
def _parsed(schema: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(parse_record(schema).plain, {})


def _write(schema: str, plain: Any) -> bytes:
    from fastavro import schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, _parsed(schema), plain)
    return stream.getvalue()
