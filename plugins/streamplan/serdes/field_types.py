"""The types of a value's fields, in the words of Spark's DDL: read from text, written as text, and taken apart.

The text of a type stands in :attr:`streamplan.serdes.serde.Serde.fields`; whoever needs its parts parses it with
:func:`parse_type`. This module imports the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeAlias

SCALAR_TYPES = ("string", "int", "bigint", "double", "boolean", "timestamp", "date")
"""The types without parts."""

FIELD_TYPES = (*SCALAR_TYPES, "decimal(p,s)", "struct<…>", "array<…>", "map<string, …>")
"""All types as people are told them."""

GREATEST_PRECISION = 38
"""The most digits of a decimal in Spark and in Arrow."""


_OTHER_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("str", "text", "varchar", "char", "uuid", "binary", "bytes"), "string"),
    **dict.fromkeys(("long", "int64", "biginteger"), "bigint"),
    **dict.fromkeys(("integer", "int32", "short", "smallint", "tinyint", "byte"), "int"),
    **dict.fromkeys(("float", "real", "number", "float64", "float32"), "double"),
    **dict.fromkeys(("datetime", "timestamp_ntz", "timestamp_ltz"), "timestamp"),
    "bool": "boolean",
    "numeric": "decimal(10,2)",
    "list": "array<string>",
    "dict": "map<string, string>",
    "record": "struct<…>",
    "object": "struct<…>",
    "json": "struct<…>",
}
"""Words of Python, of other databases and of other schemas for types, and what to write here."""


class WrongFields(ValueError):
    """A text or a class that tells no fields with their types.

    Args:
        message: What is wrong.
        hint: What to write; empty where nobody knows.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Scalar:
    """A type without parts: one of :data:`SCALAR_TYPES`, or another one of Spark's, which no serde reads."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DecimalType:
    """A number of at most ``precision`` digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class StructType:
    """An object with declared fields: their names and types."""

    fields: tuple[tuple[str, FieldType], ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{quoted(name)}: {of_field}' for name, of_field in self.fields)}>"


@dataclass(frozen=True)
class ArrayType:
    """A list of elements of one type."""

    element: FieldType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class MapType:
    """An object with any names, whose values have one type."""

    value: FieldType

    def __str__(self) -> str:
        return f"map<string, {self.value}>"


FieldType: TypeAlias = Scalar | DecimalType | StructType | ArrayType | MapType

TIMESTAMP, DATE = Scalar("timestamp"), Scalar("date")

_TOKEN = re.compile(r"\s*(?:`([^`]+)`|([<>(),:])|([^\s<>(),:`]+))")


def quoted(name: str) -> str:
    """Return a field's name as DDL has it: one that is no identifier stands between backticks."""
    return name if name.isidentifier() else f"`{name}`"


BINARY = Scalar("binary")
"""The type of a value that is bytes. No field of an object has it, since JSON has no bytes."""


@lru_cache(maxsize=1024)
def parse_type(text: str) -> FieldType:
    """Read a type, as ``array<struct<sku: string, price: decimal(10,2)>>``.

    Raises:
        ValueError: The text is no type that a field can have.
    """
    if text == BINARY.name:
        return BINARY
    tokens = _Tokens(text)
    found = tokens.type_of("the type")
    tokens.require_end()
    return found


@lru_cache(maxsize=1024)
def parse_fields(text: str) -> Mapping[str, FieldType]:
    """Read names with types, as ``id string, customer struct<name: string>, at timestamp``.

    Raises:
        ValueError: The text is no such list, or a field is declared twice.
    """
    tokens = _Tokens(text)
    fields = dict(tokens.fields(""))
    tokens.require_end()
    return fields


def nearest_type(word: str) -> str:
    """Return the type that a word of another language, or a misspelt one, stands for; empty where nobody knows."""
    close = get_close_matches(word.lower(), SCALAR_TYPES, 1)
    return _OTHER_TYPES.get(word.lower(), close[0] if close else "")


def leaves(field_type: FieldType) -> Iterator[Scalar | DecimalType]:
    """Yield the types without parts that a type is made of."""
    match field_type:
        case StructType(fields=fields):
            for _, of_field in fields:
                yield from leaves(of_field)
        case ArrayType(element=part) | MapType(value=part):
            yield from leaves(part)
        case Scalar() | DecimalType():
            yield field_type


def has_map(field_type: FieldType) -> bool:
    """Return whether a map is part of a type."""
    match field_type:
        case MapType():
            return True
        case StructType(fields=fields):
            return any(has_map(of_field) for _, of_field in fields)
        case ArrayType(element=element):
            return has_map(element)
    return False


class _Tokens:
    """The words of a declaration, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fields(self, within: str) -> Iterator[tuple[str, FieldType]]:
        names = set[str]()
        while True:
            name = self._name(marks=(None, ":") if within else (None,))
            self._take(":")
            path = f"{within}{name}"
            if name in names:
                raise ValueError(f"the field {path!r} is declared twice")
            names.add(name)
            yield name, self.type_of(path)
            if not self._take(","):
                return

    def type_of(self, path: str) -> FieldType:
        word = self._word()
        match word.lower() if word else "":
            case "struct":
                self._require("<", path)
                found: FieldType = StructType(tuple(self.fields(f"{path}.")))
                self._require(">", path)
                return found
            case "array":
                self._require("<", path)
                found = ArrayType(self.type_of(f"{path}[]"))
                self._require(">", path)
                return found
            case "map":
                self._require("<", path)
                if (key := self._word()) is None or key.lower() != "string":
                    raise ValueError(f"{path}: the keys of a map in JSON are of type string")
                self._require(",", path)
                found = MapType(self.type_of(f"{path}[]"))
                self._require(">", path)
                return found
            case "decimal":
                return self._decimal(path)
            case name if name in SCALAR_TYPES:
                return Scalar(name)
        found_word = word or self._rest()
        meant = nearest_type(found_word)
        hint = f"Write {meant} in place of {found_word}" if meant else ""
        raise WrongFields(f"{path}: type {found_word!r} is not one of {', '.join(FIELD_TYPES)}", hint)

    def require_end(self) -> None:
        if self._rest():
            raise ValueError(f"{self._rest()!r} is not expected: fields are separated by commas")

    def _decimal(self, path: str) -> DecimalType:
        found = re.compile(r"\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)").match(self._text, self._at)
        if found is None or not 0 < int(found[1]) <= GREATEST_PRECISION or int(found[2]) > int(found[1]):
            raise ValueError(f"{path}: write a decimal with its digits, at most {GREATEST_PRECISION}: decimal(10,2)")
        self._at = found.end()
        return DecimalType(int(found[1]), int(found[2]))

    def _name(self, marks: Sequence[str | None]) -> str:
        found = _TOKEN.match(self._text, self._at)
        following = found and _TOKEN.match(self._text, found.end())
        if found is None or found[2] or following is None or following[2] not in marks:
            wrong = self._rest().partition(",")[0].strip()
            hint = ""
            if not wrong and self._text.rstrip().endswith(","):
                hint = "Leave out the comma at the end"
            elif self._text.lstrip().startswith("{"):
                hint = "Write names and types, 'id string, amount bigint'; or JsonSchema('…') for a JSON Schema"
            elif written := re.fullmatch(r"(\w+)\s*[:=]\s*(\S+)", wrong):
                hint = f"Write '{written[1]} {written[2]}'"
            raise WrongFields(f"{wrong!r} is not a field: write a name and a type, as in 'Id string'", hint)
        self._at = found.end()
        return str(found[1] or found[3])

    def _word(self) -> str | None:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found[3] is None:
            return None
        self._at = found.end()
        return str(found[3])

    def _take(self, mark: str) -> bool:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found[2] != mark:
            return False
        self._at = found.end()
        return True

    def _require(self, mark: str, path: str) -> None:
        if not self._take(mark):
            observed = repr(self._rest()) if self._rest() else "the end"
            raise ValueError(f"{path}: expected {mark!r}, observed {observed}")

    def _rest(self) -> str:
        return self._text[self._at :].strip()
