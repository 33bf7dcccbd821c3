"""TopologyTestDriver and the JVM library's, which process the same records of one topology.

Each record is a micro-batch, as the library processes each record at once. All topics that both write are compared:
those from outside, repartition topics, and changelogs, which are what the stores hold.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

from py4j import java_gateway
from py4j.protocol import get_return_value
from pyspark.sql import Row, SparkSession
from streamplan.model.stages import stage_of
from streamplan.serdes.changes import parse_change
from streamplan.serdes.json_keys import KeyFields
from streamplan.spark.planning.outer_join_state import parse_stored_list
from streamplan.testing import SessionKey, TopologyTestDriver, WindowedKey
from streamplan.testing.memory_output import WrittenRecord
from streamplan.testing.memory_query import SourceRecord

from tests.support.kafka_streams import properties
from tests.support.streams_library import Library, raw
from tests.support.twin_topologies import (
    SESSIONS,
    TOPICS,
    Program,
    is_ordered_by_time,
    ours,
    theirs,
)

APPLICATION = "twin"
BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
KEYS = ("k", "l", "m", None)
TEXTS = ("x", "y", "z")
UNCACHED = {"statestore.cache.max.bytes": "0"}
"""With its cache, the library passes an update to other state when the timers of the record have been called."""


class Piped(NamedTuple):
    topic: str
    key: str | None
    value: bytes | None
    at: int


class LibraryDriver:
    """``org.apache.kafka.streams.TopologyTestDriver``."""

    def __init__(self, jvm: Any, steps: Program, settings: Mapping[str, str] | None = None) -> None:
        library = Library(jvm, APPLICATION)
        theirs(steps, library)
        built = library.builder.build()
        self.description = str(built.describe().toString())
        bytes_serde = "org.apache.kafka.common.serialization.Serdes$ByteArraySerde"
        self._state = TemporaryDirectory()  # another run of these tests may be at work on this machine
        config = {
            "application.id": APPLICATION,
            "state.dir": self._state.name,
            "bootstrap.servers": "localhost:1",
            "default.key.serde": bytes_serde,
            "default.value.serde": bytes_serde,
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0",
            "__emit.interval.ms.kstreams.windowed.aggregation__": "0",
            "deserialization.exception.handler": "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler",
            **(settings or {}),
        }
        self._jvm, self._bytes = jvm, library.bytes
        self._driver = jvm.org.apache.kafka.streams.TopologyTestDriver(built, properties(jvm, config))
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}

    def pipe(self, record: Piped) -> None:
        if record.topic not in self._inputs:
            serializer = self._bytes.serializer()
            self._inputs[record.topic] = self._driver.createInputTopic(record.topic, serializer, serializer)
        key = None if record.key is None else record.key.encode()
        at = self._jvm.java.time.Instant.ofEpochMilli(record.at)
        made = self._jvm.org.apache.kafka.streams.test.TestRecord(key, record.value, at)
        # PySpark takes each exception for one of Spark's JVM, and asks for an object that may be another one there.
        with patch.object(java_gateway, "get_return_value", get_return_value):
            self._inputs[record.topic].pipeInput(made)

    def outputs(self) -> dict[str, list[tuple[Any, Any, int]]]:
        """What was written since the last call: key, value and time in ms, by topic."""
        return {
            topic: [(unnumbered(topic, key), value_of(value), at) for key, value, at in records]
            for topic, records in self.raw_outputs().items()
        }

    def raw_outputs(self) -> dict[str, list[tuple[bytes | None, bytes | None, int]]]:
        """The same in bytes."""
        found: dict[str, list[tuple[bytes | None, bytes | None, int]]] = {}
        for topic in self._driver.producedTopicNames():
            if topic not in self._outputs:
                deserializer = self._bytes.deserializer()
                self._outputs[topic] = self._driver.createOutputTopic(topic, deserializer, deserializer)
            records = self._outputs[topic].readRecordsToList()
            # What a buffer of suppress has written has no timestamp: the producer gives it that of its clock.
            found[topic] = [(raw(r.getKey()), raw(r.getValue()), int(r.timestamp() or 0)) for r in records]
        changelogs = {topic for topic in found if topic.endswith("-changelog")}
        return {
            topic: without_repeated_deletions(records) if topic in changelogs else records
            for topic, records in found.items()
            if records
        }

    def close(self) -> None:
        self._driver.close()
        self._state.cleanup()


def unnumbered(topic: str, key: bytes | None) -> bytes | None:
    """A key without the number that tells records of one key and time apart: the library's counts all of a task."""
    if key is not None and "-OUTERSHARED-" in topic:
        return key[9:] + key[:8] + bytes(4)  # as our driver shows the key of a record that waits
    is_numbered = re.search(r"-KSTREAM-(JOIN|OUTER(THIS|OTHER))", topic)
    return key[:-4] + bytes(4) if key is not None and is_numbered else key


def without_repeated_deletions(
    records: list[tuple[bytes | None, bytes | None, int]],
) -> list[tuple[bytes | None, bytes | None, int]]:
    """Of records that wait at one place, the library deletes the place once for each, where its keys are bytes.

    It compares the keys with ``equals``, and two arrays of bytes are never equal.
    """
    return [one for place, one in enumerate(records) if one[1] is not None or one not in records[:place]]


def value_of(data: bytes | None) -> Any:
    """A count, or the fields that are there."""
    if data is None:
        return None
    if len(data) == 8 and data[:1] == b"\0":
        return int.from_bytes(data, "big")
    if data[-1:] in (b"\0", b"\1", b"\2"):
        return without_nulls({"new": value_of(parse_change(data)[0]), "old": value_of(parse_change(data)[1])})
    if data[:1] == b"\1":
        return [without_nulls(json.loads(value[1:])) for value in parse_stored_list(data)]
    return without_nulls(json.loads(data))


def our_outputs(driver: TopologyTestDriver, topics: Sequence[str]) -> dict[str, list[tuple[Any, Any, int]]]:
    found = {}
    for topic in topics:
        if records := driver.output(topic):
            suffix = bytes(4) if topic.endswith("-changelog") else b""
            found[topic] = [(raw_key(r.key, suffix), without_nulls(r.value), ms(r.timestamp)) for r in records]
    return found


def without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(field) for name, field in value.items() if field is not None}


def raw_key(key: Any, suffix: bytes) -> bytes | None:
    if isinstance(key, SessionKey):
        return str(key.key).encode() + ms(key.end).to_bytes(8, "big") + ms(key.start).to_bytes(8, "big")
    if isinstance(key, WindowedKey):
        return str(key.key).encode() + ms(key.start).to_bytes(8, "big") + suffix
    if isinstance(key, KeyFields):  # with a window
        return str(key["key"]).encode() + key["start"].to_bytes(8, "big")
    return None if key is None else str(key).encode()


def ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def by_key(outputs: dict[str, list[tuple[Any, Any, int]]]) -> dict[str, dict[Any, list[tuple[Any, int]]]]:
    """By topic and key the records in their order, which a consumer of the key sees."""
    found: dict[str, dict[Any, list[tuple[Any, int]]]] = {}
    for topic, records in outputs.items():
        for key, value, at in records:
            found.setdefault(topic, {}).setdefault(key, []).append((value, at))
    return found


def differences(mine: dict[str, list[tuple[Any, Any, int]]], its: dict[str, list[tuple[Any, Any, int]]]) -> str:
    """The topics that have other records for a key, with the records of both."""
    ours, theirs = by_key(mine), by_key(its)
    unlike = [topic for topic in sorted({*ours, *theirs}) if ours.get(topic) != theirs.get(topic)]
    return "\n".join(f"{topic}: ours {ours.get(topic)}, the library's {theirs.get(topic)}" for topic in unlike)


def without_vain_deletions(
    outputs: dict[str, list[tuple[Any, Any, int]]], there: set[Any]
) -> dict[str, list[tuple[Any, Any, int]]]:
    """The records without deletions of keys of which there is no value. ``there`` are the keys that have one."""
    found: dict[str, list[tuple[Any, Any, int]]] = {}
    for topic, records in outputs.items():
        for record in records:
            place = topic, record[0]
            if record[1] is not None or place in there:
                found.setdefault(topic, []).append(record)
            (there.discard if record[1] is None else there.add)(place)
    return found


def without_times_of_deletions(
    outputs: dict[str, list[tuple[Any, Any, int]]], *, passed: bool, stored: bool
) -> dict[str, list[tuple[Any, Any, int]]]:
    """The time of ``passed`` deletions is 0, and that of ``stored`` ones, which are in changelogs.

    Without its cache, the library passes a deletion with the time of the window. Of final results, our changelog has a
    deletion with this time: a restored state knows from it which results were passed.
    """

    def kept(topic: str, value: Any) -> bool:
        return value is not None or not (stored if topic.endswith("-changelog") else passed)

    return {
        topic: [(key, value, at if kept(topic, value) else 0) for key, value, at in records]
        for topic, records in outputs.items()
    }


def last_of_each_key(outputs: dict[str, list[tuple[Any, Any, int]]]) -> dict[str, list[tuple[Any, Any, int]]]:
    """The library deletes a session and writes it again where a record does not change its bounds."""
    return {topic: last_of_each(records, lambda record: record[0]) for topic, records in outputs.items()}


def last_of_each(
    records: Sequence[tuple[Any, Any, int]], of: Callable[[tuple[Any, Any, int]], Any]
) -> list[tuple[Any, Any, int]]:
    """The last record of each kind, in the order of these records."""
    last = {of(record): number for number, record in enumerate(records)}
    return [records[number] for number in sorted(last.values())]


def random_records(seed: int, steps: Program, count: int) -> list[Piped]:
    """Late ones only where time decides nothing."""
    chosen = random.Random(seed)
    topics = [topic for step in steps if step.word in TOPICS for topic in step.topics]
    late = not is_ordered_by_time(steps)
    records, now = [], BEGIN
    for _ in range(count):
        now += chosen.choice([0, 1, 500, 20_000, 61_000])
        at = now - (chosen.choice([0, 0, 0, 1, 30_000, 120_000]) if late else 0)
        fields = {"n": chosen.randrange(8), "s": chosen.choice(TEXTS)}
        fields = {name: field for name, field in fields.items() if chosen.random() < 0.9}
        value: bytes | None = json.dumps(fields).encode()
        if chosen.random() < 0.15:
            value = chosen.choice([None, b"no JSON", b'{"n": "1"}', b'{"n": null, "s": "x", "other": [1]}'])
        records.append(Piped(chosen.choice(topics), chosen.choice(KEYS), value, at))
    return records


def late_records(seed: int, steps: Program, count: int) -> list[Piped]:
    """Records of few keys, some of them late, so that many meet and some are too late."""
    chosen = random.Random(seed)
    topics = [topic for step in steps if step.word == "stream" for topic in step.topics]
    records, now = [], BEGIN
    for _ in range(count):
        now += chosen.choice([0, 0, 1, 500, 10_000, 31_000, 61_000])
        at = now - chosen.choice([0, 0, 0, 0, 1, 30_000, 100_000, 160_000])
        value = chosen.choices([b'{"n": %d, "s": "x"}' % chosen.randrange(8), None, b"no JSON"], [20, 1, 1])[0]
        records.append(Piped(chosen.choice(topics), chosen.choices(KEYS, [6, 6, 1, 1])[0], value, at))
    return records


def joined_record(row: Row) -> tuple[bytes | None, Any, int]:
    """What the twin topologies make of two records, of which either may be missing."""
    key, texts = row.record["key"], ["" if fields is None else "x" for fields in (row.f0, row.f1)]
    numbers = [0 if fields is None else fields["n"] for fields in (row.f0, row.f1)]
    value = {"n": 10 * numbers[0] + numbers[1], "s": "-".join(texts)}
    return None if key is None else key.encode(), value, row.at


@contextmanager
def both(
    spark: SparkSession, jvm: Any, steps: Program, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[TopologyTestDriver, LibraryDriver]]:
    """Our driver and the library's, of one topology with one partition for each topic, as the library has it."""
    pipeline = ours(steps, APPLICATION, 1)
    library = LibraryDriver(jvm, steps, settings)
    try:
        with TopologyTestDriver(pipeline, spark=spark) as driver:
            assert without_extractor(pipeline.topology.describe()) == without_extractor(library.description)
            yield driver, library
    finally:
        library.close()


def without_extractor(description: str) -> str:
    """The library prints the object that chooses topics, and ours the expression."""
    return re.sub(r"\(extractor class: .*\)\n", "(extractor class)\n", description)


def pipe(driver: TopologyTestDriver, record: Piped) -> None:
    driver.pipe(record.topic, record.value, key=record.key, at=record.at)


class Changelogs:
    """The changelogs that a driver of ours writes, from which its states are restored."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self._driver, self._records = driver, list[WrittenRecord]()
        append = driver._written.append

        def noted(record: WrittenRecord, *of_output: Any) -> None:
            self._records.append(record)
            append(record, *of_output)

        driver._written.append = noted  # type: ignore[method-assign]

    def restore(self) -> None:
        """Lose the states, and make them from what compacted changelogs have."""
        for query in self._driver._queries:
            stored = {}
            for store in stage_of(query.subtopology).stores:
                topic = self._driver._written.changelog(store)
                rows = {(r.partition, r.key): r for r in self._records if r.topic == topic}
                stored[store] = [
                    SourceRecord(store, r.partition, offset, r.key, r.value, r.timestamp, r.headers)
                    for offset, r in enumerate(sorted(rows.values(), key=self._records.index))
                    if r.value is not None
                ]
            if stored:
                query.fill(stored)


def compare(
    spark: SparkSession,
    jvm: Any,
    steps: Program,
    records: Sequence[Piped],
    *ordered: str,
    deletes: bool = True,
    settings: Mapping[str, str] | None = None,
    restored_at: Collection[int] = (),
) -> int:
    """Both drivers process the records one by one; returns how many records both wrote.

    What a record gives to the topics ``ordered`` has the library's order. Without ``deletes`` a deletion of a key that
    a topic has no value of is not compared. The library has these further settings. Before the records ``restored_at``
    our states are lost, and restored from their changelogs.
    """
    there: tuple[set[Any], set[Any]] = set(), set()
    pipeline = ours(steps, APPLICATION, 1)
    others = {*pipeline.topology.source_topics, pipeline.topology.dead_letter_topic}
    topics = [spec.name for spec in pipeline.topics() if spec.name not in others]
    changed_twice = _changed_twice(steps)
    written = 0
    with both(spark, jvm, steps, settings) as (driver, library):
        changelogs = Changelogs(driver)
        for number, record in enumerate(records):
            if number in restored_at:
                changelogs.restore()
            pipe(driver, record)
            library.pipe(record)
            mine, its = our_outputs(driver, topics), library.outputs()
            its |= last_of_each_key({topic: its[topic] for topic in its if topic in changed_twice})
            if not deletes:
                mine, its = (without_vain_deletions(each, seen) for each, seen in zip((mine, its), there, strict=True))
                sliding, final = (any(step.word == word for step in steps) for word in ("sliding_windows", "on_close"))
                mine, its = (without_times_of_deletions(each, passed=sliding, stored=final) for each in (mine, its))
            assert by_key(mine) == by_key(its), f"record {number}: {record} in {steps}:\n{differences(mine, its)}"
            assert all(mine.get(topic) == its.get(topic) for topic in ordered), f"record {number}: {record} in {steps}"
            written += sum(map(len, its.values()))
    return written


CACHED = frozenset({"count", "aggregate", "reduce", "greatest"})
"""Aggregates that pass one update of a key for each micro-batch."""

LOOK_UPS = frozenset({"join", "left_join", "join_counts", "left_join_counts"})
"""Joins that pass nothing when their table changes."""


OVERLAPPING = frozenset({"short_hops", "hopping_windows", "sliding_windows", "shifts"})
"""Windows of which a record is in several."""


def _changed_twice(steps: Program) -> set[str]:
    """The topics to which the library writes a key twice where ours has the last value.

    It deletes a session and writes it again where a record does not change its bounds. It logs each put of a class. It
    flushes its record cache before the timers of a class are called, whose records an aggregate may be given. And its
    driver flushes the cache behind each of the windows of a record that come to one group: each update is in the
    changelog.
    """
    of_classes, windowed, twice, topics = set[int](), set[int](), set[int](), set[str]()
    for number, step in enumerate(steps):
        if step.word in OVERLAPPING or windowed & {*step.of}:
            windowed.add(number)
        if number in windowed and any(steps[of].word == "group_table" for of in step.of):
            topics.add(f"{APPLICATION}-x{number}-changelog")
        if step.word == "process" or of_classes & {*step.of}:
            of_classes.add(number)
        passing = step.of[:1] if step.word in LOOK_UPS else step.of
        if step.word in SESSIONS or twice & {*passing} or (number in of_classes and step.word in CACHED):
            twice.add(number)
            topics.add(step.topic)
        if number in twice or step.word == "process":
            topics.add(f"{APPLICATION}-x{number}-changelog")
    return topics


COGROUPED = "stream a; group_by_key; stream b; filter; group_by; @1 cogroup 4;%s cogrouped; to_stream; to totals"


def without_empty_deletions(steps: Program, records: Sequence[Piped]) -> list[Piped]:
    """The records without deletions of keys that a table does not have.

    The library's record cache keeps them out of the changelog, and ours has them, but for a table that is joined with
    another one.
    """
    tables = {step.topic for step in steps if step.word == "table"}
    kept, rows = list[Piped](), set[tuple[str, str | None]]()
    for record in records:
        place = record.topic, record.key
        if record.value is None and record.topic in tables and place not in rows:
            continue
        kept.append(record)
        if record.value is None:
            rows.discard(place)
        elif record.value not in (b"no JSON", b'{"n": "1"}'):  # which are rejected
            rows.add(place)
    return kept


SESSIONS_IN_ALL_WAYS = (
    "stream a; group_by_key; short_sessions; aggregate; to_stream; to_sessions totals; @4 session_values; to by-session"
)

FINAL = "stream a; group_by_key; %s; on_close; aggregate; to_stream; windows; to w"

TABLES_JOINED_IN_ALL_WAYS = [
    "table t; table u; join_tables 0; to_stream; to joined",
    "table t; table u; left_tables 0; to_stream; to joined",
    "table t; table u; outer_tables 0; to_stream; to joined",
    "table t; table u; left_tables_stored 0; to_stream; to joined; @1 to_stream; to copied",
    "table t; table u; table v; @0 left_tables 1; left_tables 2; to_stream; to joined; @3 to_stream; to first",
    "table t; table u; table v; @0 left_tables_stored 1; @2 outer_tables_stored 3; to_stream; to joined",
    "table t; table u; table v; table w; @0 join_tables 1; @2 outer_tables 3; @4 left_tables 5; to_stream; to joined",
    "table t; table u; table v; table w; @0 outer_tables_stored 1; @2 join_tables_stored 3; @4 outer_tables 5; "
    "to_stream; to joined; @0 left_tables 2; to_stream; filter; to more",
]
"""Inner, left and outer joins; with stores; of joined tables; and one table joined twice."""


def table_records(seed: int, steps: Program, count: int) -> list[Piped]:
    """Updates of few keys, of which some are deletions, late, or of equal times."""
    chosen = random.Random(seed)
    topics = [step.topic for step in steps if step.word == "table"]
    records, now = [], BEGIN
    for number in range(count):
        now += chosen.choice([0, 0, 1, 1000])
        at = now - chosen.choice([0, 0, 0, 1, 5000])
        value = chosen.choices([b'{"n": %d, "s": "x%d"}' % (chosen.randrange(8), number), None, b"no JSON"], [6, 4, 1])[
            0
        ]
        records.append(Piped(chosen.choice(topics), chosen.choices(KEYS, [6, 6, 0, 1])[0], value, at))
    return records


def one(topic: str, second: int, value: bytes = b"{}") -> Piped:
    return Piped(topic, "k", value, BEGIN + 1000 * second)
