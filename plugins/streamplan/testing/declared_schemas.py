"""A source of schemas in memory, for tests: it knows the schemas of a declaration."""

from __future__ import annotations

from dataclasses import dataclass

from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Sink, Source
from streamplan.serdes.schema_serde import SchemaSerde
from streamplan.serdes.schema_source import UnknownSchema, WrittenSchema


@dataclass(frozen=True)
class DeclaredSchemas:
    """Schemas whose ids are their places, from 1; a :class:`streamplan.serdes.schema_source.SchemaSource`.

    Attributes:
        schemas: The schemas.
    """

    schemas: tuple[WrittenSchema, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> DeclaredSchemas:
        """Return the schemas that a pipeline declares, each once.

        Args:
            pipeline: A declared pipeline.
        """
        nodes = pipeline.topology.processors.nodes
        serdes = (node.value for node in nodes if isinstance(node, Source | Sink))
        return cls(tuple(dict.fromkeys(serde.declared for serde in serdes if isinstance(serde, SchemaSerde))))

    def require_available(self) -> None:
        """Nothing: they are there."""

    def schema(self, schema_id: int) -> WrittenSchema:
        """Return the schema of an id.

        Raises:
            UnknownSchema: There is none.
        """
        if not 1 <= schema_id <= len(self.schemas):
            raise UnknownSchema(schema_id)
        return self.schemas[schema_id - 1]

    def id_of(self, topic: str, record: str, schema: WrittenSchema) -> int:
        """Return the id of a schema. It is the same for all topics.

        Raises:
            Refused: The schema is not one of these.
        """
        for number, known in enumerate(self.schemas, 1):
            if known == schema:
                return number
        raise Refused(f"the schema {record} for {topic}", expected="a schema that is declared", observed="another one")

    def register(self, topic: str, record: str, schema: WrittenSchema) -> int:
        """Return the id of a schema: all of them are registered."""
        return self.id_of(topic, record, schema)
