"""The headers of a dead-letter record: where its record came from, and why it could not be processed.

The sink appends them to the record's own headers, so of several headers with one name the last is Streamplan's.

The topic also has *marks*. A re-drive writes one for each record that it has processed again, in the transaction of
what it made of the record. A mark has no key and no value. Its headers name the record as those of the dead letter do,
and say who re-drove it, when and in which run. A dead letter whose record has a mark is *re-driven*, any other is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from streamplan.kafka_types import Header, Headers
from streamplan.serdes.reason import harmless
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

REDRIVEN_LETTER = "streamplan.redriven.letter"
"""In a mark: the dead letter of the record, ``<partition>@<offset>``. A repartition moves both and leaves it out."""

REDRIVEN_AT = "streamplan.redriven.at"
"""In a mark: when its record was processed again, ISO 8601."""

REDRIVEN_RUN = "streamplan.redriven.run"
"""In a mark: the run that did it."""

REDRIVEN_BY = "streamplan.redriven.by"
"""In a mark: who decided it. It is the last header of each mark, and of nothing else: see :func:`is_mark`."""

MAX_BYTES = 2 * 1024 * 1024 + 65536
"""``max.message.bytes`` of the dead-letter topic.

A record that just fits into a topic of the brokers' default size is written here whole, with headers added.
"""

_RECORD_OVERHEAD_BYTES = 1024
"""More than a record and its batch take beside key, value and headers."""

_FOR_TOOLS = (ERROR_MESSAGE, ERROR_TOPIC, ERROR_PARTITION, ERROR_OFFSET)

_SHORT_CHARACTERS = 250
"""The most characters of each added header beside a record that would not fit otherwise: the name of a topic fits."""


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
    headers: Sequence[Header]
    added: Mapping[str, str]


def fit_record(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    added: Mapping[str, str],
) -> FittedRecord:
    """Leave out what it takes for a record to fit into the dead-letter topic.

    First the headers that are added give way: those for tools that know Kafka Streams, and most of the reason. Then the
    parts of the record do, the largest first.

    Args:
        key: The record's key.
        value: The record's value.
        headers: The record's own headers.
        added: The headers that are added to them.
    """
    sizes = {"value": len(value or b""), "key": len(key or b""), "headers": header_bytes(headers)}
    available = MAX_BYTES - _RECORD_OVERHEAD_BYTES
    room = available - header_bytes(added.items())
    if sum(sizes.values()) > room:
        added = {name: harmless(text, _SHORT_CHARACTERS) for name, text in added.items() if name not in _FOR_TOOLS}
        room = available - header_bytes(added.items())
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


class LetterPlace(NamedTuple):
    """Where a dead letter lies in the dead-letter topic. People write it ``<partition>@<offset>``."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LetterPlace | None:
        """Return the place that a text names; None where it names none."""
        partition, _, offset = text.partition("@")
        is_place = partition.isascii() and offset.isascii() and partition.isdigit() and offset.isdigit()
        return cls(int(partition), int(offset)) if is_place else None


@dataclass(frozen=True)
class Redrive:
    """Who had a record processed again.

    Attributes:
        by: The person.
        at: When, ISO 8601.
        run: The run that did it.
    """

    by: str
    at: str
    run: str


def is_mark(headers: Headers) -> bool:
    """Whether a record of the dead-letter topic is a mark. The headers of a dead letter end with others of ours."""
    return bool(headers) and headers[-1][0] == REDRIVEN_BY


def mark_headers(
    letter: Headers, place: LetterPlace, digest: bytes, redrive: Redrive
) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of the mark of a dead letter, of the type that a producer takes.

    Args:
        letter: The headers of the dead letter.
        place: Where it lies.
        digest: The :func:`dead_letter_digest` of it.
        redrive: Who had its record processed again.
    """
    named = dict(letter)
    copied = (TASK, SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET, REASON)
    return [
        *((name, named.get(name) or b"") for name in copied),
        (DIGEST, digest.hex().encode()),
        (REDRIVEN_LETTER, str(place).encode()),
        (REDRIVEN_RUN, redrive.run.encode()),
        (REDRIVEN_AT, redrive.at.encode()),
        (REDRIVEN_BY, redrive.by.encode()),
    ]


def parse_mark(headers: Headers) -> Redrive:
    """Return who had the record of a mark processed again."""
    named = dict(headers)
    names = (REDRIVEN_BY, REDRIVEN_AT, REDRIVEN_RUN)
    return Redrive(*((named.get(name) or b"").decode("utf-8", "replace") for name in names))


def own_headers(letter: Headers) -> Headers:
    """Return the headers that the record of a dead letter has itself: those before the first that the sink added."""
    added = [number for number, (name, _) in enumerate(letter) if name == REASON]
    return tuple(letter[: added[-1]] if added else letter)
