"""Avro schemas as JSON: the types that stand in them, by their names. On the standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streamplan.serdes.schema_text import plain_json

NAMED = ("record", "enum", "fixed")
"""The types that have names."""

PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def parse_json(text: str) -> Any:
    """Read the JSON of a schema, perhaps with comments.

    Raises:
        ValueError: It is no JSON. The message has the line and the column.
    """
    try:
        return json.loads(plain_json(text))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from error


def types_of_file(text: str) -> tuple[Any, str]:
    """Return what a file defines, a type or several in a list, and the namespace that it stands in.

    Args:
        text: A schema, or a protocol (``.avpr``), whose types these are.

    Raises:
        ValueError: It is no JSON, or the protocol has no name.
    """
    schema = parse_json(text)
    if isinstance(schema, dict) and isinstance(schema.get("types"), list) and "protocol" in schema:
        return schema["types"], full_name({**schema, "type": "protocol", "name": schema["protocol"]}, "")[1]
    return schema, ""


def full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a record, an enum or a fixed, and the namespace of what stands in it.

    Args:
        namespace: That of what it stands in.
    """
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a {schema.get('type')} without a name")
    if "." not in name:
        namespace = schema.get("namespace", namespace) or ""
        if not isinstance(namespace, str):
            raise ValueError(f"the {schema.get('type')} {name} has the namespace {namespace!r}, which is no text")
        name = f"{namespace}.{name}" if namespace else name
    return name, name.rpartition(".")[0]


def _name_within(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


class NamedTypes:
    """A schema with the types that it names.

    Attributes:
        root: The schema; of a protocol its types.
        named: By full name each type, and the namespace that it stands in.
    """

    def __init__(self, text: str, references: tuple[str, ...] = ()) -> None:
        self.named: dict[str, tuple[Any, str]] = {}
        self._earlier: list[tuple[str, tuple[Any, str]]] = []
        for reference in references:
            self._collect(*types_of_file(reference))
        self.root, namespace = types_of_file(text)
        self._collect(self.root, namespace)

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, namespace)
        if not isinstance(schema, dict):
            return
        if schema.get("type") in NAMED:
            name, inner = full_name(schema, namespace)
            if name in self.named:
                self._earlier.append((name, self.named[name]))
            self.named[name] = schema, namespace
            namespace = inner
        for part in ("type", "items", "values"):
            self._collect(schema.get(part), namespace)
        fields = schema.get("fields")
        for field in fields if isinstance(fields, list) else ():
            self._collect(field.get("type") if isinstance(field, dict) else None, namespace)

    def resolved(self, schema: Any, namespace: str) -> tuple[Any, str]:
        """Return a type with its parts, and the namespace that it stands in: for a name the type of that name."""
        if isinstance(schema, dict) and not isinstance(schema.get("type"), str):
            return self.resolved(schema.get("type"), namespace)
        name = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(name, str) and (full := self.full_name_of(name, namespace)):
            self.require_one_meaning(name, namespace)
            return self.named[full]
        return ({"type": schema} if isinstance(schema, str) else schema), namespace

    def full_name_of(self, name: str, namespace: str) -> str | None:
        """Return the full name of the type that a name means where it stands; None where it means none of them.

        Args:
            name: The name. One with a dot is a full name.
            namespace: The namespace of what it stands in.
        """
        within = _name_within(name, namespace)
        return within if within in self.named else name if name in self.named else None

    def require_one_meaning(self, name: str, namespace: str) -> None:
        """Refuse a name that means one type before the definition of another, and that one behind it.

        Java's library takes the type without a namespace until it has met the one of the namespace.

        Args:
            name: The name. One with a dot is a full name.
            namespace: The namespace of what it stands in.

        Raises:
            ValueError: The type without a namespace is defined first, and one of the namespace has the same name.
        """
        within = _name_within(name, namespace)
        defined = [each for each in self.named if each in (name, within)]
        if defined == [name, within]:
            raise ValueError(f"the name {name} may mean {within}, or the type {name} without a namespace")

    def records(self, name: str = "") -> list[str]:
        """Return the full names of the records of this name, with a namespace or without; of all without a name."""
        found = [full for full, (schema, _) in self.named.items() if schema["type"] == "record"]
        return [full for full in found if name in ("", full)] or [
            full for full in found if full.rpartition(".")[2] == name
        ]

    def contradicted(self) -> list[str]:
        """Return the full names of the types with several definitions that differ."""
        return [name for name, defined in self._earlier if self._contained(*defined, set()) != self.contained(name)]

    def contained(self, name: str) -> Any:
        """Return a named type with the types in it that it names, each where it is named first.

        Args:
            name: Its full name.

        Raises:
            ValueError: It contains two types of one name, and the name would mean the other one where it stands.
        """
        return self._contained(*self.named[name], set())

    def _contained(self, schema: Any, namespace: str, seen: set[str]) -> Any:
        standing = namespace
        if isinstance(schema, list):
            return [self._contained(branch, namespace, seen) for branch in schema]
        if isinstance(schema, str):
            if (full := self.full_name_of(schema, namespace)) is None:
                return schema
            schema, namespace = self.named[full]
        if not isinstance(schema, dict):
            return schema
        found = dict(schema)
        if schema.get("type") in NAMED:
            name, inner = full_name(schema, namespace)
            if name in seen:
                if (other := _name_within(name, standing)) != name and other in seen:
                    raise ValueError(f"the name {name} would mean {other}, and the type {name} has no namespace")
                return name
            seen.add(name)
            found["name"], found["namespace"] = name.rpartition(".")[2], inner
            namespace = inner
        for part in ("type", "items", "values"):
            if part in found and found[part] not in NAMED:
                found[part] = self._contained(found[part], namespace, seen)
        if isinstance(fields := schema.get("fields"), list):
            found["fields"] = [self._contained(field, namespace, seen) for field in fields]
        return found


def default_of(types: NamedTypes, schema: Any, namespace: str, value: Any) -> Any:
    """Return the default of a field as its bytes would be read; a text for bytes, one character for each of them.

    Args:
        types: The schema of the reader.
        schema: The type of the field.
        namespace: Where it stands in.
        value: The default, from JSON. That of a union is of any of its types.

    Raises:
        ValueError: It is none of the type.
    """
    schema, namespace = types.resolved(schema, namespace)
    if isinstance(schema, list):
        for branch in schema:
            try:
                return default_of(types, branch, namespace, value)
            except ValueError:
                continue
        raise ValueError(f"{value!r} is not of a type of the union")
    match schema["type"], value:
        case "null", None:
            return None
        case "boolean", bool():
            return value
        case "int" | "long" as name, int() if not isinstance(value, bool):
            if -(limit := 1 << (31 if name == "int" else 63)) <= value < limit:
                return value
        case "float" | "double", int() | float() if not isinstance(value, bool):
            return float(value)
        case "string" | "bytes" | "fixed", str():
            if schema["type"] == "string" or (
                all(ord(each) < 256 for each in value) and len(value) == schema.get("size", len(value))
            ):
                return value
        case "enum", str() if value in schema["symbols"]:
            return value
        case "array", list():
            return [default_of(types, schema["items"], namespace, each) for each in value]
        case "map", dict():
            return {key: default_of(types, schema["values"], namespace, each) for key, each in value.items()}
        case "record", dict():
            return _default_record(types, schema, namespace, value)
    raise ValueError(f"{value!r} is not of type {schema['type']}")


def _default_record(types: NamedTypes, schema: Any, namespace: str, value: Mapping[str, Any]) -> dict[str, Any]:
    _, within = full_name(schema, namespace)
    found = {}
    for field in schema["fields"]:
        if field["name"] not in value and "default" not in field:
            raise ValueError(f"{dict(value)!r} has no {field['name']}")
        given = value.get(field["name"], field.get("default"))
        found[field["name"]] = default_of(types, field["type"], within, given)
    return found
