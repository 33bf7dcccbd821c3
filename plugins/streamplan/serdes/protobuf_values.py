"""Values of Protobuf's types: read from messages of Google's library, and written into them.

A descriptor tells the type of each field, and how its values are converted. It is one of Google's library, which is
imported inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from streamplan.serdes.field_types import (
    GREATEST_PRECISION,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    FieldType,
    MapType,
    Scalar,
    StructType,
)
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.schema_values import (
    NULL,
    Convert,
    bytes_of,
    convert_elements,
    convert_entries,
    decimal_of,
    enum_writer,
    microseconds_of,
    moment_of,
    read_number,
    require_shallow,
    same,
    shifted,
    unscaled_of,
    write_double,
    write_float,
    writer_of,
)

Fill: TypeAlias = Callable[[Any, Any], None]
"""Writes a value into a message that is empty."""

_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DECIMALS = ("confluent.type.Decimal", "confluent.types.Decimal")
_FIELD_META = 1088
"""The number of the option ``confluent.field_meta``."""

_CALLED = ("HasField", "SetInParent", "IsInitialized", "FindInitializationErrors", "SerializeToString")
"""What is called of a message here. A field of the same name hides it."""

UINT64 = DecimalType(20, 0)


@dataclass(frozen=True)
class Part:
    """A type, and how its values are converted. A function raises :class:`Misfit` for a value that is none of it.

    Attributes:
        type: The type of the field.
        read: Takes what Google's library has read, and gives the value of the field.
        write: Gives what is assigned to a field, or appended to one; of a message it is not used.
        fill: Of a message: writes a value into one that is empty.
    """

    type: FieldType
    read: Convert
    write: Convert = same
    fill: Fill | None = None


@dataclass(frozen=True)
class MessageSchema:
    """A message.

    Attributes:
        name: Its full name.
        types: The fields and their types.
        parse: Reads a message from bytes. Raises ``google.protobuf.message.DecodeError``.
        read: Makes the fields of a message. Raises :class:`Misfit`.
        write: Makes of the fields the bytes of a message. Raises :class:`Misfit`.
    """

    name: str
    types: Mapping[str, FieldType]
    parse: Callable[[bytes], Any]
    read: Convert
    write: Callable[[Mapping[str, Any]], bytes]


def message_schema(descriptor: Any) -> MessageSchema:
    """Return what reads and writes the messages of a descriptor.

    Args:
        descriptor: A ``google.protobuf.descriptor.Descriptor``.

    Raises:
        ValueError: A part of it has a type that no field can have. The message names the part.
    """
    from google.protobuf.message_factory import GetMessageClass

    # The value itself is a message with its fields, also where a field of this message would be one value.
    part = _struct(descriptor, "", ())
    assert isinstance(part.type, StructType)
    assert part.fill is not None
    message_class: Any = GetMessageClass(descriptor)
    read, fill = part.read, part.fill
    has_required = _has_required(descriptor, set())

    def read_complete(message: Any) -> Any:
        if not message.IsInitialized():
            misfit = Misfit("is not written, and the schema requires it")
            misfit.path = message.FindInitializationErrors()[0]
            raise misfit
        return read(message)

    def write(value: Mapping[str, Any]) -> bytes:
        message = message_class()
        fill(message, value)
        data: bytes = message.SerializeToString(deterministic=True)
        return data

    return MessageSchema(
        descriptor.full_name,
        dict(part.type.fields),
        message_class.FromString,
        read_complete if has_required else read,
        write,
    )


def is_map(field: Any) -> bool:
    """Return whether a field is a map."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _has_required(descriptor: Any, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in descriptor.fields
    )


def _message(descriptor: Any, path: str, around: tuple[str, ...]) -> Part:
    """The type of a message: a struct, or what a well-known one stands for."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return Part(TIMESTAMP, _read_moment, fill=_fill_moment)
    if name == "google.type.Date":
        return Part(Scalar("date"), _read_day, fill=_fill_day)
    if name in _WRAPPERS:
        return _wrapper(descriptor, path)
    return _struct(descriptor, path, around)


def _struct(descriptor: Any, path: str, around: tuple[str, ...]) -> Part:
    """The type of a message with its fields."""
    require_shallow(path)
    name = descriptor.full_name
    if name in around:
        raise ValueError(f"{path or name}: {name} contains itself. A field cannot have a recursive type")
    if not descriptor.fields:
        raise ValueError(f"{path or name}: the message {name} has no fields")
    readers: list[tuple[str, Convert]] = []
    writers: list[tuple[str, Fill]] = []
    types: dict[str, FieldType] = {}
    for field in descriptor.fields:
        within = f"{path}.{field.name}" if path else field.name
        if field.name in _CALLED:
            raise ValueError(f"{within}: a function of Google's library has this name, so the field cannot be read")
        part, read, write = _field(field, within, (*around, name))
        types[field.name] = part
        readers.append((field.name, read))
        writers.append((field.name, write))
    choices = [(each.name, [field.name for field in each.fields]) for each in descriptor.oneofs if len(each.fields) > 1]

    def read_message(message: Any) -> dict[str, Any]:
        found = {}
        for name, read in readers:
            try:
                found[name] = read(message)
            except Misfit as misfit:
                misfit.path = f".{name}{misfit.path}"
                raise
        return found

    def fill(message: Any, value: Any) -> None:
        for choice, names in choices:
            if len(given := [name for name in names if value.get(name) is not None]) > 1:
                raise Misfit(f"has both {given[0]} and {given[1]}, and {choice} is one of them")
        for name, write in writers:
            try:
                write(message, value.get(name))
            except Misfit as misfit:
                misfit.path = f".{name}{misfit.path}"
                raise

    return Part(StructType(tuple(types.items())), read_message, fill=fill)


def _field(field: Any, path: str, around: tuple[str, ...]) -> tuple[FieldType, Convert, Fill]:
    """The type of a field, what reads it from its message, and what writes it into its message."""
    name = field.name
    if is_map(field):
        return _map_field(field, path, around)
    part = _part(field, f"{path}[]" if field.is_repeated else path, around)
    read, write, fill = part.read, part.write, part.fill
    if field.is_repeated:

        def read_each(message: Any) -> list[Any]:
            values = getattr(message, name)
            return list(values) if read is same else convert_elements(read, values)

        def write_each(message: Any, value: Any) -> None:
            if value is None:
                raise Misfit(NULL)
            target = getattr(message, name)
            if fill is None:
                target.extend(convert_elements(write, value))
            else:
                convert_elements(lambda each: _filled(fill, target.add(), each), value)

        return ArrayType(part.type), read_each, write_each
    if fill is not None:

        def read_present(message: Any) -> Any:
            return read(getattr(message, name)) if message.HasField(name) else None

        def write_present(message: Any, value: Any) -> None:
            if value is None and not field.is_required:
                return
            target = getattr(message, name)
            target.SetInParent()
            _filled(fill, target, value)

        return part.type, read_present, write_present
    read_one: Convert = (
        (lambda message: getattr(message, name)) if read is same else (lambda message: read(getattr(message, name)))
    )
    may_be_absent = field.has_presence and not field.is_required

    def read_optional(message: Any) -> Any:
        return read_one(message) if message.HasField(name) else None

    def write_one(message: Any, value: Any) -> None:
        if value is None and may_be_absent:
            return
        setattr(message, name, write(value))

    is_null_when_absent = may_be_absent and not field.has_default_value
    return part.type, read_optional if is_null_when_absent else read_one, write_one


def _filled(fill: Fill, message: Any, value: Any) -> None:
    if value is None:
        raise Misfit(NULL)
    fill(message, value)


def _map_field(field: Any, path: str, around: tuple[str, ...]) -> tuple[FieldType, Convert, Fill]:
    name = field.name
    keys, values = (field.message_type.fields_by_name[each] for each in ("key", "value"))
    read_key, write_key = _keys(keys)
    part = _part(values, f"{path}[]", around)
    read, write, fill = part.read, part.write, part.fill

    def read_map(message: Any) -> dict[str, Any]:
        return convert_entries(read, ((read_key(key), value) for key, value in getattr(message, name).items()))

    def write_map(message: Any, value: Any) -> None:
        if value is None:
            raise Misfit(NULL)
        target = getattr(message, name)
        for key, each in value.items():
            try:
                if fill is None:
                    target[write_key(key)] = write(each)
                else:
                    _filled(fill, target[write_key(key)], each)
            except Misfit as misfit:
                misfit.path = f"[{key!r}]{misfit.path}"
                raise

    return MapType(part.type), read_map, write_map


def _keys(field: Any) -> tuple[Convert, Convert]:
    """How a key of a map is read and written. It is a text, as in the JSON that Protobuf defines."""
    if field.type == field.TYPE_STRING:
        return _text, same
    if field.type == field.TYPE_BOOL:
        texts = {"true": True, "false": False}
        return (lambda key: "true" if key else "false"), lambda text: _key_of(texts.get(text), text, field)
    part = _scalars(field)[field.type]

    def write_number(text: str) -> Any:
        number = int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
        value = Decimal(number) if number is not None and part.type == UINT64 else number
        try:
            return part.write(_key_of(value, text, field))
        except Misfit:
            return _key_of(None, text, field)

    return str, write_number


def _key_of(key: Any, text: str, field: Any) -> Any:
    if key is None:
        raise Misfit(f"is no key of {text_of_type(field)}")
    return key


def _part(field: Any, path: str, around: tuple[str, ...]) -> Part:
    """The type of one value of a field."""
    if field.message_type is not None:
        if field.message_type.full_name in _DECIMALS and (declared := _declared_decimal(field)) is not None:
            return _decimal(*declared, path)
        return _message(field.message_type, path, around)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.type == field.TYPE_BYTES:
        raise ValueError(f"{path}: there is no field type for bytes")
    return _scalars(field)[field.type]


def _scalars(field: Any) -> Mapping[int, Part]:
    """The types without parts by their numbers, which any field knows."""
    return {
        **dict.fromkeys((field.TYPE_INT32, field.TYPE_SINT32, field.TYPE_SFIXED32), _INT32),
        **dict.fromkeys((field.TYPE_INT64, field.TYPE_SINT64, field.TYPE_SFIXED64), _INT64),
        **dict.fromkeys((field.TYPE_UINT32, field.TYPE_FIXED32), _UINT32),
        **dict.fromkeys((field.TYPE_UINT64, field.TYPE_FIXED64), _UINT64),
        field.TYPE_STRING: _STRING if _has_judged_texts(field.file) else replace(_STRING, read=_text),
        field.TYPE_BOOL: _BOOL,
        field.TYPE_DOUBLE: _DOUBLE,
        field.TYPE_FLOAT: _FLOAT,
    }


@lru_cache(maxsize=256)
def _has_judged_texts(file: Any) -> bool:
    """Whether Google's library refuses a text that is not UTF-8 where it parses a message, as proto3 demands."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return bool(proto.syntax == "proto3")


def _text(value: Any) -> str:
    """A text. Google's library gives the bytes of one of proto2 that is not UTF-8."""
    if not isinstance(value, str):
        raise Misfit("is a text that is not UTF-8")
    return value


def _enum(enum: Any) -> Part:
    names: dict[int, str] = {}
    for each in enum.values:
        names.setdefault(each.number, each.name)  # the first of several names, as in Java
    numbers: dict[str, int] = {each.name: each.number for each in enum.values}

    def read(number: int) -> str:
        if (name := names.get(number)) is None:
            raise Misfit(f"is {number}, which the enum {enum.name} does not list")
        return name

    judge = enum_writer(numbers)

    def write(value: Any) -> int:
        return numbers[judge(value)]

    return Part(Scalar("string"), read, write)


def _wrapper(descriptor: Any, path: str) -> Part:
    inner = _part(descriptor.fields_by_name["value"], path, ())

    def read(message: Any) -> Any:
        return inner.read(message.value)

    def fill(message: Any, value: Any) -> None:
        message.value = inner.write(value)

    return Part(inner.type, read, fill=fill)


def _read_moment(message: Any) -> datetime:
    if not 0 <= message.nanos < 1_000_000_000:
        raise Misfit("is not of type timestamp")
    return moment_of(message.seconds * 1_000_000 + message.nanos // 1000)


def _fill_moment(message: Any, value: Any) -> None:
    message.seconds, microseconds = divmod(microseconds_of(value), 1_000_000)
    message.nanos = microseconds * 1000


def _read_day(message: Any) -> date:
    try:
        return date(message.year, message.month, message.day)
    except (ValueError, OverflowError) as error:
        raise Misfit("is not of type date") from error


def _fill_day(message: Any, value: Any) -> None:
    message.year, message.month, message.day = value.year, value.month, value.day


def _decimal(precision: int, scale: int, path: str) -> Part:
    if not 0 < precision <= GREATEST_PRECISION or not 0 <= scale <= precision:
        raise ValueError(
            f"{path}: a decimal of a field has at most {GREATEST_PRECISION} digits, and a scale from 0 to its digits"
        )
    field_type = DecimalType(precision, scale)

    def read(message: Any) -> Decimal:
        unscaled = shifted(int.from_bytes(message.value, "big", signed=True), scale - message.scale)
        if not message.value or unscaled is None:
            raise Misfit(f"is not of type {field_type}")
        return decimal_of(unscaled, field_type)

    def fill(message: Any, value: Any) -> None:
        unscaled = unscaled_of(value, field_type)
        message.value, message.scale = bytes_of(unscaled), scale
        message.precision = len(str(abs(unscaled)))  # as java.math.BigDecimal.precision

    return Part(field_type, read, fill=fill)


def _declared_decimal(field: Any) -> tuple[int, int] | None:
    """Digits and scale of a decimal, from the option ``confluent.field_meta``; None without them.

    The option is read from its bytes: its file is not known to the descriptor's library.
    """
    found = _declared_parameters(field.GetOptions().SerializeToString())
    try:
        return int(found["precision"]), int(found["scale"])
    except (KeyError, ValueError):
        return None


def _declared_parameters(options: bytes) -> Mapping[str, str]:
    """The ``params`` of ``confluent.Meta``: a map in its field 2."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    def parts(data: bytes, number: int) -> Iterable[bytes]:
        fields = UnknownFieldSet(Empty.FromString(data))
        return (each.data for each in fields if each.field_number == number and isinstance(each.data, bytes))

    return {
        b"".join(parts(entry, 1)).decode(): b"".join(parts(entry, 2)).decode()
        for meta in parts(options, _FIELD_META)
        for entry in parts(meta, 2)
    }


def text_of_type(field: Any) -> str:
    """The type of a field as its file has it."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if is_map(field):
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        return f"map<{text_of_type(key)}, {text_of_type(value)}>"
    if field.message_type is not None:
        name = f"the message {field.message_type.full_name}"
    elif field.enum_type is not None:
        name = f"the enum {field.enum_type.full_name}"
    else:
        name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if field.is_repeated else name


def _read_unsigned(value: int) -> Decimal:
    return Decimal(value)


def _write_unsigned(value: Any) -> int:
    unscaled = unscaled_of(Decimal(value) if type(value) is int else value, UINT64)
    if not 0 <= unscaled < 1 << 64:
        raise Misfit(f"is {value}, which no uint64 can be")
    return unscaled


_STRING = Part(Scalar("string"), same, writer_of((str,), "string"))
_BOOL = Part(Scalar("boolean"), same, writer_of((bool,), "boolean"))
_INT32 = Part(Scalar("int"), same, writer_of((int,), "int", -(1 << 31), (1 << 31) - 1))
_INT64 = Part(Scalar("bigint"), same, writer_of((int,), "bigint", -(1 << 63), (1 << 63) - 1))
_UINT32 = Part(Scalar("bigint"), same, writer_of((int,), "uint32", 0, (1 << 32) - 1))
_UINT64 = Part(UINT64, _read_unsigned, _write_unsigned)
_DOUBLE = Part(Scalar("double"), read_number, write_double)
_FLOAT = Part(Scalar("double"), read_number, write_float)
