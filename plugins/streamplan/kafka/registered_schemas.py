"""What a Schema Registry has for the topics of a pipeline, beside what the pipeline declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Sink, Source
from streamplan.serdes.schema_serde import SchemaSerde


class SchemaFinding(NamedTuple):
    """A sentence about a topic. ``wrong``: the pipeline cannot read what is written, or cannot be started."""

    sentence: str
    wrong: bool


def compare_with_registry(pipeline: Pipeline, registry: SchemaRegistry) -> Iterator[SchemaFinding]:
    """Compare each declared schema with the latest one of its subject. Nothing is registered.

    Args:
        pipeline: A declared pipeline.

    Raises:
        SchemaRegistryUnavailable: The registry gave no usable answer.
        Refused: No registry is given, or its properties cannot be followed.
    """
    for node in pipeline.topology.processors.nodes:
        if isinstance(node, Source) and isinstance(node.value, SchemaSerde):
            yield from _of_source(node.topic, node.value, registry)
        elif isinstance(node, Sink) and isinstance(node.value, SchemaSerde):
            yield _of_sink(node.topic, node.value, registry)


def has_schemas(pipeline: Pipeline) -> bool:
    """Return whether a pipeline declares values that name a registered schema."""
    nodes = pipeline.topology.processors.nodes
    return any(isinstance(node, Source | Sink) and isinstance(node.value, SchemaSerde) for node in nodes)


def _of_source(topic: str, serde: SchemaSerde, registry: SchemaRegistry) -> Iterator[SchemaFinding]:
    subject, latest = registry.latest(topic, serde.record_name)
    if latest is None:
        yield SchemaFinding(f"{topic}: the registry has no schema under the subject {subject}", False)
        return
    if latest.format != serde.schema_format:
        yield SchemaFinding(f"{topic}: the subject {subject} has a schema in the format {latest.format}", True)
        return
    try:
        found = serde.differences(latest)
        undeclared = serde.undeclared_fields(latest)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        yield SchemaFinding(f"{topic}: the latest schema of the subject {subject} cannot be used: {error}", True)
        return
    if not any(each.always for each in found):
        yield SchemaFinding(f"{topic}: the latest schema of the subject {subject} can be read", False)
    for each in found:
        if each.always:
            sentence = f"{topic}: the latest schema of the subject {subject} cannot be read: {each.text}"
        else:
            sentence = f"{topic}: {each.text}. Such a record goes to the dead-letter topic"
        yield SchemaFinding(sentence, each.always)
    if undeclared:
        yield SchemaFinding(f"{topic}: fields that are written and not declared: {', '.join(undeclared)}", False)


def _of_sink(topic: str, serde: SchemaSerde, registry: SchemaRegistry) -> SchemaFinding:
    subject, latest = registry.latest(topic, serde.record_name)
    if registry.is_registered(topic, serde.record_name, serde.declared):
        return SchemaFinding(f"{topic}: the declared schema is registered under the subject {subject}", False)
    if not registry.registers:
        return SchemaFinding(
            f"{topic}: the declared schema is not registered under the subject {subject}, and auto.register.schemas is "
            "false",
            True,
        )
    which = "has no schema yet" if latest is None else "has another schema as its latest"
    return SchemaFinding(
        f"{topic}: the subject {subject} {which}. The aggregator registers the declared schema when it starts",
        False,
    )
