"""What the formats with a registered schema share: Confluent's wire format, and the way to a Schema Registry.

A value is a byte 0, the id of a schema in 4 bytes, and what the format writes. The declaration has the schema of the
reader. That of the writer has the id, and a Schema Registry knows it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from zipfile import ZipFile, is_zipfile

from streamplan.errors import Refused
from streamplan.judged import caller_frame, refuse_mistaken
from streamplan.judged_words import completed
from streamplan.serdes.field_types import FieldType
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.rejection import or_each_value, refuses_values, rejects_values
from streamplan.serdes.schema_source import SchemaSource, UnknownSchema, WrittenSchema
from streamplan.serdes.schema_values import Difference, told
from streamplan.serdes.serde import MAX_BYTES, WORDS, Undecodable, Value

if TYPE_CHECKING:
    # pyright takes a cached_property for no property of a protocol, and would refuse the serde.
    from builtins import property as cached_property

    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn, KeyColumn
else:
    from functools import cached_property

MAGIC = 0
"""The first byte of a value (``AbstractKafkaSchemaSerDe.MAGIC_BYTE``)."""

PREFIX = struct.Struct(">bI")

Decode: TypeAlias = Callable[[bytes], dict[str, Any]]
"""Reads a whole value, prefix included, of one schema."""


@dataclass(frozen=True, repr=False)
class SchemaSerde:
    """A serde whose values name their schema; a :class:`streamplan.serdes.serde.Serde`.

    Attributes:
        schema: The declared schema as text, or the path of a file with it. A relative path begins at the file that
            declares it.
        max_bytes: The most bytes that the value, its new key and the record's headers may have together.
        schemas: Where the schemas of values are looked up. It is not declared: :meth:`with_schemas` sets it.
        topic: The topic that the values are in, for the name of the schema's subject. It is not declared either.
    """

    schema: str
    max_bytes: int = MAX_BYTES
    schemas: SchemaSource | None = field(default=None, repr=False)
    topic: str = field(default="", repr=False)

    schema_format: ClassVar[str]
    """The format by the registry's name: ``AVRO``, ``JSON`` or ``PROTOBUF``."""

    title: ClassVar[str]
    """The format as people read it."""

    def __repr__(self) -> str:
        """The format, what the schema describes, and its fields; or why it cannot be read."""
        try:
            return f"<{type(self).__name__} {self.record_name}: {', '.join(self.fields)}>".replace(" :", ":")
        except ValueError as error:
            return f"<{type(self).__name__}: {error}>"

    def __dir__(self) -> list[str]:
        """What is declared, how values are read and written, and what Python has."""
        return completed(self, *WORDS)

    @property
    def types(self) -> Mapping[str, FieldType]:
        """Field name to type.

        Raises:
            ValueError: The declaration is wrong.
        """
        raise NotImplementedError

    @property
    def record_name(self) -> str:
        """The full name of what the schema describes; empty without one."""
        raise NotImplementedError

    @property
    def declared(self) -> WrittenSchema:
        """The declared schema, as it is registered."""
        return WrittenSchema(self.schema, (), self.schema_format)

    def differences(self, written: WrittenSchema) -> tuple[Difference, ...]:
        """Return what the declared schema cannot read of values that were written with another one.

        Raises:
            ValueError: The other one is no schema.
        """
        raise NotImplementedError

    def undeclared_fields(self, written: WrittenSchema) -> list[str]:
        """Return the fields of another schema that the declared one lacks, by name."""
        raise NotImplementedError

    def _decoder(self, written: WrittenSchema, schema_id: int) -> Decode:
        """Return what reads the values of a schema of this format. One that cannot be read rejects all its values."""
        raise NotImplementedError

    def _write(self, value: Value) -> bytes:
        """Return what follows the prefix. Raises :class:`Misfit` for a value that the schema does not allow."""
        raise NotImplementedError

    # -- what they share

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Field name to the text of its type."""
        refuse_mistaken(self)
        return {name: str(of_field) for name, of_field in self.types.items()}

    @property
    def allowed(self) -> Mapping[str, Mapping[Any, str]]:
        """No value is excluded. An enum lists its own."""
        return {}

    @property
    def format(self) -> str:
        """Only serdes of the same schema read each other's bytes."""
        return f"{self.title.lower()} {self.schema}"

    def unrestricted(self) -> Self:
        """The serde itself: it excludes no value."""
        return self

    def with_schemas(self, schemas: SchemaSource, topic: str) -> Self:
        """Return the serde of the values of a topic.

        Args:
            topic: The name of the topic in Kafka.
        """
        return replace(self, schemas=schemas, topic=topic)

    def prepare_to_read(self) -> None:
        """Asks the registry for an answer."""
        self._registry.require_available()

    def prepare_to_write(self) -> None:
        """Registers the schema, or looks it up, as the registry's properties say."""
        self._registry.register(self.topic, self.record_name, self.declared)

    @rejects_values
    def decode(self, data: bytes | None) -> dict[str, Any]:
        """Reads one value: every declared field, None where it is null.

        Raises:
            Undecodable: The bytes are no such value, the registry has no schema of its id, or the declared schema
                cannot read what was written.
            StreamplanError: The registry gave no answer, or there is none.
        """
        if data is None:
            raise Undecodable("the value is null")
        return self._decoder_of(schema_id_of(data))(data)

    @refuses_values
    def encode(self, value: Value) -> bytes:
        """Writes one value. Raises ValueError where the schema has no such value."""
        try:
            written = self._write(value)
        except Misfit as misfit:
            raise ValueError(told(misfit)) from misfit
        schema_id = self._registry.id_of(self.topic, self.record_name, self.declared)
        return PREFIX.pack(MAGIC, schema_id) + written

    @or_each_value
    def decode_column(self, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        """Reads the values of many records, nulls allowed."""
        from streamplan.serdes.arrow import binary_array, decode_each

        return decode_each(self, binary_array(values))

    def encode_column(self, values: pa.StructArray) -> pa.Array:
        """Writes a struct array of the declared fields as a binary array."""
        from streamplan.serdes.arrow import encode_each

        return encode_each(self, values)

    def key_column(self, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
        """The keys that grouping by ``field`` gives these values."""
        from streamplan.serdes.arrow import key_column

        return key_column(self, field, values)

    def spark_expression(self, fields: Mapping[str, FieldType], prefix: str = "") -> str | None:
        """None: Spark does not know Confluent's wire format."""
        return None

    @property
    def _registry(self) -> SchemaSource:
        if self.schemas is None:
            raise Refused(
                "the Schema Registry",
                expected=f"its address, because values in {self.title} name their schema by an id",
                observed="none",
                remedy="Add schema.registry.url where bootstrap.servers stands: in the connection, or in the file of "
                "client properties.",
            )
        return self.schemas

    def _decoder_of(self, schema_id: int) -> Decode:
        try:
            written = self._registry.schema(schema_id)
        except UnknownSchema as error:
            raise Undecodable(f"the Schema Registry has no schema {schema_id}") from error
        if written.format != self.schema_format:
            raise Undecodable(f"schema {schema_id} is one of {written.format}, and not of {self.title}")
        return self._decoder(written, schema_id)


def schema_id_of(data: bytes) -> int:
    """Return the id of the schema that a value names.

    Raises:
        Undecodable: The bytes are no such value.
    """
    if len(data) < PREFIX.size or data[0] != MAGIC:
        raise Undecodable("the value does not begin with the byte 0 and the id of a schema")
    schema_id: int = PREFIX.unpack_from(data)[1]
    return schema_id


def rejecting(reason: str) -> Decode:
    """Return what rejects all values for the same reason."""

    def decode(data: bytes) -> dict[str, Any]:
        raise Undecodable(reason)

    return decode


def declared_file(name: str) -> Path:
    """Return the path of a file that a declaration names: it begins at the file with the declaration.

    That is the file of the nearest caller outside of the language.
    """
    declaring = Path(caller_frame().f_code.co_filename).absolute()
    return Path(os.path.normpath(declaring.parent / name))


def declared_text(path: Path, judged: Callable[[str], str]) -> str:
    """Return the schema in a file that a declaration names, or what is wrong with it, which is no JSON.

    The property ``fields`` tells that, with the line of the declaration.

    Args:
        judged: Gives the schema of its text. Raises ValueError where it is none.
    """
    try:
        return judged(text_of_file(path))
    except (FileNotFoundError, IsADirectoryError):
        return unreadable(str(path))
    except RecursionError:
        return f"the schema {path} cannot be read: it is nested too deep"
    except (OSError, ValueError) as error:
        return f"the schema {path} cannot be read: {error}"


def text_of_file(path: Path) -> str:
    """Return the text of a file that a declaration names. A byte order mark is left out.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no text in UTF-8.
    """
    with real_folder(path.parent) as folder:
        try:
            return (folder / path.name).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"the byte {error.start} is not UTF-8") from error


@contextmanager
def real_folder(folder: Path) -> Iterator[Path]:
    """Give a folder with the files of one that may be in a zip archive, from which Python imports the declaration.

    Spark hands its jobs such an archive (``--py-files``).

    Args:
        folder: The folder, which need not exist.
    """
    archive = next((parent for parent in folder.parents if parent.is_file() and is_zipfile(parent)), None)
    if archive is None:
        yield folder
        return
    inner = folder.relative_to(archive).as_posix()
    with ZipFile(archive) as files, TemporaryDirectory(prefix="streamplan-") as copies:
        files.extractall(copies, [name for name in files.namelist() if name.startswith(f"{inner}/")])
        yield Path(copies, inner)


def unreadable(path: str) -> str:
    """Return the fault of a declaration whose file cannot be read."""
    return f"the schema {path} cannot be read. A relative path begins at the file that declares it"
