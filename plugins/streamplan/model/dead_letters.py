"""The headers of a dead-letter record: where its record came from, and why it could not be processed.

The sink appends them to the record's own headers, so of several headers with one name the last is Streamplan's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from streamplan.serdes.serde import header_bytes

REASON = "streamplan.reason"
TASK = "streamplan.task"
"""The stream task that met the record, ``<sub-topology>_<partition>``."""

SOURCE_TOPIC = "streamplan.source.topic"
SOURCE_PARTITION = "streamplan.source.partition"
SOURCE_OFFSET = "streamplan.source.offset"

ERROR_MESSAGE = "__streams.errors.message"
ERROR_TOPIC = "__streams.errors.topic"
ERROR_PARTITION = "__streams.errors.partition"
ERROR_OFFSET = "__streams.errors.offset"
"""The names that Kafka Streams gives the same headers (KIP-1034, ``ExceptionHandlerUtils``), for tools that know those.

Kafka Streams also writes the class and the stack trace of a Java exception. Here is no exception to write.
"""

OMITTED = "streamplan.omitted"
"""What was left out of a record that is too large for the dead-letter topic: ``value of 5242880 bytes``."""

DIGEST = "streamplan.digest"
"""The :func:`record_digest` of a record of which something was left out, in hexadecimal digits."""

MAX_BYTES = 2 * 1024 * 1024 + 65536
"""``max.message.bytes`` of the dead-letter topic.

A record that just fits into a topic of the brokers' default size is written here whole, with headers added.
"""

_RECORD_OVERHEAD_BYTES = 1024
"""More than a record and its batch take beside key, value and headers."""

Headers: TypeAlias = Iterable[tuple[str, bytes | None]]


class Origin(NamedTuple):
    """Where the record lies that could not be processed."""

    topic: str
    partition: int
    offset: int


def origin_headers(origin: Origin) -> dict[str, str]:
    """The headers that name the record, by our names and by those of Kafka Streams."""
    topic, partition, offset = origin.topic, str(origin.partition), str(origin.offset)
    return {
        SOURCE_TOPIC: topic,
        SOURCE_PARTITION: partition,
        SOURCE_OFFSET: offset,
        ERROR_TOPIC: topic,
        ERROR_PARTITION: partition,
        ERROR_OFFSET: offset,
    }


class FittedRecord(NamedTuple):
    """A record without the parts that make it too large, and the headers that are added to its own."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]]
    added: Mapping[str, str]


def fit_record(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, str | bytes | None]],
    added: Mapping[str, str],
) -> FittedRecord:
    """Leave out as many parts of a record as it takes to fit into the dead-letter topic, the largest first.

    Args:
        key: The record's key.
        value: The record's value.
        headers: The record's own headers.
        added: The headers that are added to them.
    """
    sizes = {"value": len(value or b""), "key": len(key or b""), "headers": header_bytes(headers)}
    room = MAX_BYTES - _RECORD_OVERHEAD_BYTES - header_bytes(added.items())
    omitted: dict[str, int] = {}
    while sizes and sum(sizes.values()) > room:
        largest = max(sizes, key=lambda part: sizes[part])
        omitted[largest] = sizes.pop(largest)
    if not omitted:
        return FittedRecord(key, value, headers, added)
    said = ", ".join(f"{part} of {size} bytes" for part, size in omitted.items())
    return FittedRecord(
        None if "key" in omitted else key,
        None if "value" in omitted else value,
        () if "headers" in omitted else headers,
        {**added, OMITTED: said, DIGEST: record_digest(key, value).hex()},
    )


def record_digest(key: bytes | None, value: bytes | None) -> bytes:
    """Return 16 bytes that tell a record from others."""
    digest = blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.digest()


def dead_letter_digest(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Return the :func:`record_digest` of the record that a dead letter is about."""
    noted = dict(headers).get(DIGEST)
    return record_digest(key, value) if noted is None else bytes.fromhex(noted.decode("ascii", "replace"))


def parse_origin(headers: Headers) -> Origin | None:
    """The record that a dead-letter record names; None where its headers name none."""
    named = dict(headers)
    topic, partition, offset = (named.get(name) or b"" for name in (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET))
    if not (partition.isdigit() and offset.isdigit()):
        return None
    return Origin(topic.decode("utf-8", "replace"), int(partition), int(offset))


def parse_subtopology(headers: Headers) -> bytes:
    """The number of the sub-topology in the header :data:`TASK`, as it stands there; empty without one."""
    return (dict(headers).get(TASK) or b"").partition(b"_")[0]
