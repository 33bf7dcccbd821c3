"""What a reader's JSON Schema makes of values that were written with another one.

A value in JSON says itself what it is, so each one is judged when it is read. Two schemas are compared before that, for
people. On the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamplan.serdes.json_schema_places import at_place, bundled, conjuncts
from streamplan.serdes.json_schema_types import types_of
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.schema_values import Difference

_MOMENTS = ("date-time", "date")
_DEEPEST = 50
"""References that lead so far lead in a circle."""


def differences(written: WrittenSchema, read: WrittenSchema) -> tuple[Difference, ...]:
    """Return what a reader's schema cannot read of values that were written with another schema.

    Args:
        written: The schema of the values.
        read: The schema of the reader.

    Raises:
        ValueError: One of them is no schema.
    """
    writer, reader = bundled(written), bundled(read)
    return tuple(_Comparison(writer, reader).of(writer, reader, ""))


def undeclared_fields(written: WrittenSchema, read: WrittenSchema) -> list[str]:
    """Return the properties of the written schema that the reader's lacks.

    Args:
        written: The schema of the values.
        read: The schema of the reader.
    """
    writer, reader = (_kinds(document, document, "").get("object", {}) for document in map(bundled, (written, read)))
    return [name for name in writer.get("properties") or {} if name not in (reader.get("properties") or {})]


def _kinds(document: Any, schema: Any, path: str, depth: int = 0) -> dict[str, Mapping[str, Any]]:
    """The types that a value may have, each with the schema that says so; nothing where it may be anything."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    if (composed := _composed(document, schema, path)) is not None:
        schema = composed
    elif "$ref" in schema:
        return _kinds(document, at_place(document, schema["$ref"], path), path, depth + 1)
    for word in ("oneOf", "anyOf", "allOf"):
        if isinstance(schema.get(word), list) and not {"type", "properties"} & schema.keys():
            found: dict[str, Mapping[str, Any]] = {}
            for branch in schema[word]:
                for name, each in _kinds(document, branch, path, depth + 1).items():
                    found.setdefault(name, each)
            return found
    names, nullable = types_of(schema)
    return {**dict.fromkeys(names, schema), **({"null": schema} if nullable else {})}


def _composed(document: Any, schema: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """An object whose properties stand in several schemas, as one schema; None for anything else."""
    if "allOf" not in schema and ("$ref" not in schema or "properties" not in schema):
        return None
    parts = [each for each, _ in conjuncts(document, schema, path)]
    of_objects = [each for each in parts if isinstance(each.get("properties"), dict)]
    if not of_objects:
        return None
    properties: dict[str, Any] = {}
    for each in of_objects:
        properties = {**each["properties"], **properties}
    required = [name for each in parts for name in each.get("required") or ()]
    return {"type": "object", **parts[0], "properties": properties, "required": required}


class _Comparison:
    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = writer, reader

    def of(self, written: Any, read: Any, path: str) -> Iterator[Difference]:
        writer, reader = _kinds(self._writer, written, path), _kinds(self._reader, read, path)
        if not writer or not reader:
            return
        shown = path or "the value"
        if not [name for name in writer if _reads(name, reader)]:
            yield Difference(f"{shown} is written as {_listed(writer)}, and declared as {_listed(reader)}", True)
            return
        for name, schema in writer.items():
            if name == "null" and name not in reader:
                yield Difference(f"{shown} may be null, and the declaration has no null there", False)
            elif not _reads(name, reader) or (name == "number" and name not in reader):
                yield Difference(f"{shown} may be of type {name}, and is declared as {_listed(reader)}", False)
            else:
                yield from self._of_type(name, schema, reader.get(name) or reader.get("number") or {}, path)

    def _of_type(
        self, name: str, written: Mapping[str, Any], read: Mapping[str, Any], path: str
    ) -> Iterator[Difference]:
        shown, form = path or "the value", read.get("format")
        if name == "string" and form in _MOMENTS and written.get("format") != form:
            yield Difference(f"{shown} may be a text that is no {form}", False)
        allowed, listed = read.get("enum"), written.get("enum")
        if isinstance(allowed, list) and isinstance(listed, list):
            others = [str(value) for value in listed if value not in allowed and value is not None]
            if others:
                yield Difference(f"{shown} may be {', '.join(others)}, which the declaration does not list", False)
        if name == "array":
            yield from self.of(written.get("items"), read.get("items"), f"{path}[]")
        elif name == "object":
            yield from self._of_objects(written, read, path)

    def _of_objects(self, written: Mapping[str, Any], read: Mapping[str, Any], path: str) -> Iterator[Difference]:
        properties, declared = written.get("properties") or {}, read.get("properties") or {}
        for name, schema in declared.items():
            within = f"{path}.{name}" if path else name
            is_required = name in (read.get("required") or ())
            if name in properties:
                yield from self.of(properties[name], schema, within)
                if is_required and name not in (written.get("required") or ()):
                    yield Difference(f"{within} may be absent, and the declaration requires it", False)
            elif is_required:
                yield Difference(f"{within} is not written, and the declaration requires it", True)
        if declared and read.get("additionalProperties") is False:
            for name in properties:
                if name not in declared:
                    within = f"{path}.{name}" if path else name
                    yield Difference(f"{within} may be there, and the declaration allows no other properties", False)
        if isinstance(read.get("additionalProperties"), dict) and isinstance(written.get("additionalProperties"), dict):
            yield from self.of(written["additionalProperties"], read["additionalProperties"], f"{path}[]")


def _reads(name: str, reader: Mapping[str, Any]) -> bool:
    return name in reader or (name == "integer" and "number" in reader) or (name == "number" and "integer" in reader)


def _listed(kinds: Mapping[str, Any]) -> str:
    return " or ".join(kinds)
