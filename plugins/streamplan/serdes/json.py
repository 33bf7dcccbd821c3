"""JSON objects as values (RFC 8259, UTF-8).

:meth:`Json.decode` is the reference: one value at a time, on the standard library. :mod:`streamplan.serdes.json_arrow`
reads whole Arrow arrays and must agree with it record for record (tests/unit/serdes compares the two).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from streamplan.judged import judged_constructor, refuse_mistaken
from streamplan.judged_words import completed, shown
from streamplan.serdes.field_types import (
    DATE,
    TIMESTAMP,
    ArrayType,
    FieldType,
    MapType,
    StructType,
    WrongFields,
    leaves,
    parse_fields,
)
from streamplan.serdes.json_documents import parse_document
from streamplan.serdes.json_keys import KeyFields, fault_of_key_fields, written_key
from streamplan.serdes.json_values import Misfit, readers, write_object
from streamplan.serdes.moments import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US
from streamplan.serdes.record_classes import RecordClass, allowed_by, is_record_class, schema_of
from streamplan.serdes.rejection import or_each_value, refuses_values, rejects_values
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import MAX_BYTES, WORDS, Undecodable, Value

if TYPE_CHECKING:
    # pyright takes a cached_property for no property of a protocol, and would refuse the serde.
    from builtins import property as cached_property

    import pyarrow as pa
    from typing_extensions import TypeVar

    from streamplan.serdes.columns import DecodedColumn, KeyColumn

    V = TypeVar("V", default=Any)  # a Json of a text has values of any class
else:
    from functools import cached_property
    from typing import TypeVar

    V = TypeVar("V")

_LISTED_TYPES = ("string", "int", "bigint", "double", "boolean")
"""The types of fields whose allowed values can be listed."""


@judged_constructor
@dataclass(frozen=True, repr=False)
class Json(Generic[V]):
    """A JSON object in the value of a record; a :class:`streamplan.serdes.serde.Serde`, and a serde of keys.

    Examples: ``Json("id string, amount bigint")``,
    ``Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})``

    Of a dataclass: ``Json(Order)``; :mod:`streamplan.serdes.record_classes` has the types of its fields. It is equal to
    the Json of the text that the class tells. A field that is an ``IntEnum`` or a ``StrEnum`` allows its members.
    Functions of the stream are given objects of the class; see :meth:`streamplan.model.kstream.KStream.map_values`.

    Nested: ``Json("id string, customer struct<name: string>, lines array<struct<sku: string, price: decimal(10,2)>>")``

    A key of several fields: ``key_serde=Json("customer string, product string")``; see :mod:`.json_keys`.

    Attributes:
        schema: The fields that may be used, in Spark's DDL, or a dataclass that tells them; their types are those of
            :mod:`streamplan.serdes.field_types`. Other fields are ignored. A field may be absent or null. A record with
            a field of another type is rejected. A timestamp is ISO 8601 text with a zone, or milliseconds since the
            epoch; a date is text as ``2026-11-24``; a decimal is a number, or text with one, and it is exact.
        allowed: For a field the values that are allowed, each with its label. A record with another value is rejected.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together, so that no
            record can stop the stream at its next topic.
        record_class: Makes the objects that functions are given; None where a text tells the schema.
    """

    schema: str
    allowed: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES
    record_class: RecordClass | None = field(default=None, init=False, repr=False, compare=False)

    has_non_finite: ClassVar[bool] = False
    """Whether a double may also be NaN or infinite, in a text as Spark's ``to_json`` and Jackson write it."""

    @overload
    def __init__(
        self: Json[Any], schema: str, allowed: Mapping[str, Mapping[Any, str]] = ..., max_bytes: int = ...
    ) -> None: ...

    @overload
    def __init__(
        self, schema: type[V], allowed: Mapping[str, Mapping[Any, str]] = ..., max_bytes: int = ...
    ) -> None: ...

    def __init__(
        self,
        schema: str | type[Any],
        allowed: Mapping[str, Mapping[Any, str]] = MappingProxyType({}),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        record_class = None
        if not isinstance(schema, str):
            cls, schema = schema, schema_of(schema)
            if not is_record_class(cls):
                raise WrongFields(f"{cls.__name__} is not a dataclass", f"Write @dataclass before class {cls.__name__}")
            record_class = RecordClass.of(cls)
            allowed = {**allowed_by(cls), **allowed}
        given = {"schema": schema, "allowed": dict(allowed), "max_bytes": max_bytes, "record_class": record_class}
        self.__dict__.update(given)  # the class is frozen
        types = self.types
        for name in self.allowed:
            if name not in types:
                raise ValueError(f"allowed names the field {name!r}; the schema has {', '.join(types)}")
            if str(types[name]) not in _LISTED_TYPES:
                raise ValueError(f"allowed names {name}, a {types[name]}; it can be {', '.join(_LISTED_TYPES)}")

    def __repr__(self) -> str:
        """The serde as a declaration has it."""
        return shown(self)

    def __dir__(self) -> list[str]:
        """What is declared, how values are read and written, and what Python has."""
        return completed(self, *WORDS)

    @cached_property
    def types(self) -> Mapping[str, FieldType]:
        """Field name to type. Raises ValueError where the schema is not a list of names with types."""
        refuse_mistaken(self)
        return parse_fields(self.schema)

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Field name to the text of its type."""
        return {name: str(of_field) for name, of_field in self.types.items()}

    # -- keys

    @cached_property
    def field_type(self) -> str:
        """The type of a key in Spark's DDL."""
        return str(StructType(tuple(self.types.items())))

    @property
    def key_type(self) -> str:
        """Names the serde of keys, as those of single values have a name."""
        return self.field_type

    @cached_property
    def name(self) -> str:
        """The serde as people read it."""
        return f'Json("{", ".join(f"{name} {of_field}" for name, of_field in self.fields.items())}")'

    @property
    def declaration(self) -> str:
        """The serde as a declaration has it."""
        return self.name

    @property
    def key_fault(self) -> str | None:
        """Why it cannot be used as a key serde; None where it can."""
        return "allowed= is only for values, not for keys" if self.allowed else fault_of_key_fields(self.types)

    def read_key(self, data: bytes) -> Any:
        """Reads one key, as :class:`KeyFields`.

        Raises:
            Undecodable: The bytes are not those that :meth:`write_key` writes.
        """
        try:
            key = KeyFields(self.decode(data))
            if self.write_key(key) == data:
                return key
        except ValueError:
            pass
        raise Undecodable(f"the key is not as {self.name} writes it")

    def write_key(self, key: Any) -> bytes:
        """Writes one key: a mapping with a value for each field. Raises ValueError where it is no such key."""
        if not isinstance(key, Mapping):
            raise ValueError(f"{key!r} is no mapping of fields")
        return written_key(self.types, key).encode()

    def key_text(self, key: Any) -> str:
        """A key that was read, as people read and write it: the text of its bytes."""
        return written_key(self.types, key)

    def key_of_text(self, text: str) -> Any:
        """The key that people write so, with any spaces and in any order. Raises ValueError where there is none."""
        try:
            document = json.loads(text)
        except RecursionError as error:
            raise ValueError("the key nests too deep") from error
        if not isinstance(document, dict):
            raise ValueError(f"{text} is not a JSON object")
        return KeyFields(document)

    # -- values

    @property
    def format(self) -> str:
        """Any two serdes of this class read each other's bytes."""
        return "json"

    def unrestricted(self) -> Json[V]:
        """The same without :attr:`allowed`."""
        return replace(self, allowed={})  # whoever reads it gives its values to no function

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Json[V]:
        """The serde itself: its values name no schema."""
        return self

    def prepare_to_read(self) -> None:
        """Nothing: values can always be read."""

    def prepare_to_write(self) -> None:
        """Nothing: every reader knows the format."""

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value: every declared field, None where it is absent or null.

        Raises:
            Undecodable: The bytes are not one JSON object, or a field has a type or a value that is not allowed.
        """
        document = _document(data)
        decoded = {}
        for name, read in readers(self.schema, self.has_non_finite):
            value = document.get(name)
            try:
                decoded[name] = None if value is None else read(value)
            except Misfit as misfit:
                raise Undecodable(f"{name}{misfit.path} {misfit.reason}") from misfit
            if name in self.allowed and value is not None and decoded[name] not in self.allowed[name]:
                raise Undecodable(f"{name} is not one of {', '.join(map(str, self.allowed[name]))}")
        return decoded

    @refuses_values
    def encode(self, value: Value) -> bytes:
        """Writes one value as Spark's ``to_json`` does: a field that is None is left out."""
        return write_object(self.types, value).encode()

    @or_each_value
    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records, nulls allowed."""
        from streamplan.serdes.arrow import binary_array
        from streamplan.serdes.json_arrow import decode_json

        return decode_json(self, binary_array(values))

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Writes a struct array of the declared fields as a binary array."""
        from streamplan.serdes.arrow import encode_each

        return encode_each(self, values)

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """The keys that grouping by ``field`` gives these values."""
        from streamplan.serdes.arrow import key_column

        return key_column(self, field, values)

    @staticmethod
    def spark_expression(fields: Mapping[str, FieldType], prefix: str = "") -> str:
        """The Spark SQL expression that writes columns as a JSON object in bytes; see the protocol.

        Timestamps are written in UTC, whatever the time zone of Spark. They have three digits of a second, as
        ``to_json`` writes them by default, and six where one of the object's timestamps needs them.
        """
        columns = {name: f"`{prefix}{name}`" for name in fields}
        named = (column if not prefix else f"{column} AS `{name}`" for name, column in columns.items())
        value = f"struct({', '.join(named)})"
        finer = _any_leaf(fields, columns, _IS_FINER)
        if finer is None:
            return f"CAST(to_json({value}) AS BINARY)"
        digits = "'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX'"
        written = f"to_json({value}, map('timeZone', 'UTC'))"
        written_finer = f"to_json({value}, map('timeZone', 'UTC', {digits}))"
        return f"CAST(if({finer}, {written_finer}, {written}) AS BINARY)"


_IS_FINER: Mapping[FieldType, str] = {TIMESTAMP: "unix_micros({}) % 1000 != 0"}
"""The condition that a timestamp has digits below a millisecond."""

_IS_BEYOND: Mapping[FieldType, str] = {
    TIMESTAMP: f"unix_micros({{}}) NOT BETWEEN {FIRST_US} AND {LAST_US}",
    DATE: f"unix_date({{}}) NOT BETWEEN {FIRST_DAY} AND {LAST_DAY}",
}
"""The conditions that a moment is not in the years 1 to 9999: it would be written, and could not be read."""


def moments_beyond(fields: Mapping[str, FieldType]) -> str | None:
    """Return the Spark SQL condition that a value has a moment that cannot be read again; None where it has none."""
    return _any_leaf(fields, {name: f"`{name}`" for name in fields}, _IS_BEYOND)


def _any_leaf(
    fields: Mapping[str, FieldType], columns: Mapping[str, str], conditions: Mapping[FieldType, str]
) -> str | None:
    """The condition that a column has a part that meets the condition of its type; None without such types."""
    parts = [
        _leaf_condition(of_field, columns[name], conditions)
        for name, of_field in fields.items()
        if conditions.keys() & set(leaves(of_field))
    ]
    return f"({' OR '.join(parts)})" if parts else None


def _leaf_condition(field_type: FieldType, expression: str, conditions: Mapping[FieldType, str], depth: int = 0) -> str:
    element = f"e{depth}"
    match field_type:
        case StructType(fields=fields):
            parts = [
                _leaf_condition(of_field, f"{expression}.`{name}`", conditions, depth)
                for name, of_field in fields
                if conditions.keys() & set(leaves(of_field))
            ]
            return f"({' OR '.join(parts)})"
        case ArrayType(element=part):
            found = f"exists({expression}, {element} -> {_leaf_condition(part, element, conditions, depth + 1)})"
        case MapType(value=part):
            of_value = _leaf_condition(part, element, conditions, depth + 1)
            found = f"exists(map_values({expression}), {element} -> {of_value})"
        case _:
            found = conditions[field_type].format(expression)
    return f"coalesce({found}, false)"


def _document(data: bytes | None) -> dict[str, Any]:
    if data is None:
        raise Undecodable("the value is null")
    document = parse_document(data)
    if not isinstance(document, dict):
        raise Undecodable("the value is not a JSON object")
    return document
