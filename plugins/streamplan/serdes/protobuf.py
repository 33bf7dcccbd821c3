"""Messages of Protobuf as values, in Confluent's wire format.

After the prefix stand the message indexes: which message of the schema's file it is, in numbers of zigzag form. The
bytes of the message follow. :meth:`Protobuf.decode` is the reference; a column is read value by value.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import InitVar, dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, Self

from streamplan.errors import Refused, did_you_mean
from streamplan.judged import judged_constructor
from streamplan.judged_words import described
from streamplan.serdes.field_types import FieldType
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.protobuf_files import (
    SCHEMA_FORMAT,
    NotCompiled,
    compile_file,
    compile_schema,
    declared_schema,
    require_compiler,
)
from streamplan.serdes.protobuf_resolution import differences, undeclared_fields
from streamplan.serdes.protobuf_values import MessageSchema, message_schema
from streamplan.serdes.schema_serde import (
    PREFIX,
    Decode,
    SchemaSerde,
    declared_file,
    real_folder,
    rejecting,
    unreadable,
)
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.schema_values import Difference, told
from streamplan.serdes.serde import MAX_BYTES, Undecodable, Value

_MOST_INDEXES = 100
"""Google's library reads messages in messages down to this depth."""

_MOST_READERS = 100


@judged_constructor
@dataclass(frozen=True, repr=False)
class Protobuf(SchemaSerde):
    """A message of Protobuf in the value of a record; a :class:`streamplan.serdes.serde.Serde`.

    Example: ``topology.stream("orders", value=Protobuf("order.proto", message="Order"))``

    Attributes:
        schema: The path of a file ``.proto``, or of a set of descriptors that ``protoc --include_imports
            --descriptor_set_out`` or ``buf build`` has made. A relative path begins at the file that declares it. What
            is kept is a set of descriptors in base64. Values may have been written with another schema, which this one
            can read. :meth:`of` takes a class that ``protoc`` has made instead.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
        schemas: Where the schemas of values are looked up. It is not declared: :meth:`with_schemas` sets it.
        topic: The topic that the values are in, for the name of the schema's subject. It is not declared either.
        message: The name of the message, with or without its package, as ``Order`` or ``Order.Line``. It is not
            needed for a file with one message.
        proto_path: The folder that the paths of the file and of its imports begin at, or several, of which the first
            that has a file gives it; by default the file's own.
    """

    message: str = ""
    proto_path: InitVar[str | Sequence[str]] = ""

    schema_format: ClassVar[str] = SCHEMA_FORMAT
    title: ClassVar[str] = "Protobuf"

    def __post_init__(self, proto_path: str | Sequence[str]) -> None:
        if _is_path(self.schema):
            roots = [proto_path] if isinstance(proto_path, str) else proto_path
            object.__setattr__(self, "schema", _set_of_file(self.schema, [*filter(None, roots)]))

    @classmethod
    def of(cls, message_class: Any, *, max_bytes: int = MAX_BYTES) -> Self:
        """Return the serde of a class that ``protoc`` has made.

        Example: ``Protobuf.of(order_pb2.Order)``

        Args:
            message_class: Such as ``order_pb2.Order``.
            max_bytes: The most bytes that the value, its new key and the record's headers may have together.
        """
        descriptor = getattr(message_class, "DESCRIPTOR", None)
        if not isinstance(message_class, type) or descriptor is None:
            raise ValueError(f"message_class is {described(message_class)}; it takes a class that protoc has made")
        return cls(_set_of(descriptor.file), max_bytes, message=descriptor.full_name)

    @property
    def types(self) -> Mapping[str, FieldType]:
        """Field name to type."""
        return self._declared_message.schema.types

    @cached_property
    def record_name(self) -> str:
        """The full name of the message."""
        return self._declared_message.schema.name

    @property
    def format(self) -> str:
        """Only serdes of the same message read each other's bytes."""
        return f"{self.title.lower()} {self.message} {self.schema}"

    @cached_property
    def declared(self) -> WrittenSchema:
        """The file of the message, as it is registered."""
        return declared_schema(b64decode(self.schema), self._declared_message.descriptor.file.name)

    def prepare_to_read(self) -> None:
        """Asks the registry for an answer, and makes sure that what it answers can be compiled."""
        super().prepare_to_read()
        require_compiler()

    def differences(self, written: WrittenSchema) -> tuple[Difference, ...]:
        """Return what the declared message cannot read of the message of that name in another schema."""
        read = self._declared_message.descriptor
        if (found := _named(_files_of(written), _local_name(read))) is None:
            return (Difference(f"there is no message {_local_name(read)} in it", True),)
        return differences(found, read)

    def undeclared_fields(self, written: WrittenSchema) -> list[str]:
        """Return the fields of that message which the declared one lacks, by name."""
        read = self._declared_message.descriptor
        found = _named(_files_of(written), _local_name(read))
        return [] if found is None else undeclared_fields(found, read)

    @property
    def _declared_message(self) -> _Declared:
        if _is_path(self.schema):
            raise ValueError(self.schema)
        return _declared_message(self.schema, self.message)

    def _decoder(self, written: WrittenSchema, schema_id: int) -> Decode:
        return _decoder(written, self.schema, self.message, schema_id)

    def _write(self, value: Value) -> bytes:
        declared = self._declared_message
        return declared.indexes + declared.schema.write(value)


class _Declared(NamedTuple):
    """A message of a declaration: its descriptor, its types, and its indexes as they stand in a value."""

    descriptor: Any
    schema: MessageSchema
    indexes: bytes


def text_of_message(data: bytes, written: WrittenSchema) -> str | None:
    """Return a value for people: the message as JSON, with all that was written. None where it is no such value.

    Args:
        data: Any value.
        written: The schema that it names.
    """
    from google.protobuf.json_format import Error, MessageToDict
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        indexes, start = _read_indexes(data, PREFIX.size)
        files = _files_of(written)
        message_class: Any = GetMessageClass(_message_at(files, indexes))
        fields = MessageToDict(
            message_class.FromString(data[start:]),
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=files.pool,
        )
    except (NotCompiled, DecodeError, Error, LookupError, ValueError, TypeError):
        return None
    return json.dumps(fields, ensure_ascii=False)


@lru_cache(maxsize=256)
def _is_path(schema: str) -> bool:
    """Whether it is no set of descriptors: the path of a file, or the fault of one."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        data = b64decode(schema, validate=True)
        return b64encode(data).decode() != schema or not FileDescriptorSet.FromString(data).file
    except (Error, ValueError, DecodeError):
        return True


def _set_of_file(declared: str, proto_path: Sequence[str]) -> str:
    """A file's descriptors in base64, or what is wrong with it, for the property `fields`, which tells the line."""
    path = declared_file(declared)
    name, folders = (declared, [*map(declared_file, proto_path)]) if proto_path else (path.name, [path.parent])
    path = folders[0] / name
    try:
        with ExitStack() as stack:
            roots = [stack.enter_context(real_folder(folder)) for folder in folders]
            found = next((root / name for root in roots if (root / name).is_file()), None)
            if found is None:
                return unreadable(", ".join(str(folder / name) for folder in folders))
            files = compile_file(name, roots) if path.suffix == ".proto" else _checked_set(found.read_bytes())
        return b64encode(files).decode()
    except (ValueError, OSError, Refused) as error:
        return f"the schema {path} cannot be read: {error}"


def _checked_set(data: bytes) -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise NotCompiled("it is neither a .proto file nor a set of descriptors") from error
    if not found.file:
        raise NotCompiled("it is an empty set of descriptors")
    for file in found.file:
        file.ClearField("source_code_info")
    checked: bytes = found.SerializeToString(deterministic=True)
    _files(checked)
    return checked


def _set_of(file: Any) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        for imported in file.dependencies:
            add(imported)
        if file.name not in found:
            found[file.name] = FileDescriptorProto.FromString(file.serialized_pb)

    add(file)
    return b64encode(FileDescriptorSet(file=found.values()).SerializeToString(deterministic=True)).decode()


class _Files(NamedTuple):
    """Files of descriptors: the last one, and where all of them are known."""

    file: Any
    pool: Any


def _files(descriptors: bytes) -> _Files:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool: Any = DescriptorPool()
    files = FileDescriptorSet.FromString(descriptors).file
    if not files:
        raise NotCompiled("there is no file in it")
    try:
        for file in files:
            pool.Add(file)
        return _Files(pool.FindFileByName(files[-1].name), pool)
    except (TypeError, KeyError) as error:
        raise NotCompiled(str(error)) from error


@lru_cache(maxsize=1024)
def _files_of(written: WrittenSchema) -> _Files:
    """Raises NotCompiled."""
    return _files(compile_schema(written))


@lru_cache(maxsize=256)
def _declared_message(schema: str, message: str) -> _Declared:
    """Raises ValueError."""
    files = _files(b64decode(schema))
    if not message:
        if len(names := [*files.file.message_types_by_name]) != 1:
            raise ValueError(f"name one of the messages of {files.file.name} by message=: {', '.join(names) or 'none'}")
        (message,) = names
    found = _named(files, message.removeprefix(f"{files.file.package}."))
    if found is None:
        known = [*files.file.message_types_by_name]
        question = did_you_mean(message.rpartition(".")[2], known)
        told_all = f"{files.file.name} has no message {message!r}: its messages are {', '.join(known) or 'none'}"
        raise ValueError(f"{told_all}. {question}".removesuffix(". "))
    try:
        return _Declared(found, message_schema(found), _indexes(found))
    except ValueError as error:
        raise ValueError(f"{files.file.name}: {error}") from error


def _named(files: _Files, local_name: str) -> Any:
    """The message of a file by its name within the package; None without one."""
    first, *inner = local_name.split(".")
    found = files.file.message_types_by_name.get(first)
    for name in inner:
        found = found and found.nested_types_by_name.get(name)
    return found


def _local_name(descriptor: Any) -> str:
    name: str = descriptor.full_name
    return name.removeprefix(f"{descriptor.file.package}.")


def _indexes(descriptor: Any) -> bytes:
    """The indexes of a message as they stand in a value (``MessageIndexes`` of Confluent's serializers)."""
    indexes: list[int] = []
    while descriptor.containing_type is not None:
        siblings = [each.full_name for each in descriptor.containing_type.nested_types]
        indexes.insert(0, siblings.index(descriptor.full_name))
        descriptor = descriptor.containing_type
    indexes.insert(0, [*descriptor.file.message_types_by_name].index(descriptor.name))
    if indexes == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _zigzag(number: int) -> bytes:
    """A number that is not negative, as a signed one is written."""
    number <<= 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _read_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a value, and where its message begins. Raises IndexError or ValueError without them."""
    if data[start] == 0:
        return (0,), start + 1
    count, start = _read_zigzag(data, start)
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError
    found = []
    for _ in range(count):
        index, start = _read_zigzag(data, start)
        if index < 0:
            raise ValueError
        found.append(index)
    return tuple(found), start


def _read_zigzag(data: bytes, start: int) -> tuple[int, int]:
    number = shift = 0
    while data[start] & 0x80:
        number |= (data[start] & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if shift > 28:
            raise ValueError
    number |= data[start] << shift
    return number >> 1 ^ -(number & 1), start + 1


def _message_at(files: _Files, indexes: Sequence[int]) -> Any:
    """The message of a file at indexes. Raises IndexError where there is none."""
    first, *inner = indexes
    found = [*files.file.message_types_by_name.values()][first]
    for index in inner:
        found = found.nested_types[index]
    return found


@lru_cache(maxsize=1024)
def _decoder(written: WrittenSchema, schema: str, message: str, schema_id: int) -> Decode:
    """Return what reads the values of one schema. A message that cannot be read rejects all of its values."""
    declared = _declared_message(schema, message)
    name = declared.descriptor.file.name
    try:
        # One's own schema needs no compiler.
        is_declared = written == declared_schema(b64decode(schema), name)
        files = _files(b64decode(schema)) if is_declared else _files_of(written)
    except NotCompiled as error:
        return rejecting(f"schema {schema_id} cannot be used: {error}")
    readers: dict[tuple[int, ...], Decode] = {}

    def decode(data: bytes) -> dict[str, Any]:
        try:
            indexes, start = _read_indexes(data, PREFIX.size)
        except (IndexError, ValueError) as error:
            raise Undecodable("the value has no message indexes behind the id of its schema") from error
        if (read := readers.get(indexes)) is None:
            read = _reader(files, indexes, declared, schema_id)
            if len(readers) < _MOST_READERS:  # a value may name any message
                readers[indexes] = read
        return read(data[start:])

    return decode


def _reader(files: _Files, indexes: tuple[int, ...], declared: _Declared, schema_id: int) -> Decode:
    """Return what reads the bytes of one message of a schema."""
    from google.protobuf.message import DecodeError

    try:
        written = _message_at(files, indexes)
    except IndexError:
        return rejecting(f"schema {schema_id} has no message with the indexes {', '.join(map(str, indexes))}")
    if _local_name(written) != _local_name(declared.descriptor):
        return rejecting(f"the value is a {written.full_name}, and declared is {declared.schema.name}")
    if unread := [each.text for each in differences(written, declared.descriptor) if each.always]:
        return rejecting(f"schema {schema_id} cannot be read as declared: {'; '.join(unread)}")
    parse, read = declared.schema.parse, declared.schema.read

    def decode(data: bytes) -> dict[str, Any]:
        try:
            fields: dict[str, Any] = read(parse(data))
        except Misfit as misfit:
            raise Undecodable(told(misfit)) from misfit
        except DecodeError as error:
            raise Undecodable(f"the value is no {written.full_name} of schema {schema_id}") from error
        except UnicodeDecodeError as error:
            raise Undecodable("a text in it is not UTF-8") from error
        return fields

    return decode
