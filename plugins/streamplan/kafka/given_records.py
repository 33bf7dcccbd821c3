"""Writes records that a person gives into a source topic of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class KeyInText:
    """Where the key of a record stands in the text of its value.

    Attributes:
        fields: The fields of the value that make the key. The text is then a JSON object. A key of ``Json`` is an
            object with these fields, and any other key is the value of the only field.
        separator: What stands between the key and the value; empty where fields make the key.
    """

    fields: Sequence[str] = ()
    separator: str = ""

    def divide(self, source: Source, text: str) -> tuple[bytes, str]:
        """Return the key in bytes, and the text of the value. Raises ValueError where the text has no such key."""
        if self.fields:
            return _written_key(source, self._of_fields(source, text)), text
        key, found, value = text.partition(self.separator)
        if not found:
            raise ValueError(f"no {self.separator!r}")
        return _written_key(source, key), value

    def _of_fields(self, source: Source, text: str) -> str:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("no JSON object")
        if missing := [field for field in self.fields if value.get(field) is None]:
            raise ValueError(f"no field {', '.join(missing)}. It has: {', '.join(value) or 'none'}")
        if isinstance(source.key_serde, Json):
            return json.dumps({field: value[field] for field in self.fields})
        only = value[self.fields[0]]
        return only if isinstance(only, str) else json.dumps(only)


def write_given(
    pipeline: Pipeline,
    brokers: Brokers,
    values: Iterable[str | None],
    *,
    key: str | KeyInText | None = None,
    topic: str = "",
) -> tuple[int, str]:
    """Write records, each as soon as its value is there.

    Args:
        values: The values as text, and None for a null value. JSON and text are written as they are, so that a wrong
            record can be tried. A value of another serde is given as JSON.
        key: The key of all of them, as text, or where each text has its key; None for no key.
        topic: A source topic. It may be empty where there is only one.

    Returns:
        How many records were written, and into which topic.

    Raises:
        Refused: There is no such topic, its serde has no such value or key, or a text has no key.
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
    raw_key = _key(source, key) if isinstance(key, str) else None
    if isinstance(key, KeyInText) and len(key.fields) > 1 and not isinstance(source.key_serde, Json):
        raise Refused(
            f"--key-field {' '.join(key.fields)}",
            expected=f"one field for a key of {topic}: {source.key_serde.name}",
            observed=f"{len(key.fields)}",
            remedy="Several fields make a key of Json, as key_serde=Json(…) declares.",
        )
    expected = "a value of its serde, as JSON"
    if isinstance(key, KeyInText):
        expected = f"a key of {source.key_serde.name} in it, and {expected}"
    source.value.prepare_to_write()
    faults: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            faults.append(error)

    producer = brokers.producer(enable_idempotence=True, partitioner=LIBRDKAFKA_PARTITIONER)
    count = 0
    for text in values:
        try:
            raw_key, given = key.divide(source, text) if isinstance(key, KeyInText) and text else (raw_key, text)
            value = None if given is None else _value(source, given)
        except ValueError as error:
            producer.flush(FLUSH_SECONDS)
            raise Refused(
                f"the value {text} for {topic}",
                expected=expected,
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


def _written_key(source: Source, text: str) -> bytes:
    return source.key_serde.write_key(source.key_serde.key_of_text(text))


def _key(source: Source, text: str) -> bytes:
    try:
        return _written_key(source, text)
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
