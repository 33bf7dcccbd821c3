"""Avro schemas as JSON: the types that stand in them, by their names. On the standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

NAMED = ("record", "enum", "fixed")
"""The types that have names."""

PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def parse_json(text: str) -> Any:
    """Read the JSON of a schema.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from error


def full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a record, an enum or a fixed, and the namespace of what stands in it.

    Args:
        schema: Its schema.
        namespace: That of what it stands in.
    """
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a {schema.get('type')} without a name")
    if "." not in name:
        namespace = schema.get("namespace", namespace) or ""
        name = f"{namespace}.{name}" if namespace else name
    return name, name.rpartition(".")[0]


class NamedTypes:
    """A schema with the types that it names.

    Attributes:
        root: The schema.
        named: By full name each type, and the namespace that it stands in.
    """

    def __init__(self, text: str, references: tuple[str, ...] = ()) -> None:
        self.named: dict[str, tuple[Any, str]] = {}
        for reference in references:
            self._collect(parse_json(reference), "")
        self.root = parse_json(text)
        self._collect(self.root, "")

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, namespace)
        if not isinstance(schema, dict):
            return
        if schema.get("type") in NAMED:
            name, inner = full_name(schema, namespace)
            self.named[name] = schema, namespace
            namespace = inner
        for part in ("type", "items", "values"):
            self._collect(schema.get(part), namespace)
        for field in schema.get("fields", ()):
            self._collect(field.get("type"), namespace)

    def resolved(self, schema: Any, namespace: str) -> tuple[Any, str]:
        """Return a type with its parts, and the namespace that it stands in: for a name the type of that name."""
        if isinstance(schema, dict) and not isinstance(schema.get("type"), str):
            return self.resolved(schema.get("type"), namespace)
        name = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(name, str):
            for full in (f"{namespace}.{name}", name):
                if full in self.named:
                    return self.named[full]
        return ({"type": schema} if isinstance(schema, str) else schema), namespace
