"""The bytes of Avro, read as strictly as the format is, and resolved to the schema of the reader.

Source: the Avro specification, sections Binary Encoding and Schema Resolution. Avro's library for Python reads bytes
that the format forbids: an enum's number -1 as its last symbol, the byte 2 as true, an ``int`` of 41 bits. It also ends
the process where a recursive type is nested some 100,000 deep. So each type of the written schema is made into a
function once, which reads its values or raises. What the reader leaves out is read, too, and dropped: the format holds
there as well. On the standard library alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from streamplan.serdes.avro_names import PRIMITIVE, NamedTypes, default_of, full_name
from streamplan.serdes.avro_resolution import Comparison, sources_of
from streamplan.serdes.schema_source import WrittenSchema

Read: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]
"""Takes the bytes, the place of a value, and how deep it is nested; gives the value and the place behind it.

An ``IndexError`` and a ``UnicodeDecodeError`` say that the bytes are no such value, as :class:`Malformed` does.
"""

_DEEPEST = 300
"""Values of a recursive type are read if they are nested so deep. Each level takes a frame of Python's stack."""

_MOST_EMPTY = 10
"""Elements that take no bytes: more of them would take memory without a limit."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Malformed(ValueError):
    """Bytes that the format forbids. ``str()`` says why."""


class NotDeclared(ValueError):
    """A value of a type or a symbol that the written schema has and the reader's has not."""


def reader_of(written: WrittenSchema, reader: str | None = None) -> Read:
    """Return what reads the values of a schema.

    Args:
        written: The schema.
        reader: The schema of the reader, which can read the other one; None for values as they were written.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, RecursionError: The written schema is none.
    """
    writer = NamedTypes(written.text, tuple(written.flattened().values()))
    if reader is None:
        return _Compiler(writer, NamedTypes('"null"')).of(writer.root, "", None, "")
    declared = NamedTypes(reader)
    return _Compiler(writer, declared).of(writer.root, "", declared.root, "")


class _Compiler:
    def __init__(self, writer: NamedTypes, reader: NamedTypes) -> None:
        self._writer, self._reader = writer, reader
        self._comparison = Comparison(writer, reader)
        self._records: dict[tuple[int, int], Read | None] = {}
        """By the identities of the two schemas what reads a record; None while it is being made."""
        self._empty: dict[int, bool] = {}
        """By the identity of a record's schema whether its values take no bytes; False while it is looked up."""

    def of(self, written: Any, namespace: str, read: Any, of_reader: str) -> Read:
        """Return what reads a type.

        Args:
            written: The type.
            namespace: Where it stands in.
            read: That of the reader; None for a value as it was written.
            of_reader: Where that stands in.
        """
        written, namespace = self._writer.resolved(written, namespace)
        if isinstance(written, list):
            return _union([self._branch(branch, namespace, read, of_reader) for branch in written])
        if read is not None:
            read, of_reader = self._reader.resolved(read, of_reader)
            if isinstance(read, list):
                can_read = self._comparison.can_read
                readable = [each for each in read if can_read(written, namespace, each, of_reader)]
                return self.of(written, namespace, readable[0], of_reader) if readable else _not_declared
        return self._of_type(written, namespace, read, of_reader)

    def _branch(self, branch: Any, namespace: str, read: Any, of_reader: str) -> Read:
        if read is not None and not self._comparison.can_read(branch, namespace, read, of_reader):
            return _not_declared
        return self.of(branch, namespace, read, of_reader)

    def _of_type(self, written: Mapping[str, Any], namespace: str, read: Any, of_reader: str) -> Read:
        match name := written["type"]:
            case "record":
                return self._record(written, namespace, read, of_reader)
            case "array" | "map":
                part = "items" if name == "array" else "values"
                element = self.of(written[part], namespace, None if read is None else read[part], of_reader)
                if name == "map":
                    return _map(element)
                return _array(element, self._is_empty(written["items"], namespace))
            case "enum":
                return _enum(written["symbols"], read)
            case "fixed":
                return _fixed(written["size"])
            case "string" if read is not None and read["type"] == "bytes":
                return _text_as_bytes
            case "bytes" if read is not None and read["type"] == "string":
                return _string
        if name not in _PRIMITIVES:
            raise ValueError(f"{name!r} is not a type of Avro, and the schema defines no type of that name")
        return _PRIMITIVES[name]

    def _record(self, written: Mapping[str, Any], namespace: str, read: Any, of_reader: str) -> Read:
        pair = id(written), id(read)
        if pair in self._records:
            return self._records[pair] or self._later(pair)
        self._records[pair] = None
        self._records[pair] = found = self._fields(written, namespace, read, of_reader)
        return found

    def _later(self, pair: tuple[int, int]) -> Read:
        """What reads a record that contains itself."""

        def read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
            of_record = self._records[pair]
            assert of_record is not None
            return of_record(data, at, depth + 1)

        return read

    def _fields(self, written: Mapping[str, Any], namespace: str, read: Any, of_reader: str) -> Read:
        _, within = full_name(written, namespace)
        written_fields = {field["name"]: field for field in written["fields"]}
        if len(written_fields) != len(written["fields"]):
            raise ValueError(f"the record {written['name']} has two fields of the same name")
        if read is None:
            steps = [(name, self.of(field["type"], within, None, "")) for name, field in written_fields.items()]
            return _struct(tuple(steps), {})
        _, within_reader = full_name(read, of_reader)
        sources: dict[str, Any] = {}
        defaults = {}
        of_reader_field = sources_of(written_fields, read["fields"])
        for field in read["fields"]:
            if (source := of_reader_field.get(field["name"])) is not None:
                sources[source] = field
            elif "default" in field:
                defaults[field["name"]] = default_of(self._reader, field["type"], within_reader, field["default"])
        fields: list[tuple[str | None, Read]] = []
        for name, field in written_fields.items():
            declared = sources.get(name)
            of_field = self.of(field["type"], within, declared and declared["type"], within_reader)
            fields.append((declared and declared["name"], of_field))
        return _struct(tuple(fields), defaults)

    def _is_empty(self, written: Any, namespace: str) -> bool:
        """Whether the values of a type take no bytes."""
        written, namespace = self._writer.resolved(written, namespace)
        if isinstance(written, list):
            return False
        if written["type"] == "record":
            if id(written) not in self._empty:
                self._empty[id(written)] = False
                _, within = full_name(written, namespace)
                parts = [self._is_empty(field["type"], within) for field in written["fields"]]
                self._empty[id(written)] = all(parts)
            return self._empty[id(written)]
        return bool(written["type"] == "null" or (written["type"] == "fixed" and written["size"] == 0))


# -- values


def _number(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number of zigzag form, in groups of 7 bits; the lowest are first."""
    number = shift = 0
    while (byte := data[at]) & 0x80:
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift >= bits:
            raise Malformed(f"a number has more than {bits} bits")
    number |= byte << shift
    if number >> bits:
        raise Malformed(f"a number has more than {bits} bits")
    return (number >> 1) ^ -(number & 1), at + 1


def _int(data: bytes, at: int, depth: int) -> tuple[int, int]:
    byte = data[at]
    return ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else _number(data, at, 32)


def _long(data: bytes, at: int, depth: int) -> tuple[int, int]:
    byte = data[at]
    return ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else _number(data, at, 64)


def _bytes(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    length, at = (data[at] >> 1, at + 1) if not data[at] & 0x81 else _number(data, at, 64)
    end = at + length
    if length < 0:
        raise Malformed("a length is negative")
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _string(data: bytes, at: int, depth: int) -> tuple[str, int]:
    found, at = _bytes(data, at, depth)
    return found.decode(), at


def _text_as_bytes(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    found, at = _string(data, at, depth)
    return found.encode(), at


def _null(data: bytes, at: int, depth: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int, depth: int) -> tuple[bool, int]:
    if (byte := data[at]) > 1:
        raise Malformed(f"a boolean is the byte {byte}")
    return byte == 1, at + 1


def _floating(form: struct.Struct) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[float, int]:
        if (end := at + form.size) > len(data):
            raise IndexError
        number: float = form.unpack_from(data, at)[0]
        return number, end

    return read


_PRIMITIVES: Mapping[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _floating(_FLOAT),
    "double": _floating(_DOUBLE),
    "bytes": _bytes,
    "string": _string,
}
assert set(_PRIMITIVES) == set(PRIMITIVE)


def _fixed(size: int) -> Read:
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"a fixed has the size {size!r}")

    def read(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
        if (end := at + size) > len(data):
            raise IndexError
        return data[at:end], end

    return read


def _enum(symbols: list[str], read: Any) -> Read:
    known = symbols if read is None else read["symbols"]
    default = None if read is None else read.get("default")
    values = [symbol if symbol in known else default for symbol in symbols]

    def read_symbol(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        number, at = _int(data, at, depth)
        if not 0 <= number < len(values):
            raise Malformed(f"an enum has no symbol {number}")
        if (symbol := values[number]) is None:
            raise NotDeclared
        return symbol, at

    return read_symbol


def _union(branches: list[Read]) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        number, at = _int(data, at, depth)
        if not 0 <= number < len(branches):
            raise Malformed(f"a union has no branch {number}")
        return branches[number](data, at, depth + 1)

    return read


def _not_declared(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    raise NotDeclared


def _struct(fields: tuple[tuple[str | None, Read], ...], defaults: Mapping[str, Any]) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        if depth > _DEEPEST:
            raise Malformed(f"it is nested more than {_DEEPEST} deep")
        found = dict(defaults)
        for name, read_field in fields:
            value, at = read_field(data, at, depth + 1)
            if name is not None:
                found[name] = value
        return found, at

    return read


def _array(element: Read, is_empty: bool) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        found: list[Any] = []
        count, at, end = _block(data, at)
        while count:
            if is_empty and len(found) + count > _MOST_EMPTY:
                raise Malformed(f"an array has more than {_MOST_EMPTY} elements that take no bytes")
            for _ in range(count):
                value, at = element(data, at, depth + 1)
                found.append(value)
            count, at, end = _next_block(data, at, end)
        return found, at

    return read


def _map(of_value: Read) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        count, at, end = _block(data, at)
        while count:
            for _ in range(count):
                key, at = _string(data, at, depth)
                found[key], at = of_value(data, at, depth + 1)
            count, at, end = _next_block(data, at, end)
        return found, at

    return read


def _block(data: bytes, at: int) -> tuple[int, int, int | None]:
    """The number of elements of a block, where they begin, and where they end, if that is written."""
    count, at = _long(data, at, 0)
    if count >= 0:
        return count, at, None
    size, at = _long(data, at, 0)
    return -count, at, at + size


def _next_block(data: bytes, at: int, end: int | None) -> tuple[int, int, int | None]:
    if end is not None and at != end:
        raise Malformed("a block has another size than is written")
    return _block(data, at)
