"""Avro schemas as declarations: the types of their fields. On the standard library alone.

Numbers, bytes and texts are read and written. Logical types are applied by the schema of the reader, as Java's Avro
applies them (:mod:`streamplan.serdes.avro_values`). So Avro's library, which writes, is given schemas without logical
types. It resolves names otherwise than Java's Avro, so each type in these schemas has a name of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from streamplan.errors import did_you_mean
from streamplan.serdes.avro_names import NamedTypes, default_of, full_name, parse_json, types_of_file
from streamplan.serdes.avro_values import (
    DAY,
    PRIMITIVES,
    Part,
    array_part,
    decimal_part,
    enum_part,
    map_part,
    moment_part,
    or_null,
    record_part,
)
from streamplan.serdes.field_types import GREATEST_PRECISION, FieldType, StructType
from streamplan.serdes.schema_text import plain_json
from streamplan.serdes.schema_values import Convert, require_shallow

_UNREAD_LOGICAL_TYPES = (
    ("int", "time-millis"),
    *(("long", f"{local}timestamp-{unit}") for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
    ("long", "time-micros"),
)
"""Types and logical types of the specification that no type of a field stands for, where none of the cases before is
theirs. A logical type of another type is ignored, as the specification says, and so is what it does not name."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class RecordSchema:
    """The schema of a record.

    Attributes:
        name: Its full name.
        types: The fields and their types.
        plain: The schema that Avro's library writes by.
        read: Makes the fields of a value of what :mod:`.avro_binary` has read. Raises :class:`Misfit`.
        write: Makes of the fields what Avro's library writes. Raises :class:`Misfit`.
    """

    name: str
    types: Mapping[str, FieldType]
    plain: Any
    read: Convert
    write: Convert


@lru_cache(maxsize=256)
def parse_record(text: str) -> RecordSchema:
    """Read the schema of a record.

    Raises:
        ValueError: It is no schema, or a part of it has a type that no field can have. The message names the part.
    """
    schema = parse_json(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError('the schema is not that of a record: {"type": "record", "name": …, "fields": […]}')
    try:
        part = _Parser(NamedTypes(text)).part(schema, "", "")
    except RecursionError as error:
        raise ValueError("the schema is nested too deep") from error
    assert isinstance(part.type, StructType)
    name, _ = full_name(schema, "")
    return RecordSchema(name, dict(part.type.fields), part.plain, part.read, part.write)


def chosen_record(text: str, name: str, references: tuple[str, ...] = ()) -> str:
    """Return the schema of one record of a text that defines several types.

    Args:
        text: A type, several in an array, or a protocol with its types. A type may name others before and behind it.
        name: The record, with its namespace or without; empty for the only one that stands there.
        references: Texts with further types, which the text may name.

    Returns:
        The text itself where the record is all of it; else a schema that contains all that it names.

    Raises:
        ValueError: There is no such record, or there are several. Or a type has two definitions.
    """
    plain = plain_json(text).strip() if plain_json(text) != text else text
    if not name and not references and not isinstance(types_of_file(plain)[0], list):
        return plain
    types = NamedTypes(plain, references)
    if contradicted := types.contradicted():
        raise ValueError(f"the type {contradicted[0]} is defined twice, and not in the same way")
    if name:
        found = types.records(name)
    else:
        roots = types.root if isinstance(types.root, list) else [types.root]
        found = [full for full in types.records() if any(types.named[full][0] is each for each in roots)]
    if len(found) != 1:
        raise ValueError(_not_one(name, found, types.records()))
    if types.named[found[0]][0] is types.root and not references:
        return plain
    return json.dumps(types.contained(found[0]), ensure_ascii=False)


def _not_one(name: str, found: list[str], records: list[str]) -> str:
    """Return why a name, or none, does not choose one of the records."""
    listed = f"its records are {', '.join(records) or 'none'}"
    if not name:
        return f"{'it has several types: name one by record=' if found else 'it has no record'}; {listed}"
    if found:
        return f"it has several records named {name}: {listed}. Name one with its namespace"
    question = did_you_mean(name, records if "." in name else [full.rpartition(".")[2] for full in records])
    return f"it has no record named {name}: {listed}. {question}".removesuffix(". ")


class _Parser:
    def __init__(self, types: NamedTypes) -> None:
        self._types = types
        self._named: dict[str, Part | None] = {}
        """By full name the types that were met; None while one is being read."""

    def part(self, schema: Any, path: str, namespace: str) -> Part:
        require_shallow(path)
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if isinstance(schema, str):
            return (
                self._primitive(schema, path)
                if schema in (*PRIMITIVES, "bytes", "null")
                else self._named_part(schema, path, namespace)
            )
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError(f"{_place(path)}: {schema!r} is not a type of Avro")
        match schema["type"]:
            case "record":
                return self._record(schema, path, namespace)
            case "enum":
                return self._enum(schema, path, namespace)
            case "fixed":
                return self._fixed(schema, path, namespace)
            case "array":
                return array_part(self.part(schema.get("items"), f"{path}[]", namespace))
            case "map":
                return map_part(self.part(schema.get("values"), f"{path}[]", namespace))
            case str() as name if name in (*PRIMITIVES, "bytes"):
                return self._logical(schema, path)
            case inner:
                return self.part(inner, path, namespace)

    def _union(self, schema: list[Any], path: str, namespace: str) -> Part:
        others = [branch for branch in schema if branch not in ("null", {"type": "null"})]
        if len(others) != 1 or len(schema) > 2 or isinstance(_unwrapped(others[0]), list):
            raise ValueError(
                f'{_place(path)}: a union is a type or null, as ["null", "string"]; '
                f"there is no field type for {json.dumps(schema)}"
            )
        part = self.part(others[0], path, namespace)
        if len(schema) == 1:
            return replace(part, plain=[part.plain])
        return or_null(part, null_first=schema[0] != others[0])

    def _primitive(self, name: str, path: str) -> Part:
        return self._logical({"type": name}, path)

    def _logical(self, schema: Mapping[str, Any], path: str) -> Part:
        name, logical = schema["type"], schema.get("logicalType")
        match name, logical:
            case "bytes", "decimal":
                return _decimal(schema, path, None)
            case "int", "date":
                return DAY
            case "long", "timestamp-millis":
                return moment_part(1000)
            case "long", "timestamp-micros":
                return moment_part(1)
            case (("bytes" | "null"), _):
                raise ValueError(f"{_place(path)}: there is no field type for {name}")
            case unread if unread in _UNREAD_LOGICAL_TYPES:
                raise ValueError(f"{_place(path)}: there is no field type for {logical}")
        return PRIMITIVES[name]

    def _named_part(self, name: str, path: str, namespace: str) -> Part:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self._types.require_one_meaning(name, namespace)
        found = full if full in self._named else name
        if found not in self._named:
            raise ValueError(
                f"{_place(path)}: {name!r} is not a type of Avro, and the schema defines no type of that name. "
                "A file that defines it is named by references="
            )
        if (part := self._named[found]) is None:
            raise ValueError(f"{_place(path)}: {name} contains itself. A field cannot have a recursive type")
        return replace(part, plain=self._plain_name(found))

    def _record(self, schema: Mapping[str, Any], path: str, namespace: str) -> Part:
        full, inner = self._new_name(schema, path, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise ValueError(f"{_place(path)}: the record {full} has no fields")
        parts: dict[str, Part] = {}
        for declared in fields:
            if not isinstance(declared, dict) or not _NAME.fullmatch(str(declared.get("name", ""))):
                raise ValueError(f"{_place(path)}: the record {full} has a field without a legal name")
            name = declared["name"]
            within = f"{path}.{name}" if path else name
            if name in parts:
                raise ValueError(f"the field {within!r} is declared twice")
            if "type" not in declared:
                raise ValueError(f"{within}: a field without a type")
            if not _are_texts(declared.get("aliases", [])):
                raise ValueError(f"{within}: the aliases are not a list of names")
            parts[name] = self.part(declared["type"], within, inner)
            if "default" in declared:
                self._judge_default(declared, parts[name], within, inner)
        part = record_part(self._plain_name(full), parts)
        self._named[full] = part
        return part

    def _judge_default(self, field: Mapping[str, Any], part: Part, path: str, namespace: str) -> None:
        try:
            part.read(default_of(self._types, field["type"], namespace, field["default"]))
        except ValueError as error:
            raise ValueError(f"{path}: the default {error}") from error

    def _new_name(self, schema: Mapping[str, Any], path: str, namespace: str) -> tuple[str, str]:
        full, inner = full_name(schema, namespace)
        if not all(map(_NAME.fullmatch, full.split("."))):
            raise ValueError(f"{_place(path)}: {full!r} is not a legal name of a type")
        if full in self._named:
            raise ValueError(f"{_place(path)}: the type {full} is defined twice")
        if not _are_texts(schema.get("aliases", [])):
            raise ValueError(f"{_place(path)}: the aliases of {full} are not a list of names")
        self._named[full] = None
        return full, inner

    def _plain_name(self, full: str) -> str:
        """The name of a type in the schema that Avro's library writes by. A name is one of a field, too."""
        return f"T{[*self._named].index(full)}"

    def _enum(self, schema: Mapping[str, Any], path: str, namespace: str) -> Part:
        full, _ = self._new_name(schema, path, namespace)
        symbols = schema.get("symbols")
        if not _are_texts(symbols) or not symbols:
            raise ValueError(f"{_place(path)}: the enum {full} has no list of symbols")
        if illegal := [each for each in symbols if not _NAME.fullmatch(each) or symbols.count(each) > 1]:
            raise ValueError(
                f"{_place(path)}: the enum {full} has the symbol {illegal[0]!r}, which is illegal or twice"
            )
        if "default" in schema and schema["default"] not in symbols:
            raise ValueError(f"{_place(path)}: the default {schema['default']!r} is not a symbol of the enum {full}")
        part = self._named[full] = enum_part(self._plain_name(full), symbols)
        return part

    def _fixed(self, schema: Mapping[str, Any], path: str, namespace: str) -> Part:
        full, _ = self._new_name(schema, path, namespace)
        if schema.get("logicalType") != "decimal" or not _is_size(schema.get("size")):
            kind = f"fixed with {schema['logicalType']}" if schema.get("logicalType") else "fixed"
            raise ValueError(f"{_place(path)}: there is no field type for {kind}")
        part = self._named[full] = _decimal(schema, path, schema["size"], self._plain_name(full))
        return part


def _unwrapped(schema: Any) -> Any:
    """A type without what only contains it, as ``{"type": […]}``."""
    while isinstance(schema, dict) and not isinstance(schema.get("type"), str):
        schema = schema.get("type")
    return schema


def _are_texts(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 < size < 1 << 31


def _place(path: str) -> str:
    return path or "the schema"


def _decimal(schema: Mapping[str, Any], path: str, size: int | None, name: str = "") -> Part:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        raise ValueError(f"{_place(path)}: a decimal has a precision, and a scale from 0 to the precision")
    if not 0 < precision <= GREATEST_PRECISION:
        raise ValueError(f"{_place(path)}: a decimal of a field has from 1 to {GREATEST_PRECISION} digits")
    return decimal_part(name, precision, scale, size)
