"""Writes records that a person gives into a source topic of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.kafka.topics import observe_topics
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import FIELD, Bytes, Primitive, String

FLUSH_SECONDS = 60.0


def write_given(
    pipeline: Pipeline, brokers: Brokers, values: Iterable[str | None], *, key: str | None = None, topic: str = ""
) -> tuple[int, str]:
    """Write records, each as soon as its value is there.

    Args:
        values: The values as text, and None for a null value. JSON and text are written as they are, so that a wrong
            record can be tried. A value of another serde is given as JSON.
        key: The key of all of them, as text; None for no key.
        topic: A source topic. It may be empty where there is only one.

    Returns:
        How many records were written, and into which topic.

    Raises:
        Refused: There is no such topic, or its serde has no such value or key.
        BrokersUnavailable: The brokers did not answer.
        StreamplanError: The brokers did not take a record.
    """
    source = _source(pipeline.with_schemas(SchemaRegistry.of(brokers)), topic)
    assert source.value is not None
    topic = source.topic
    if not observe_topics(brokers, [topic], with_configs=False):
        raise Refused(
            f"topic {topic}",
            expected=f"to exist at {brokers}",
            observed="no such topic",
            remedy=f"`run` creates it, and so does the task topics of {pipeline.name}_deploy.",
        )
    raw_key = None if key is None else _key(source, key)
    source.value.prepare_to_write()
    faults: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            faults.append(error)

    producer = brokers.producer(enable_idempotence=True, partitioner=LIBRDKAFKA_PARTITIONER)
    count = 0
    for text in values:
        try:
            value = None if text is None else _value(source, text)
        except ValueError as error:
            producer.flush(FLUSH_SECONDS)
            raise Refused(
                f"the value {text} for {topic}",
                expected="a value of its serde, as JSON",
                observed=str(error),
                remedy=f"Correct it. Values before it that are written: {count:,}.",
            ) from error
        while True:
            try:
                producer.produce(topic, value, raw_key, on_delivery=delivered)
                break
            except BufferError:  # the queue is full, until the brokers have taken some
                producer.poll(0.1)
        producer.poll(0)
        count += 1
    left = producer.flush(FLUSH_SECONDS)
    if left or faults:
        told = faults[0].str() if faults else f"no answer for {left} of {count} records after {FLUSH_SECONDS:g} s"
        raise StreamplanError(
            f"records for {topic}",
            expected="written",
            observed=told,
            remedy="Others of them may be written: `topic` shows the newest records.",
        )
    return count, topic


def _source(pipeline: Pipeline, topic: str) -> Source:
    """Return the source of a topic, or of the only one."""
    nodes = pipeline.topology.processors.nodes
    sources = {
        node.topic: node
        for node in nodes
        if isinstance(node, Source) and node.value is not None and node.topic in pipeline.topology.source_topics
    }
    if topic in sources:
        return sources[topic]
    if not topic and len(sources) == 1:
        return next(iter(sources.values()))
    raise Refused(
        "--topic",
        expected=f"a source topic of {pipeline.name}: {', '.join(sorted(sources))}",
        observed=topic or "none, and there are several",
    )


def _key(source: Source, text: str) -> bytes | None:
    try:
        return source.key_serde.write_key(source.key_serde.key_of_text(text))
    except ValueError as error:
        raise Refused(
            f"--key {text}", expected=f"a key of {source.topic}: {source.key_serde.name}", observed=str(error)
        ) from error


def _value(source: Source, text: str) -> bytes:
    """Return a value in bytes. Raises ValueError where its serde has none of this text."""
    serde = source.value
    assert serde is not None
    if isinstance(serde, Json | String | Bytes):
        return text.encode()
    try:
        value: Any = json.loads(text)
        return serde.encode({FIELD: value} if isinstance(serde, Primitive) else value)
    except (TypeError, AttributeError, KeyError) as error:  # the JSON has another form
        raise ValueError(str(error)) from error
