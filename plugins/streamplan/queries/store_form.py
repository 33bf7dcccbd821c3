"""What is known of the state stores of a pipeline: which can be asked, and what their keys and values are.

This module asks Kafka nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from streamplan.errors import Refused, did_you_mean
from streamplan.model.operations import (
    Aggregate,
    Branch,
    BufferRecords,
    Count,
    Filter,
    FilterFunction,
    FilterNot,
    FilterNotFunction,
    KeySelect,
    NullKeyFilter,
    Peek,
    PeekFunction,
    Reduce,
    SeveralTopics,
    Split,
    StateStore,
    StoreForJoin,
    SuppressUpdates,
    TableCount,
    TableFilter,
    TableSource,
    ToStream,
    ToTable,
    VersionedStateStore,
    VersionedTableSource,
)
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.model.windows import (
    CALENDAR_UNITS,
    STORED_SESSION_BYTES,
    STORED_WINDOW_BYTES,
    WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS,
    CalendarWindows,
    CustomWindows,
    TimeWindows,
    parse_stored_session,
    parse_stored_window,
)
from streamplan.observability.lookup import as_text
from streamplan.serdes.json import Json
from streamplan.serdes.json_documents import exact_number, parse_shown
from streamplan.serdes.moments import as_datetime, as_milliseconds
from streamplan.serdes.primitive import FIELD, KeySerde, Long, Primitive
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import Serde, Undecodable
from streamplan.serdes.value_text import text_of_value

_LEAVES_VALUE = (
    *(KeySelect, Filter, FilterNot, FilterFunction, FilterNotFunction, Split, Branch, Peek, PeekFunction),
    *(NullKeyFilter, Reduce, SeveralTopics, TableSource, TableFilter, ToTable, ToStream, StoreForJoin),
)
"""The operations behind which a value has the bytes that it was read with."""


_LONG_BYTES = 8


class UnknownStore(Refused):
    """There is no store of this name."""


class StoreKind(StrEnum):
    """What the keys of a store have beside the key of the application."""

    KEY_VALUE = "key-value"
    WINDOW = "window"
    SESSION = "session"


_KINDS = {
    0: StoreKind.KEY_VALUE,
    STORED_WINDOW_BYTES: StoreKind.WINDOW,
    STORED_SESSION_BYTES: StoreKind.SESSION,
}
"""By the bytes of a window at the end of the keys."""


@dataclass(frozen=True)
class StoreForm:
    """A state store that can be asked.

    Attributes:
        name: Its name.
        kind: What its keys have.
        changelog: Its changelog.
        partitions: The number of partitions, which is that of the stream tasks.
        key_serde: The serde of its keys, without those of windows.
        value: The serde of its values; None where they are JSON that Streamplan has written.
        window_ms: How long a window is; None for windows of a calendar or of a function, and in stores without windows.
        retention_ms: How long windows and sessions are kept; None in other stores.
        is_placed: Whether the key decides the partition. A processor puts any keys into its store.
        calendar: The windows, where they are those of a calendar, or those that a function tells.
    """

    name: str
    kind: StoreKind
    changelog: str
    partitions: int
    key_serde: KeySerde
    value: Serde | None
    window_ms: int | None = None
    retention_ms: int | None = None
    is_placed: bool = True
    calendar: CalendarWindows | CustomWindows | None = None

    def partition_of(self, key: bytes) -> int | None:
        """Return the partition of a key; None where any stream task may have it.

        Args:
            key: The key in bytes, without those of a window.
        """
        return partition_for_key(key, self.partitions) if self.is_placed else None

    def raw_key(self, stored: bytes) -> bytes:
        """Return the key of a stored key without the bytes of a window or a session."""
        if self.kind is StoreKind.WINDOW and (window := parse_stored_window(stored)) is not None:
            return window.key
        if self.kind is StoreKind.SESSION and (session := parse_stored_session(stored)) is not None:
            return session.key
        return stored

    def bounds_ms(self, stored: bytes) -> tuple[int, int | None] | None:
        """Return when the window or the session of a stored key begins and ends; None in stores without them."""
        if self.kind is StoreKind.WINDOW and (window := parse_stored_window(stored)) is not None:
            return window.start_ms, self._window_end_ms(window.start_ms)
        if self.kind is StoreKind.SESSION and (session := parse_stored_session(stored)) is not None:
            return session.start_ms, session.end_ms
        return None

    def _window_end_ms(self, start_ms: int) -> int | None:
        if self.window_ms is not None:
            return start_ms + self.window_ms
        if isinstance(self.calendar, CustomWindows):
            return self.calendar.end_of(start_ms)
        try:
            return None if self.calendar is None else calendar_end_ms(self.calendar, start_ms)
        except OverflowError:  # Python has no such year: another program has written the key.
            return None

    def time_ms(self, stored: bytes) -> int | None:
        """Return the time by which a stored key is kept: the start of its window, or the end of its session."""
        if self.kind is StoreKind.WINDOW:
            return None if (window := parse_stored_window(stored)) is None else window.start_ms
        bounds = self.bounds_ms(stored)
        return None if bounds is None else bounds[1]

    def key(self, stored: bytes) -> Any:
        """Return the key of a stored key as Python code has it; as text where its serde cannot read it."""
        raw = self.raw_key(stored)
        try:
            return self.key_serde.read_key(raw)
        except Undecodable:
            return as_text(raw)


def changelogs_of(pipeline: Pipeline) -> dict[str, str]:
    """Return the changelogs of the stores of a pipeline that can be asked, by the name of the store.

    The others hold what waits: the subscriptions of a join by a foreign key, the store that both sides of an outer join
    share, and the buffer of ``suppress``. Nor can a versioned store be asked: the last record of a key in its changelog
    may be a late one.
    """
    return {store: spec.name for store, (_, _, spec) in _asked(pipeline).items()}


def forms_of(pipeline: Pipeline, partitions: Mapping[str, int]) -> dict[str, StoreForm]:
    """Return the stores of a pipeline that can be asked, by name.

    Args:
        partitions: The number of partitions of each changelog. A store whose changelog is not there is left out.
    """
    return {
        store: StoreForm(
            name=store,
            kind=_KINDS[spec.window_bytes],
            changelog=spec.name,
            partitions=partitions[spec.name],
            key_serde=group.key_serde_of(node.name),
            value=_serde_of_values(pipeline, group, node),
            window_ms=_window_ms(node) if spec.window_bytes == STORED_WINDOW_BYTES else None,
            retention_ms=_retention_ms(spec),
            is_placed=not isinstance(node.operation, StateStore),
            calendar=_calendar(node),
        )
        for store, (group, node, spec) in _asked(pipeline).items()
        if spec.name in partitions
    }


def _asked(pipeline: Pipeline) -> dict[str, tuple[Subtopology, Processor, TopicSpec]]:
    changelogs = {spec.name: spec for spec in pipeline.declared_topics() if spec.role is TopicRole.CHANGELOG}
    found = {}
    for group, node in pipeline.stores:
        if isinstance(node.operation, VersionedTableSource | VersionedStateStore):
            continue
        spec = None if node.store is None else changelogs.get(pipeline.topology.changelog_topic(node.store))
        if isinstance(node.operation, SuppressUpdates | BufferRecords):
            continue
        if node.store is not None and spec is not None and spec.is_of_store:
            found[node.store] = (group, node, spec)
    return found


def _retention_ms(spec: TopicSpec) -> int | None:
    """Return how long a store keeps windows: not as long as its changelog does, in case clocks differ."""
    if not spec.window_bytes:
        return None
    return int(spec.configs["retention.ms"]) - WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS


def _window_ms(node: Processor) -> int | None:
    match node.operation:
        case Count(window=TimeWindows() as window) | Aggregate(window=TimeWindows() as window):
            return None if isinstance(window, CalendarWindows | CustomWindows) else window.size_ms
        case StateStore(window_ms=window_ms):
            return window_ms
        case StoreForJoin(windows=windows):
            return windows.before_ms + windows.after_ms
    return None


def _calendar(node: Processor) -> CalendarWindows | CustomWindows | None:
    windows = node.operation.window if isinstance(node.operation, Count | Aggregate) else None
    return windows if isinstance(windows, CalendarWindows | CustomWindows) else None


def calendar_end_ms(windows: CalendarWindows, start_ms: int) -> int:
    """Return when the window of a calendar ends that begins at a time.

    A clock that is set back shows the same time twice, and the window ends at the first one. A clock that is set
    forward leaves times out, and the window ends behind them (``java.time.ZonedDateTime.of``).

    Args:
        start_ms: The start of a window, in ms since the epoch.
    """
    zone, offset = ZoneInfo(windows.time_zone), timedelta(milliseconds=windows.offset_ms)
    clock = (as_datetime(start_ms).astimezone(zone).replace(tzinfo=None) - offset).date()  # by the clocks of the zone
    unit, _ = CALENDAR_UNITS[windows.size]
    if unit == "MONTH":
        following = (clock.replace(day=1) + timedelta(days=31)).replace(day=1)
    elif unit == "WEEK":
        following = clock + timedelta(days=7 - clock.weekday())
    else:
        following = clock + timedelta(days=1)
    return as_milliseconds((datetime.combine(following, time()) + offset).replace(tzinfo=zone))


def _serde_of_values(pipeline: Pipeline, group: Subtopology, node: Processor) -> Serde | None:
    match node.operation:
        case Count() | TableCount():
            return Long()
        case StateStore(value=value):
            return value
        case operation if isinstance(operation, _LEAVES_VALUE):
            first, *others = _read_with(pipeline, group, node)
            return first if all(each == first for each in others) else None
    return None


def _read_with(
    pipeline: Pipeline, group: Subtopology, node: Node, *, behind_topic: bool = False
) -> Iterator[Serde | None]:
    """Yield the serdes with which a value was read that passes a node; None for one that was made on the way.

    A count is 8 bytes, and JSON behind a repartition topic.
    """
    if isinstance(node, Source) and node.value is not None:
        yield node.value.unrestricted()
    elif isinstance(node, Source):
        for other in pipeline.topology.subtopologies:
            for sink in other.sinks:
                if sink.internal and sink.topic == node.topic:
                    yield from _read_with(pipeline, other, sink, behind_topic=True)
    elif isinstance(node, Sink) or isinstance(node.operation, _LEAVES_VALUE):
        nodes = {each.name: each for each in group.nodes}
        for name in group.predecessors[node.name]:
            yield from _read_with(pipeline, group, nodes[name], behind_topic=behind_topic)
    elif isinstance(node.operation, Count | TableCount) and not behind_topic:
        yield Long()
    else:
        yield None


class ReadValues:
    """Reads the values of stores.

    Args:
        schemas: Knows the schemas that values name.
    """

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas

    def value(self, form: StoreForm, data: bytes) -> Any:
        """Return a value as JSON has it: an object is a dict. Bytes that are no such value are returned as text.

        Args:
            form: The store.
            data: The bytes in its changelog.

        Raises:
            StreamplanError: The Schema Registry does not answer.
        """
        serde = form.value
        try:
            if isinstance(serde, Primitive):
                read = serde.decode(data)[FIELD]
                return read.hex() if isinstance(read, bytes) else read
            if serde is None or isinstance(serde, Json):
                return parse_shown(data)
            text = text_of_value(data, self._schemas)
            return parse_shown(data) if text is None else _parsed(text)
        except Undecodable:
            return _number_or_text(data)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str, parse_float=exact_number)
    except ValueError:  # An integer has more digits than Python takes.
        return text


def _number_or_text(data: bytes) -> int | str:
    """Return 8 bytes that are no text as the number that Java writes so, and other bytes as text."""
    text = as_text(data) or ""
    if len(data) != _LONG_BYTES or (text.encode() == data and text.isprintable()):
        return text
    return int.from_bytes(data, "big", signed=True)


def require_store(known: Collection[str], name: str, pipeline: str) -> None:
    """Refuse a store that cannot be asked.

    Args:
        known: The names of those that can.
        name: The store.
        pipeline: The name of the pipeline.

    Raises:
        UnknownStore: It is none of them.
    """
    if name not in known:
        raise UnknownStore(
            f"store {name!r}",
            expected=f"a store of {pipeline} that can be asked: {', '.join(sorted(known)) or 'it has none'}",
            remedy=did_you_mean(name, known),
        )


def partitions_held(forms: Mapping[str, StoreForm], wanted: frozenset[int] | None) -> Mapping[str, frozenset[int]]:
    """Return the partitions of each store that are read.

    Args:
        forms: The stores.
        wanted: The partitions that somebody asks for; None for all.

    Raises:
        Refused: No store has such a partition.
    """
    held = {
        name: frozenset(range(form.partitions)) & (frozenset(range(form.partitions)) if wanted is None else wanted)
        for name, form in forms.items()
    }
    most = max((form.partitions for form in forms.values()), default=0)
    if wanted is not None and (unknown := sorted(wanted - {*range(most)})):
        raise Refused(
            f"partition {', '.join(map(str, unknown))}",
            expected=f"partitions of the changelogs, 0 to {most - 1}",
            observed="no store has it",
        )
    return held
