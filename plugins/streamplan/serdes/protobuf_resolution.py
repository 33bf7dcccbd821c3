"""What the message of a reader makes of values that were written as another message.

A field is found by its number. Google's library leaves out without a word what it finds with another type, and cuts a
number that is too long. Here two messages are compared as a whole, so that it is told once, and in plain sentences,
what cannot be read. Source: https://protobuf.dev/programming-guides/proto3/#updating
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamplan.serdes.protobuf_values import is_map, text_of_type
from streamplan.serdes.schema_values import Difference

_READ_AS = {
    "int32": ("int64", "enum"),
    "uint32": ("int64", "uint64"),
    "bool": ("int32", "int64", "uint32", "uint64"),
    "enum": ("int32", "int64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""By a type the others that read all of its values as what they are."""


def differences(written: Any, read: Any) -> tuple[Difference, ...]:
    """Return what a reader's message cannot read of another one.

    Args:
        written: The descriptor of what is written.
        read: The descriptor of the reader's message.
    """
    return tuple(_of_messages(written, read, "", ()))


def undeclared_fields(written: Any, read: Any) -> list[str]:
    """Return the fields of the written message whose numbers the reader's lacks, by name.

    Args:
        written: The descriptor of what is written.
        read: The descriptor of the reader's message.
    """
    return [field.name for field in written.fields if field.number not in read.fields_by_number]


def _of_messages(written: Any, read: Any, path: str, around: tuple[tuple[str, str], ...]) -> Iterator[Difference]:
    pair = written.full_name, read.full_name
    if pair in around:
        return
    for field in read.fields:
        within = f"{path}.{field.name}" if path else field.name
        other = written.fields_by_number.get(field.number)
        if other is not None:
            yield from _of_fields(other, field, within, (*around, pair))
        elif field.is_required:
            yield Difference(f"{within} is not written, and the declaration requires it", True)


def _of_fields(written: Any, read: Any, path: str, around: tuple[tuple[str, str], ...]) -> Iterator[Difference]:
    if is_map(written) != is_map(read) or (written.is_repeated and not read.is_repeated):
        yield _not_read(written, read, path)
    elif written.message_type is not None and read.message_type is not None and written.type == read.type:
        yield from _of_messages(written.message_type, read.message_type, path, around)
    elif (kind := _kind(written)) != _kind(read) and _kind(read) not in _READ_AS.get(kind, ()):
        yield _not_read(written, read, path)
    elif written.enum_type is not None and read.enum_type is not None:
        missing = [each.name for each in written.enum_type.values if each.number not in read.enum_type.values_by_number]
        if missing:
            yield Difference(f"{path} may be {', '.join(missing)}, which the declaration does not list", False)


def _kind(field: Any) -> str:
    """The type of one value: how its bytes are read."""
    if field.message_type is not None:
        return "message"
    return "enum" if field.enum_type is not None else text_of_type(field).removeprefix("repeated ")


def _not_read(written: Any, read: Any, path: str) -> Difference:
    return Difference(f"{path} is written as {text_of_type(written)}, and declared as {text_of_type(read)}", True)
