"""Values that name a registered schema, as people read them."""

from __future__ import annotations

from streamplan.serdes.avro import text_of_record
from streamplan.serdes.json_schema import text_of_document
from streamplan.serdes.protobuf import text_of_message
from streamplan.serdes.schema_serde import MAGIC, PREFIX
from streamplan.serdes.schema_source import SchemaSource, UnknownSchema

_TEXTS = {"AVRO": text_of_record, "JSON": text_of_document, "PROTOBUF": text_of_message}
"""By the registry's names of formats what makes JSON of a value; None of bytes that are no such value."""


def text_of_value(data: bytes, schemas: SchemaSource) -> str | None:
    """Return a value as JSON, with all that was written. None where it names no schema or is no value of it.

    Args:
        data: Any value.

    Raises:
        StreamplanError: The schema of the value cannot be asked for, or cannot be compiled here.
    """
    if len(data) <= PREFIX.size or data[0] != MAGIC:
        return None
    _, schema_id = PREFIX.unpack_from(data)
    try:
        written = schemas.schema(schema_id) if schema_id else None  # small numbers of Java's begin with zeros
    except UnknownSchema:
        return None
    if written is None or (text := _TEXTS.get(written.format)) is None:
        return None
    return text(data, written)
