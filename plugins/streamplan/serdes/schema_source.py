"""Where the schemas are that stand with a number in the values of a topic: a Schema Registry."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class WrittenSchema(NamedTuple):
    """A schema as a registry has it.

    Attributes:
        text: The schema.
        references: The schemas that it names and does not contain.
        format: ``AVRO``, ``JSON`` or ``PROTOBUF``.
    """

    text: str
    references: tuple[Reference, ...] = ()
    format: str = "AVRO"

    def flattened(self) -> dict[str, str]:
        """Return the texts of all schemas that it needs by their names, each after those that it names itself."""
        found: dict[str, str] = {}
        for reference in self.references:
            for name, text in reference.schema.flattened().items():
                found.setdefault(name, text)
            found.setdefault(reference.name, reference.schema.text)
        return found


class Reference(NamedTuple):
    """A schema that another one names.

    Attributes:
        name: The name: of a type in Avro, of an imported file in Protobuf, what stands as ``$ref`` in JSON Schema.
        schema: The schema, with its own references.
    """

    name: str
    schema: WrittenSchema


class UnknownSchema(LookupError):
    """The registry answers, and has no schema of that id. The value that names the id cannot be read."""


class SchemaSource(Protocol):
    """Gives schemas by their ids, and the ids of schemas.

    An implementation can be pickled, and remembers in each process what it has been told: the schema of an id does not
    change. Each method raises a :class:`streamplan.errors.StreamplanError` where they get no answer. That is never the
    fault of a record.
    """

    def require_available(self) -> None:
        """Ask for an answer, whatever it is, and raise where there is none."""

    def schema(self, schema_id: int) -> WrittenSchema:
        """Return the schema of an id.

        Raises:
            UnknownSchema: There is none.
        """

    def id_of(self, topic: str, record: str, schema: WrittenSchema) -> int:
        """Return the id of a schema that was registered for the values of a topic.

        Args:
            topic: The name of the topic in Kafka.
            record: The full name of the schema's record; empty where it has none.

        Raises:
            Refused: It is not registered.
        """

    def register(self, topic: str, record: str, schema: WrittenSchema) -> int:
        """Register a schema for the values of a topic, unless it is, and return its id.

        Args:
            topic: The name of the topic in Kafka.
            record: The full name of the schema's record; empty where it has none.
            schema: The schema. Those that it names are registered before it.

        Raises:
            Refused: The registry does not take it, or it is not registered and must not be.
        """
