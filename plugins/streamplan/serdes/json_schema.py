"""JSON documents with a JSON Schema as values, in Confluent's wire format.

The types of the fields are those of the declared schema, and :class:`streamplan.serdes.json.Json` reads them. What else
the schema demands, a library judges. :meth:`JsonSchema.decode` is the reference; a column is read as a whole, and then
judged value by value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streamplan.judged import judged_constructor
from streamplan.serdes.field_types import DecimalType, FieldType, leaves, quoted
from streamplan.serdes.json import Json
from streamplan.serdes.json_documents import Parser, parse_plain
from streamplan.serdes.json_schema_places import referenced_names
from streamplan.serdes.json_schema_resolution import differences, undeclared_fields
from streamplan.serdes.json_schema_types import ObjectSchema, parse_object
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.reason import harmless, text_of
from streamplan.serdes.rejection import or_each_value
from streamplan.serdes.schema_serde import (
    PREFIX,
    Decode,
    SchemaSerde,
    declared_file,
    declared_text,
    schema_id_of,
    text_of_file,
)
from streamplan.serdes.schema_source import Reference, WrittenSchema
from streamplan.serdes.schema_text import is_json, plain_json
from streamplan.serdes.schema_values import Difference, told
from streamplan.serdes.serde import Undecodable, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn

_MOST_SHOWN = 300
"""At most this many characters of the library's message, which shows the value, stand in a reason."""

_DIALECT = re.compile(r"https?://json-schema\.org/draft[-/](04|06|07|2019-09|2020-12)/schema#?")
"""The meta-schemas that the library has."""

_DEFAULT_DRAFT = "7"
"""Of a schema without ``$schema``, or with another one, as for Confluent's serializers for Java."""

_MOST_EXPONENT_DIGITS = 3
"""An exact number with a longer exponent could take any memory."""


@judged_constructor
@dataclass(frozen=True, repr=False)
class JsonSchema(SchemaSerde):
    """A JSON document in the value of a record; a :class:`streamplan.serdes.serde.Serde`.

    Example: ``topology.stream("orders", value=JsonSchema("order.schema.json"))``

    Attributes:
        schema: The schema of an object as JSON, or the path of a file with it. A relative path begins at the file that
            declares it. Values may have been written with another schema; each one must be valid by this one.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
        schemas: Where the schemas of values are looked up. It is not declared: :meth:`with_schemas` sets it.
        topic: The topic that the values are in, for the name of the schema's subject. It is not declared either.
        references: The schemas that it names by ``$ref``. Those in files beside it are found.
    """

    references: tuple[Reference, ...] = field(default=(), repr=False)

    schema_format: ClassVar[str] = "JSON"
    title: ClassVar[str] = "JSON Schema"

    def __post_init__(self) -> None:
        if is_json(self.schema):
            object.__setattr__(self, "schema", plain_json(self.schema))
            return
        path = declared_file(self.schema)

        def judged(text: str) -> str:
            plain = plain_json(text)
            references = self.references or _references(plain, path)
            _ = _reading(WrittenSchema(plain, references, self.schema_format))
            object.__setattr__(self, "references", references)
            return plain

        object.__setattr__(self, "schema", declared_text(path, judged))

    @cached_property
    def declared(self) -> WrittenSchema:
        """The declared schema, as it is registered."""
        return WrittenSchema(self.schema, self.references, self.schema_format)

    @property
    def document(self) -> ObjectSchema:
        """The schema, read.

        Raises:
            ValueError: It is none, or a field has a type that is not read.
        """
        if not is_json(self.schema):
            raise ValueError(self.schema)
        return parse_object(self.declared)

    @property
    def types(self) -> Mapping[str, FieldType]:
        """Field name to type."""
        _ = _reading(self.declared) if is_json(self.schema) else None  # raises where the schema is not valid
        return self.document.types

    @property
    def record_name(self) -> str:
        """The title of the schema; empty without one."""
        return self.document.title

    def differences(self, written: WrittenSchema) -> tuple[Difference, ...]:
        """Return what the declared schema does not take of values that were written with another one."""
        return differences(written, self.declared)

    def undeclared_fields(self, written: WrittenSchema) -> list[str]:
        """Return the properties of another schema that the declared one lacks."""
        return undeclared_fields(written, self.declared)

    @or_each_value
    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records, nulls allowed."""
        import pyarrow as pa

        from streamplan.serdes.columns import DecodedColumn

        whole: Sequence[bytes | None] = values.to_pylist() if isinstance(values, pa.Array) else values
        documents = [None if value is None else value[PREFIX.size :] for value in whole]
        reading = _reading(self.declared)
        column = reading.json.decode_column(documents)
        rejected = dict(column.rejected)
        reasons: dict[bytes, str | None] = {}
        for row, (value, document) in enumerate(zip(whole, documents, strict=True)):
            if value is None or document is None:
                continue
            if (prefix := value[: PREFIX.size]) not in reasons:
                reasons[prefix] = self._reason_of(prefix)
            reason = reasons[prefix]
            if reason is None and row not in rejected:
                reason = reading.fault(document)
            if reason is not None:
                rejected[row] = reason
        if rejected == column.rejected:
            return column
        kept = pa.array([None if row in rejected else row for row in range(len(whole))], pa.int64())
        return DecodedColumn(column.fields.take(kept), dict(sorted(rejected.items())))

    def _reason_of(self, prefix: bytes) -> str | None:
        """Why no value with this prefix can be read; None where they can."""
        try:
            self._decoder_of(schema_id_of(prefix))
        except Undecodable as error:
            return text_of(error)
        return None

    def _decoder(self, written: WrittenSchema, schema_id: int) -> Decode:
        return _reading(self.declared).decode

    def _write(self, value: Value) -> bytes:
        written = self.document.write(value).encode()
        if (fault := _reading(self.declared).misfit(written)) is not None:
            raise fault
        return written


def text_of_document(data: bytes, written: WrittenSchema) -> str | None:
    """Return a value for people: the document as it was written. None where it is no such value.

    Args:
        data: Any value.
        written: The schema that it names.
    """
    document = data[PREFIX.size :]
    try:
        parse_plain(document)
    except Undecodable:
        return None
    return document.decode()


class _Reading(NamedTuple):
    """What reads the documents of a schema.

    Attributes:
        json: Reads the fields.
        errors: Yields what is not valid in a document.
        parse: Parses what is judged.
    """

    json: Json
    is_valid: Callable[[Any], bool]
    errors: Callable[[Any], Any]
    parse: Parser

    def decode(self, data: bytes) -> dict[str, Any]:
        """Read a value with its prefix."""
        document = data[PREFIX.size :]
        fields = self.json.decode(document)
        if (fault := self.fault(document)) is not None:
            raise Undecodable(fault)
        return fields

    def fault(self, document: bytes) -> str | None:
        """Return why a document is not valid that is JSON; None where it is."""
        misfit = self.misfit(document)
        return None if misfit is None else harmless(told(misfit))

    def misfit(self, document: bytes) -> Misfit | None:
        """Return what is not valid in a document that is JSON; None where nothing is."""
        value = self.parse(document)
        try:
            if self.is_valid(value):
                return None
            error = next(iter(self.errors(value)))
        except ValueError as cause:  # a name that is half of a surrogate pair
            return Misfit(f"cannot be judged: {cause}")
        message = str(error.message)
        misfit = Misfit(f"is not valid: {message if len(message) <= _MOST_SHOWN else f'{message[:_MOST_SHOWN]}…'}")
        misfit.path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        return misfit


@lru_cache(maxsize=256)
def _reading(declared: WrittenSchema) -> _Reading:
    """Raises ValueError where the schema is not valid."""
    import jsonschema_rs
    from jsonschema_rs import ReferencingError, ValidationError

    parsed = parse_object(declared)
    document = dict(parsed.document)
    dialect = _DIALECT.fullmatch(str(document.get("$schema", "")))
    if dialect is None:
        document.pop("$schema", None)
    name = f"Draft{dialect[1].replace('-', '').removeprefix('0') if dialect else _DEFAULT_DRAFT}Validator"
    try:
        # Without formats: date-time and date are read by the fields' types, and the others say nothing.
        validator = getattr(jsonschema_rs, name)(
            json.dumps(document, default=float), validate_formats=False, offline=True
        )
    except (ValidationError, ReferencingError, ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not valid: {_first_line(error)}") from error
    fields = Json(", ".join(f"{quoted(name)} {of_field}" for name, of_field in parsed.types.items()))
    has_decimal = any(isinstance(leaf, DecimalType) for each in parsed.types.values() for leaf in leaves(each))
    return _Reading(fields, validator.is_valid, validator.iter_errors, _parse_exact if has_decimal else parse_plain)


def _first_line(error: Exception) -> str:
    """What a library says of a schema, and where in it; without the schema itself."""
    place = "".join(f"/{step}" for step in getattr(error, "instance_path", ()))
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{message[:_MOST_SHOWN]}{f', at #{place}' if place else ''}"


def _judged_number(text: str) -> Decimal | float:
    """The number that is judged: exact, if its exponent is one that a decimal of a field or a double can have."""
    _, _, exponent = text.lower().partition("e")
    return Decimal(text) if len(exponent.lstrip("+-0")) <= _MOST_EXPONENT_DIGITS else float(text)


_parse_exact = Parser(_judged_number, Decimal)


def _references(text: str, path: Path, around: tuple[Path, ...] = ()) -> tuple[Reference, ...]:
    """The schemas in files beside one that it names.

    One of which there is no file is missing when the schema is read.

    Raises:
        ValueError: The text, or one of the files, is no JSON, or the files name each other. The message names the file.
    """
    found = []
    for name in referenced_names(text):
        other = path.parent / name
        if other.resolve() in (each.resolve() for each in (path, *around)):
            raise ValueError(f"it refers to {name}, which leads back to it")
        try:
            inner = plain_json(text_of_file(other))
            references = _references(inner, other, (path, *around))
        except OSError:
            continue
        except ValueError as error:
            raise ValueError(f"{other}: {error}") from error
        found.append(Reference(name, WrittenSchema(inner, references, "JSON")))
    return tuple(found)
