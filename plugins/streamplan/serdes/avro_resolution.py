"""What a reader's schema makes of values that were written with another one ("schema resolution").

Source: the Avro specification, section Schema Resolution. Avro's library resolves value by value. Here two schemas are
compared as a whole, so that it is told once, and in plain sentences, what cannot be read. On the standard library
alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from streamplan.serdes.avro_names import NAMED, NamedTypes, full_name
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.schema_values import Difference

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_LOGICAL_TYPES = ("date", "timestamp-millis", "timestamp-micros")
"""A number means something else in each of them."""


def differences(written: WrittenSchema, reader: str) -> tuple[Difference, ...]:
    """Return what a reader's schema cannot read of values that were written with another schema.

    Args:
        written: The schema of the values.
        reader: The schema of the reader, which has no references.

    Raises:
        ValueError: One of them is no schema.
    """
    writer_schema, reader_schema = NamedTypes(written.text, tuple(written.flattened().values())), NamedTypes(reader)
    return tuple(Comparison(writer_schema, reader_schema).of(writer_schema.root, "", reader_schema.root, "", ""))


def undeclared_fields(written: WrittenSchema, reader: str) -> list[str]:
    """Return the fields of the written record that the reader's schema lacks, by name.

    Args:
        written: The schema of the values.
        reader: The schema of the reader, which has no references.
    """
    writer_schema, reader_schema = NamedTypes(written.text, tuple(written.flattened().values())), NamedTypes(reader)
    declared = {name for field in reader_schema.root["fields"] for name in (field["name"], *field.get("aliases", ()))}
    fields = writer_schema.root.get("fields", ()) if isinstance(writer_schema.root, dict) else ()
    return [field["name"] for field in fields if field["name"] not in declared]


class Comparison:
    """Compares types of a written schema with types of the reader's.

    Args:
        writer: The written schema.
        reader: The reader's.
    """

    def __init__(self, writer: NamedTypes, reader: NamedTypes) -> None:
        self._writer, self._reader = writer, reader
        self._begun = set[tuple[int, int]]()

    def can_read(self, written: Any, namespace: str, read: Any, of_reader: str) -> bool:
        """Return whether some value of a type can be read.

        Args:
            written: The type.
            namespace: Where it stands in.
            read: That of the reader.
            of_reader: Where that stands in.
        """
        return all(not each.always for each in [*self.of(written, namespace, read, of_reader, "")])

    def of(self, written: Any, namespace: str, read: Any, of_reader: str, path: str) -> Iterator[Difference]:
        """Yield what the reader cannot read of a type: see :meth:`can_read`, and ``path``, its place in the value."""
        written, namespace = self._writer.resolved(written, namespace)
        read, of_reader = self._reader.resolved(read, of_reader)
        if isinstance(written, list):
            yield from self._written_union(written, namespace, read, of_reader, path)
        elif isinstance(read, list):
            others = [branch for branch in read if branch != "null"]
            found = [[*self.of(written, namespace, branch, of_reader, path)] for branch in read]
            readable = [each for each in found if not any(one.always for one in each)]
            if readable:
                yield from readable[0]
            elif len(others) == 1 and written != {"type": "null"}:  # what is wrong within the type, and not with null
                yield from self.of(written, namespace, others[0], of_reader, path)
            else:
                yield from self._not_read(written, read, path)
        else:
            yield from self._of_types(written, namespace, read, of_reader, path)

    def _written_union(
        self, written: list[Any], namespace: str, read: Any, of_reader: str, path: str
    ) -> Iterator[Difference]:
        found = [[*self.of(branch, namespace, read, of_reader, path)] for branch in written]
        if all(any(one.always for one in each) for each in found):
            yield from self._not_read(written, read, path)
            return
        for branch, each in zip(written, found, strict=True):
            if any(one.always for one in each):
                if branch == "null":
                    yield Difference(f"{_of(path)} may be null, and the declaration has no null there", False)
                else:
                    yield Difference(each[0].text, False)
            else:
                yield from each

    def _of_types(self, written: Any, namespace: str, read: Any, of_reader: str, path: str) -> Iterator[Difference]:
        writer_type, reader_type = written["type"], read["type"]
        if writer_type != reader_type:
            if reader_type not in _PROMOTIONS.get(writer_type, ()):
                yield from self._not_read(written, read, path)
            return
        if (id(written), id(read)) in self._begun:
            return
        self._begun.add((id(written), id(read)))
        match writer_type:
            case "record":
                yield from self._records(written, namespace, read, of_reader, path)
            case "array":
                yield from self.of(written["items"], namespace, read["items"], of_reader, f"{path}[]")
            case "map":
                yield from self.of(written["values"], namespace, read["values"], of_reader, f"{path}[]")
            case "enum":
                yield from _names(written, namespace, read, of_reader, path)
                if "default" not in read and (missing := [s for s in written["symbols"] if s not in read["symbols"]]):
                    yield Difference(
                        f"{_of(path)} may be {', '.join(missing)}, which the declaration does not list", False
                    )
            case "fixed" if written["size"] != read["size"]:
                yield from self._not_read(written, read, path)
        yield from self._logical_types(written, read, path)
        self._begun.discard((id(written), id(read)))

    def _records(self, written: Any, namespace: str, read: Any, of_reader: str, path: str) -> Iterator[Difference]:
        yield from _names(written, namespace, read, of_reader, path)
        _, within_writer = full_name(written, namespace)
        _, within_reader = full_name(read, of_reader)
        fields = {field["name"]: field for field in written["fields"]}
        sources = sources_of(fields, read["fields"])
        for field in read["fields"]:
            within = f"{path}.{field['name']}" if path else field["name"]
            if (source := sources.get(field["name"])) is not None:
                yield from self.of(fields[source]["type"], within_writer, field["type"], within_reader, within)
            elif "default" not in field:
                yield Difference(f"{within} is not written, and the declaration has no default for it", True)

    def _logical_types(self, written: Any, read: Any, path: str) -> Iterator[Difference]:
        writer_type, reader_type = written.get("logicalType"), read.get("logicalType")
        if writer_type == reader_type == "decimal":
            if written.get("scale", 0) != read.get("scale", 0):
                yield from self._not_read(written, read, path)
        elif writer_type in _LOGICAL_TYPES and reader_type in _LOGICAL_TYPES and writer_type != reader_type:
            yield from self._not_read(written, read, path)

    def _not_read(self, written: Any, read: Any, path: str) -> Iterator[Difference]:
        yield Difference(f"{_of(path)} is written as {_text(written)}, and declared as {_text(read)}", True)


def sources_of(written: Collection[str], fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return by the name of a reader's field the written field that it is read from.

    A written field has the name of the reader's field that has its name as an alias, and of several of them that of
    the last one (``Schema.applyAliases``). Of two written fields that would have one name, the one keeps it that was
    written so; the library refuses them.

    Args:
        written: The names of the written fields.
        fields: Those of the reader.
    """
    declared = {field["name"] for field in fields}
    renamed = {alias: field["name"] for field in fields for alias in field.get("aliases", ())}
    found: dict[str, str] = {}
    for name in written:
        to = renamed.get(name, name)
        is_kept_by_another = to != name and to in written and renamed.get(to, to) == to
        if to in declared and not is_kept_by_another:
            found.setdefault(to, name)
    left = (name for name in written if name in declared and name not in found and name not in found.values())
    return found | {name: name for name in left}


def _names(written: Any, namespace: str, read: Any, of_reader: str, path: str) -> Iterator[Difference]:
    """The names of two records or enums must be alike, or the reader's has the other one as an alias."""
    writer_name, reader_name = full_name(written, namespace)[0], full_name(read, of_reader)[0]
    last = writer_name.rpartition(".")[2]
    aliases = read.get("aliases", ())
    if last != reader_name.rpartition(".")[2] and writer_name not in aliases and last not in aliases:
        yield Difference(
            f"{_of(path)} is written as the {written['type']} {writer_name}, and declared as {reader_name}, "
            "without an alias",
            True,
        )


def _of(path: str) -> str:
    return path or "the value"


def _text(schema: Any) -> str:
    """A type in few words."""
    if isinstance(schema, list):
        return " or ".join(map(_text, schema))
    if not isinstance(schema, Mapping):
        return str(schema)
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    if schema.get("logicalType"):
        return str(schema["logicalType"])
    if isinstance(schema["type"], str):
        return f"the {schema['type']} {schema['name']}" if schema["type"] in NAMED else schema["type"]
    return json.dumps(schema["type"])
