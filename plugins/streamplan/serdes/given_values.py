"""Values that tests and test data give: a moment is a ``datetime`` or a ``date``, or its text as in a topic of JSON.

What a Python function of a topology returns is judged more strictly: its moments are no texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from streamplan.serdes.field_types import DATE, TIMESTAMP, ArrayType, FieldType, MapType, StructType, parse_type
from streamplan.serdes.json_values import day_of_text, moment_of_json
from streamplan.serdes.serde import Serde, Value

_Convert: TypeAlias = Callable[[Any, str], Any]
"""Converts a value; the text is the path to it."""


def encode_given(serde: Serde, value: Value) -> bytes:
    """Write a value.

    Raises:
        ValueError: The serde has no such value, or a text is no moment. The message begins with the field.
    """
    if isinstance(value, Mapping):
        converted = {name: convert(value[name], name) for name, convert in _of_fields(serde) if name in value}
        value = {**value, **converted} if converted else value
    return serde.encode(value)


def _of_fields(serde: Serde) -> tuple[tuple[str, _Convert], ...]:
    return _converting(tuple(serde.fields.items()))


@lru_cache(maxsize=1024)
def _converting(fields: tuple[tuple[str, str], ...]) -> tuple[tuple[str, _Convert], ...]:
    """Return for each field with a moment its name, and what converts its values."""
    found = ((name, _converter(parse_type(text))) for name, text in fields)
    return tuple((name, convert) for name, convert in found if convert is not None)


def _converter(field_type: FieldType) -> _Convert | None:
    """Return what converts the texts in a value of a type; None where the type has no moment."""
    match field_type:
        case StructType(fields=fields):
            parts = [(name, part) for name, of_field in fields if (part := _converter(of_field)) is not None]
            return _struct(parts) if parts else None
        case ArrayType(element=element):
            part = _converter(element)
            return None if part is None else _array(part)
        case MapType(value=of_value):
            part = _converter(of_value)
            return None if part is None else _map(part)
    if field_type == TIMESTAMP:
        return _scalar(moment_of_json, "a datetime, or a text as '2026-01-01T12:00:00Z'")
    return _scalar(day_of_text, "a date, or a text as '2026-01-31'") if field_type == DATE else None


def _scalar(read: Callable[[str], Any], expected: str) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, str):
            return value
        if (moment := read(value)) is None:
            raise ValueError(f"{path}: expected {expected}, observed {value!r:.60}")
        return moment

    return convert


def _struct(parts: list[tuple[str, _Convert]]) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {**value, **{name: part(value[name], f"{path}.{name}") for name, part in parts if name in value}}

    return convert


def _array(part: _Convert) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [part(each, f"{path}[{row}]") for row, each in enumerate(value)]

    return convert


def _map(part: _Convert) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: part(each, f"{path}[{key!r}]") for key, each in value.items()}

    return convert
