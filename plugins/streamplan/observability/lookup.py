"""Single records that a person asks for: those of a topic, the last value of a key, and the newest dead letters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TypeAlias

from streamplan.checks.framework.application import Application
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka_port import Cluster, RecordBatch, records_of
from streamplan.kafka_types import Headers, OffsetByPartition, OffsetRanges, Offsets, Record
from streamplan.model import dead_letters as letters
from streamplan.model.dead_letters import Redrive
from streamplan.model.start_moment import FORMS, StartMoment
from streamplan.model.topics import STRING_KEYS, TopicRole, TopicSpec
from streamplan.model.windows import STORED_SESSION_BYTES
from streamplan.serdes.primitive import KeySerde, key_serde_of_type
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.subscriptions import Response, Subscription, combined_key, sent_in
from streamplan.serdes.value_text import text_of_value
from streamplan.serdes.windowed import KeyInWindow, SessionWindowed, TimeWindowed

SEARCHED_RECORDS = 10_000
"""At most this many records of a partition are searched for a text."""

Read: TypeAlias = Callable[[str, OffsetRanges], Iterator[RecordBatch]]
"""Reads ranges of a topic, see :meth:`streamplan.kafka_port.Cluster.read`."""

_LONG_BYTES = 8


@dataclass(frozen=True)
class StoredValue:
    """The last value of a key in the changelog of a state store.

    Attributes:
        changelog: The topic.
        partition: The partition in which the key belongs.
        key: The key as people read it, with its window where it has one.
        value: The value as text; None where it was deleted.
        offset: The offset of the record.
        at: The timestamp of the record, ISO 8601: the time of the update, as Kafka Streams has it.
        label: The declared label of the key, such as ``Jackets``; empty where it has none.
        window: The parts of a key with a window; None for other keys.
    """

    changelog: str
    partition: int
    key: str
    value: str | None
    offset: int
    at: str
    label: str = ""
    window: KeyInWindow | None = None


@dataclass(frozen=True)
class DeadLetterView:
    """A dead letter as people read it.

    Attributes:
        partition: The partition of the dead-letter topic.
        offset: The offset there.
        at: The timestamp of the record, ISO 8601.
        reason: Why it could not be processed.
        task: The stream task that met it.
        origin: Where the record lies, ``<topic>-<partition>@<offset>``; empty where no header says it.
        key: The key as text.
        value: The value as text.
        headers: All other headers as text.
        redriven: Who had its record processed again, and when; None while it is open.
        window: The parts of a key with a window; None for other keys.
    """

    partition: int
    offset: int
    at: str
    reason: str
    task: str
    origin: str
    key: str | None
    value: str | None
    headers: dict[str, str | None]
    redriven: Redrive | None = None
    window: KeyInWindow | None = None


@dataclass(frozen=True)
class TopicRecord:
    """A record of a topic as people read it.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        at: Its timestamp, ISO 8601.
        key: The key; a key of an internal topic as the topic's type of keys says, else as text.
        value: The value as text.
        headers: Names and values, as text.
        label: The declared label of the key, such as ``Jackets``; empty where it has none.
        window: The parts of a key with a window; None for other keys.
    """

    partition: int
    offset: int
    at: str
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]
    label: str = ""
    window: KeyInWindow | None = None


def read_records(
    application: Application,
    cluster: Cluster,
    topic: str,
    *,
    last: int,
    partition: int | None = None,
    offset: int | None = None,
    since: StartMoment | None = None,
    containing: str = "",
    uncommitted: bool = False,
) -> list[TopicRecord]:
    """Return records of a topic of the application, the newest first.

    Args:
        topic: One of its topics.
        last: The greatest number of records of each partition.
        partition: The partition; None for all.
        offset: Where reading begins, forwards; None for the newest records.
        since: Where reading begins, forwards, instead of an offset: with the first record of this time or later.
        containing: Only records whose key or value contains this text, among :data:`SEARCHED_RECORDS` of a partition.
        uncommitted: Also records of open and of aborted transactions.

    Raises:
        Refused: The application has no such topic or partition, ``last`` is less than 1, or both ``offset`` and
            ``since`` are given.
    """
    spec = topic_of(application, topic)
    if offset is not None and since is not None:
        raise Refused("where reading begins", expected="an offset or a time", observed="both")
    borders = cluster.offsets(topic)
    if partition is not None and partition not in borders:
        raise Refused(f"partition {partition} of {topic}", expected=f"0 to {len(borders) - 1}", observed=str(partition))
    if last < 1:
        raise Refused("the number of records", expected="1 or more", observed=str(last))
    found: list[TopicRecord] = []
    read = cluster.read_uncommitted if uncommitted else cluster.read
    begins = _beginnings(cluster, topic, borders, offset, since)
    texts = _Texts(cluster.schemas)
    for number in borders if partition is None else [partition]:
        border = borders[number]
        end = border.high_watermark if uncommitted else border.last_stable
        looked_at = SEARCHED_RECORDS if containing else last
        if number in begins:
            records = _from(read, topic, number, begins[number], end, looked_at)
        else:
            records = _newest(read, topic, number, border.log_start, end, looked_at)
        shown = [
            each
            for each in (_shown(application, spec, record, texts) for record in records)
            if _contains(each, containing)
        ]
        found += shown[:last] if number in begins else shown[-last:]
    return sorted(found, key=lambda record: (record.at, record.partition, record.offset), reverse=True)


def moment(text: str) -> StartMoment | None:
    """Return where reading begins, as a person writes it; None for no text.

    Raises:
        Refused: It is no moment.
    """
    try:
        return StartMoment.parse(text) if text else None
    except ValueError as error:
        raise Refused("where reading begins", expected=FORMS, observed=str(error)) from error


def find_key(application: Application, cluster: Cluster, key: str) -> list[StoredValue]:
    """Return what the changelogs hold of a key. Of each changelog the partition is read in which the key belongs.

    Args:
        key: The key as people read it: a number for a changelog whose keys are numbers, hexadecimal digits for bytes;
            or the declared label of keys, such as ``Jackets``. A key of a windowed store may have its window, as in
            ``ann at 2026-01-01T12:00:00Z``; without one all its windows are meant.

    Returns:
        By changelog, and for a windowed store by window; empty where no changelog has the key.
    """
    labelled = {text for each in application.aggregations for text in each.keys_labelled(key)}
    return [found for text in sorted({key, *labelled}) for found in _find_key(application, cluster, text)]


def _find_key(application: Application, cluster: Cluster, key: str) -> list[StoredValue]:
    found: list[StoredValue] = []
    texts = _Texts(cluster.schemas)
    asked = [(spec, *meant) for spec in application.with_role(TopicRole.CHANGELOG) for meant in _meant(spec, key)]
    for spec, raw, window in asked:
        offsets = cluster.offsets(spec.name)
        placed = bytes(spec.prefix_bytes) + raw + bytes(spec.window_bytes + spec.number_bytes)
        if spec.primary_key_type is not None:  # all subscriptions to the key
            placed = combined_key(raw, b"")
        partitions = [application.partition_of(spec, placed, len(offsets))]
        if spec.name in application.unjudged:  # each stream task may have the key
            partitions = sorted(offsets)
        last: dict[tuple[bytes, int], Record] = {}
        ranges = {number: (offsets[number].log_start, offsets[number].last_stable) for number in partitions}
        for batch in cluster.read(spec.name, ranges):
            for record in records_of(batch):
                stored = record.key or b""
                any_length = spec.primary_key_type is not None
                is_of_key = spec.application_key(stored) == raw and (any_length or len(stored) == len(placed))
                if is_of_key and stored.startswith(window, len(raw)):
                    last[stored, record.partition] = record
        found += [
            StoredValue(
                spec.name,
                partition,
                spec.key_text(stored, quoted=False),
                texts.of_topic(spec.name, record.value),
                record.offset,
                time_text(record.timestamp),
                application.key_label(spec.name, spec.application_key(stored)),
                spec.key_in_window(stored),
            )
            for (stored, partition), record in sorted(last.items())
        ]
    return found


def newest_dead_letters(application: Application, cluster: Cluster, last: int) -> list[DeadLetterView]:
    """Return the newest dead letters, the newest first, those that were re-driven among them.

    Args:
        last: The greatest number of dead letters of each partition.

    Raises:
        Refused: ``last`` is less than 1.
    """
    if last < 1:
        raise Refused("the number of dead letters", expected="1 or more", observed=str(last))
    marks: dict[tuple[bytes, letters.Origin | None], Redrive] = {}

    def is_letter(record: Record) -> bool:
        if not letters.is_mark(record.headers):
            return True
        marks[_record_of(record)] = letters.parse_mark(record.headers)  # it stands behind the dead letter
        return False

    found = [
        record
        for spec in application.with_role(TopicRole.DEAD_LETTER)
        for partition, offsets in cluster.offsets(spec.name).items()
        for record in _newest(
            cluster.read, spec.name, partition, offsets.log_start, offsets.last_stable, last, is_letter
        )
    ]
    by_time = sorted(found, key=lambda record: record.timestamp, reverse=True)
    texts = _Texts(cluster.schemas)
    specs = {spec.name: spec for spec in application.topics}
    return [replace(_dead_letter(record, specs, texts), redriven=marks.get(_record_of(record))) for record in by_time]


def _record_of(letter: Record) -> tuple[bytes, letters.Origin | None]:
    """What a mark and its dead letter have in common: the sub-topology, and where the record lies."""
    return letters.parse_subtopology(letter.headers), letters.parse_origin(letter.headers)


def as_text(value: bytes | None) -> str | None:
    """Return bytes as people read them: text, or eight bytes that are no text as the number that Java wrote there."""
    if value is None:
        return None
    text = value.decode("utf-8", "backslashreplace")
    if len(value) == _LONG_BYTES and not text.isprintable():
        return str(int.from_bytes(value, "big", signed=True))
    return text


def key_as_text(spec: TopicSpec | None, key: bytes | None) -> str | None:
    """Return a key of a topic as people read it, text without quotes.

    Args:
        spec: The topic; None where it is not known.
        key: The key in bytes.
    """
    if spec is None or key is None:
        return as_text(key)
    is_ours = spec.role in (TopicRole.REPARTITION, TopicRole.CHANGELOG)
    return spec.key_text(key, quoted=False) if is_ours or spec.key_type != STRING_KEYS else as_text(key)


def window_of_key(spec: TopicSpec | None, key: bytes | None) -> KeyInWindow | None:
    """Return the parts of a key of a topic that has a window; None for other keys, see :func:`key_as_text`."""
    return None if spec is None or key is None else spec.key_in_window(key)


class _Texts:
    """Values as people read them, those with a schema as JSON. A registry that does not answer is asked once."""

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas: SchemaSource | None = schemas

    def of_topic(self, topic: str, value: bytes | None) -> str | None:
        """A value of a topic, which may be one of a join by a foreign key."""
        match None if value is None else sent_in(topic, value):
            case Subscription() as subscription:
                return str(subscription)
            case Response(value=other):
                return f"response: {self.of(other)}"
        return self.of(value)

    def of(self, value: bytes | None) -> str | None:
        # A great count begins as a value with a schema does, with a zero.
        if value is not None and len(value) != _LONG_BYTES and self._schemas is not None:
            try:
                if (text := text_of_value(value, self._schemas)) is not None:
                    return text
            except StreamplanError:  # it is away, or there is none: the value is shown as it is
                self._schemas = None
        return as_text(value)


def _shown(application: Application, spec: TopicSpec, record: Record, texts: _Texts) -> TopicRecord:
    key = key_as_text(spec, record.key)
    headers = list(_texts(record.headers))
    value = texts.of_topic(spec.name, record.value)
    label = "" if record.key is None else application.key_label(spec.name, spec.application_key(record.key))
    window = window_of_key(spec, record.key)
    return TopicRecord(record.partition, record.offset, time_text(record.timestamp), key, value, headers, label, window)


def _contains(record: TopicRecord, text: str) -> bool:
    return any(text in (each or "") for each in (record.key, record.value, record.label))


def topic_of(application: Application, name: str) -> TopicSpec:
    """Return a topic of an application.

    Raises:
        Refused: It has none of this name.
    """
    for spec in application.topics:
        if spec.name == name:
            return spec
    listed = ", ".join(spec.name for spec in application.topics)
    raise Refused(f"topic {name}", expected=f"a topic of {application.name}: {listed}")


def _beginnings(
    cluster: Cluster, topic: str, borders: Mapping[int, Offsets], offset: int | None, since: StartMoment | None
) -> OffsetByPartition:
    """Return where reading begins, by partition; nothing where the newest records are wanted."""
    if offset is not None:
        return {number: max(offset, border.log_start) for number, border in borders.items()}
    if since is None:
        return {}
    if since.is_earliest:
        return {number: border.log_start for number, border in borders.items()}
    return cluster.offsets_since(topic, since.timestamp_ms())


def _from(read: Read, topic: str, partition: int, first: int, end: int, records: int) -> Sequence[Record]:
    batches = read(topic, {partition: (first, min(end, first + 2 * records))})
    return list(islice((each for batch in batches for each in records_of(batch)), records))


def _newest(
    read: Read,
    topic: str,
    partition: int,
    start: int,
    end: int,
    last: int,
    counts: Callable[[Record], bool] = lambda record: True,
) -> Sequence[Record]:
    """Return the last records of a partition that count. Further offsets are read where others lie among them."""
    wanted = last
    while True:
        first = max(start, end - wanted)
        records = (each for batch in read(topic, {partition: (first, end)}) for each in records_of(batch))
        kept = deque(filter(counts, records), last)
        if len(kept) == last or first == start:
            return kept
        wanted *= 4


def _dead_letter(record: Record, specs: Mapping[str, TopicSpec], texts: _Texts) -> DeadLetterView:
    headers = dict(_texts(record.headers))  # of several headers with one name the last is Streamplan's
    topic, partition, offset = (
        headers.pop(name, None) for name in (letters.SOURCE_TOPIC, letters.SOURCE_PARTITION, letters.SOURCE_OFFSET)
    )
    for name in (letters.ERROR_MESSAGE, letters.ERROR_TOPIC, letters.ERROR_PARTITION, letters.ERROR_OFFSET):
        headers.pop(name, None)  # they say the same
    return DeadLetterView(
        partition=record.partition,
        offset=record.offset,
        at=time_text(record.timestamp),
        reason=headers.pop(letters.REASON, None) or "",
        task=headers.pop(letters.TASK, None) or "",
        origin=f"{topic}-{partition}@{offset}" if topic is not None else "",
        key=key_as_text(specs.get(topic or ""), record.key),
        value=texts.of(record.value),
        headers=headers,
        window=window_of_key(specs.get(topic or ""), record.key),
    )


def _texts(headers: Headers) -> Iterator[tuple[str, str | None]]:
    return ((name, as_text(value)) for name, value in headers)


def _meant(spec: TopicSpec, key: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield what a text means in a changelog: a key, and the bytes of its window; none for all windows."""
    serde = key_serde_of_type(spec.key_type)
    if (raw := _written(serde, key)) is not None:
        yield raw, b""
    if spec.window_bytes:
        kind = SessionWindowed if spec.window_bytes == STORED_SESSION_BYTES else TimeWindowed
        windowed = kind(serde)  # type: ignore[arg-type]
        if (raw := _written(windowed, key)) is not None:
            yield raw[: -windowed.window_bytes], raw[-windowed.window_bytes :]


def _written(serde: KeySerde, key: str) -> bytes | None:
    try:
        return serde.write_key(serde.key_of_text(key))
    except ValueError:
        return None


def time_text(timestamp_ms: int) -> str:
    """Return a timestamp as ISO 8601 in UTC; as a number of ms where Python has no such year."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # It is beyond the years of Python.
        return f"{timestamp_ms} ms"
