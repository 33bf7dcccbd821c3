"""TopologyTestDriver beside the JVM library's: the same topologies, the same records, the same outputs.

Each record is a micro-batch, as the library processes each record at once. All topics that both write are compared:
those from outside, repartition topics, and changelogs, which are what the stores hold.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType
from streamplan.local.jars import KAFKA_STREAMS_TEST_UTILS
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.windows import CALENDAR_UNITS, CalendarWindows, SessionWindows, TimeWindows
from streamplan.serdes.changes import parse_change, written_change
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.subscriptions import Response
from streamplan.serdes.suppress_buffer import BufferedUpdate
from streamplan.spark.planning.aggregation import with_windows
from streamplan.spark.planning.foreign_key_state import OTHER, THIS, ResponderState, SubscriberState
from streamplan.spark.planning.outer_join_state import OuterJoinState, parse_stored_list
from streamplan.spark.planning.table_join_state import TableJoinState
from streamplan.spark.planning.table_table_join import joins_of
from streamplan.spark.planning.window_bounds import window_bounds, window_end
from streamplan.spark.session import generate_code
from streamplan.testing import SessionKey, TopologyTestDriver, WindowedKey, memory_query

from tests.support.join_task import FIELDS, Task, Variable, Variables
from tests.support.join_task import Arrived as ArrivedForJoin
from tests.support.kafka_streams import properties
from tests.support.library_windows import own_windows
from tests.support.process_task import Arrived, ProcessTask
from tests.support.soak import seeds, soak
from tests.support.streams_library import Library, java_with_callbacks, raw
from tests.support.suppress_task import SuppressTask, Update
from tests.support.twin_topologies import (
    GAPS_STATE,
    HISTORY_SECONDS,
    JOINED_WITHIN,
    SESSIONS,
    TOPICS,
    VALUE,
    WINDOWS,
    Gaps,
    Program,
    drawn,
    drawn_chain,
    drawn_merges,
    is_ordered_by_time,
    ours,
    program,
    theirs,
)
from tests.support.versioned_task import VersionedTask
from tests.support.window_task import WindowTask

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


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks(KAFKA_STREAMS_TEST_UTILS) as jvm:
        yield jvm


@pytest.fixture
def compiled_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Spark compile the plans of a test, as those of large micro-batches. The driver has them interpreted.

    Spark also computes nothing while it optimizes a plan.
    """
    excluded, sessions = "spark.sql.optimizer.excludedRules", list[SparkSession]()

    def compile_plans(spark: SparkSession, _: bool) -> None:
        generate_code(spark, whether=True)
        spark.conf.set(excluded, "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation")
        sessions.append(spark)

    monkeypatch.setattr(memory_query, "generate_code", compile_plans)
    yield
    for spark in sessions:
        spark.conf.unset(excluded)


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
        self._inputs[record.topic].pipeInput(self._jvm.org.apache.kafka.streams.test.TestRecord(key, record.value, at))

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
        return {topic: without_repeated_deletions(records) for topic, records in found.items() if records}

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


def compare(
    spark: SparkSession,
    jvm: Any,
    steps: Program,
    records: Sequence[Piped],
    *ordered: str,
    deletes: bool = True,
    settings: Mapping[str, str] | None = None,
) -> int:
    """Both drivers process the records one by one; returns how many records both wrote.

    What a record gives to the topics ``ordered`` has the library's order. Without ``deletes`` a deletion of a key that
    a topic has no value of is not compared. The library has these further settings.
    """
    there: tuple[set[Any], set[Any]] = set(), set()
    pipeline = ours(steps, APPLICATION, 1)
    others = {*pipeline.topology.source_topics, pipeline.topology.dead_letter_topic}
    topics = [spec.name for spec in pipeline.topics() if spec.name not in others]
    written = 0
    with both(spark, jvm, steps, settings) as (driver, library):
        for number, record in enumerate(records):
            pipe(driver, record)
            library.pipe(record)
            mine, its = our_outputs(driver, topics), library.outputs()
            if any(step.word in SESSIONS for step in steps):
                its = last_of_each_key(its)
            elif any(step.word == "process" for step in steps):  # the library logs each put
                its |= last_of_each_key({topic: its[topic] for topic in its if topic.endswith("-changelog")})
            if not deletes:
                mine, its = (without_vain_deletions(each, seen) for each, seen in zip((mine, its), there, strict=True))
            assert by_key(mine) == by_key(its), f"record {number}: {record} in {steps}"
            assert all(mine.get(topic) == its.get(topic) for topic in ordered), f"record {number}: {record} in {steps}"
            written += sum(map(len, its.values()))
    return written


COGROUPED = "stream a; group_by_key; stream b; filter; group_by; @1 cogroup 4;%s cogrouped; to_stream; to totals"


@pytest.mark.parametrize(
    "text",
    [
        "stream a; filter; group_by; count; to_stream; counts; to counts",
        "stream a; each; to each; @1 map_values; select_key; to mapped",
        "stream b; stream a; filter; join_soon 0; to joined; @1 to copied",
        "stream a; python_filter; python_map_values; to mapped; @0 python_map; to keyed; @0 python_flat_map; "
        "group_by_key; greatest",
        COGROUPED % "",
        "stream a; process_freely; to copies; @0 process_values; to values; @3 group_by_key; count; to_stream; counts; "
        "to counts; @1 group_by_key; count; @0 process_for_one; to all",
        "stream a; filter_not; flat_map_values; to values; @0 python_filter_not; python_flat_map_values; group_by_key; "
        "count; @0 split; branch_1; to one; @8 branch_2; to two; @8 branch_x; to three; @8 branch_0; select_key; "
        "group_by_key; count; @0 split_loosely; branch_2; to large",
        "stream_at a; group_by_key; short_windows; count; to_stream; window_counts; to counts; stream_told b; "
        "to copied; @7 group_by_key; sessions; count; @0 map_values; to mapped; stream_told c; stream_at d; "
        "join_soon 14; to joined",
        "stream a,b; filter; to copied; @0 group_by; count; to_stream; counts; to counts; @0 group_by_key; "
        "python_aggregate; to_stream; to last; stream_at c,d; map_values; to mapped",
        "stream a; filter; to passed; stream passed; group_by_key; count; to_stream; counts; to counts; "
        "stream passed; filter_not; to others",
    ],
    ids=[
        *("count", "several of one record", "joins of streams", "functions", "cogroup", "processors without a store"),
        "branches and values",
        *("told timestamps", "one source of several topics", "a topic that is written, and read twice"),
    ],
)
def test_an_output_is_that_of_the_library(spark: SparkSession, jvm: Any, text: str) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(1, steps, 6)) > 0


@pytest.mark.parametrize(
    "text",
    [
        "unstored_table a; table_filter; to_stream; to kept; @0 table_filter_not; table_map_values; to_stream; "
        "to mapped; @0 table_map_values; table_filter; table_filter_not; to_stream; filter; to none",
        "unstored_table a; table_filter_stored; to_stream; to kept; @0 table_filter_not_stored; "
        "table_map_values_stored; table_map_values; to_stream; to mapped; @0 table_map_values; table_filter_stored",
        "stream a; group_by; count; count_values; to_stream; to values; @2 count_values_stored; table_map_values; "
        "to_stream; to twice; @0 group_by_key; aggregate; table_map_values_stored; to_stream; filter; to totals; "
        "@10 greatest; table_map_values; to_stream; to greatest",
        "stream a; to_table; table_filter; to_stream; to kept; @0 filter; select_key; to_table_stored; "
        "table_map_values; to_stream; to others; @6 to_table; table_filter_not_stored; to_stream; group_by; count",
        "stream a; group_by_key; hopping_windows; count; count_values; to_stream; windows; to counts; "
        "stream b; group_by_key; sessions; aggregate; table_map_values; to_stream; session_values; to sessions",
        "unstored_table a; table_filter; to_stream; group_by; count; @1 to_stream; group_by_key; aggregate; "
        "unstored_table d; table_filter; to_stream; unstored_table e; to_stream; merge 10; to merged",
    ],
    ids=["tables", "with stores", "values of aggregates", "streams as tables", "values of windows", "what is behind"],
)
@pytest.mark.parametrize("count", [6, *soak([12])])
def test_an_operation_of_a_table_writes_what_the_library_writes(
    spark: SparkSession, jvm: Any, text: str, count: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(1, steps, count)) > 0


REGROUPED = (
    *(("k", b'{"n": 1, "s": "x"}'), ("k", b'{"n": 4, "s": "x"}'), ("l", b'{"n": 2, "s": "x"}')),
    *(("k", b'{"n": 6, "s": "y"}'), ("l", None), ("l", b'{"n": 5}')),
)
"""Updates of a table: into a group, within it, into another one, out of all, and into none."""

GROUPED = {
    "values": "unstored_table a; group_table; table_reduce; to_stream; to_text reduced; @1 count; to_stream; counts; "
    "to_text counted",
    "a filter": "table a; table_filter_not; table_map_values; group_even; count; to_stream; counts; to_text counted; "
    "@2 to_stream; to mapped",
    "a join": "unstored_table a; unstored_table b; @0 left_tables_stored 1; table_filter; group_table; count; "
    "to_stream; counts; to_text counted; @3 to_stream; to kept",
}


@pytest.mark.parametrize("text", [GROUPED["values"], GROUPED["a filter"]], ids=["values", "a filter"])
def test_a_grouped_table_writes_what_the_library_writes(spark: SparkSession, jvm: Any, text: str) -> None:
    records = [Piped("a", key, value, BEGIN + at) for at, (key, value) in enumerate(REGROUPED)]
    assert compare(spark, jvm, program(text), records) > len(records)


def test_a_group_that_is_deleted_late_has_the_time_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """A deletion has the time of its record, and not the latest time of the group."""
    updates = (b'{"n": 1, "s": "x"}', None, b'{"n": 5, "s": "x"}', b'{"n": 2, "s": "x"}', b'{"n": 5, "s": "y"}', None)
    records = [Piped("a", "k", value, BEGIN - at) for at, value in enumerate(updates)]
    assert compare(spark, jvm, program(GROUPED["values"]), records) > len(records)


@pytest.mark.soak
@pytest.mark.parametrize("text", GROUPED.values(), ids=GROUPED)
def test_tables_are_grouped_as_in_the_library_at_random(spark: SparkSession, jvm: Any, text: str) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, without_other_fields(random_records(1, steps, 30))) > 0


def without_other_fields(records: Sequence[Piped]) -> list[Piped]:
    """A reducer is given the declared fields."""
    return [record for record in records if b"other" not in (record.value or b"")]


def test_the_values_of_a_grouped_table_have_the_library_s_bytes(jvm: Any) -> None:
    library = LibraryDriver(jvm, program("unstored_table a; group_table; count; to_stream; counts; to_text counted"))
    texts = ["x", "x", "y" * 70, "y" * 70, None, "z" * 9_000, "z" * 9_000]
    values = [None if text is None else json.dumps({"n": n, "s": text}).encode() for n, text in enumerate(texts)]
    try:
        for at, value in enumerate(values):
            library.pipe(Piped("a", "k", value, at))
        sent = [value for _, value, _ in library.raw_outputs()[f"{APPLICATION}-x1-repartition"]]
    finally:
        library.close()
    first, second, third, fourth, _, fifth, sixth = values
    pairs = [(first, None), (second, first), (None, second), (third, None), (fourth, third), (None, fourth)]
    assert sent == [written_change(new, old) for new, old in (*pairs, (fifth, None), (sixth, fifth))]


WITH_OLD_VALUES = {
    "a count": "stream a; group_by; count; often; count_values; group_table; table_aggregate; to_stream; "
    "to_text totals",
    "filters": "stream a; group_by_key; greatest; table_filter; to_stream; to kept; @2 table_filter_not_stored; "
    "to_stream; to others",
    "final results": "stream b; group_by_key; strict_windows; on_close; count; often; to_stream; window_counts; "
    "to counts",
}


@pytest.mark.parametrize("text", [WITH_OLD_VALUES["a count"], WITH_OLD_VALUES["filters"]], ids=["a count", "filters"])
def test_an_operation_compares_with_the_value_of_an_aggregate_before(spark: SparkSession, jvm: Any, text: str) -> None:
    values = [b'{"n": 1, "s": "x"}', b'{"n": 0, "s": "x"}', b'{"n": 3, "s": "x"}', b'{"n": 2, "s": "y"}']
    records = [Piped("a", "k", value, BEGIN + at) for at, value in enumerate(values)]
    assert compare(spark, jvm, program(text), records) > len(records)


@pytest.mark.soak
@pytest.mark.parametrize("text", WITH_OLD_VALUES.values(), ids=WITH_OLD_VALUES)
def test_operations_compare_with_old_values_at_random(spark: SparkSession, jvm: Any, text: str) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(1, steps, 30)) > 0


CHAINS = {
    "a class behind a class": "stream a; process; to first; @1 map_values; process; to second",
    "a class behind a count": "stream a; group_by_key; count; to_stream; counts; process; to processed",
    "a class beside a count": "stream a; process; to made; @0 group_by_key; count; to_stream; counts; to counts",
    "an aggregate of a count": "stream a; group_by_key; count; to_stream; counts; to counts; @4 group_by_key; "
    "aggregate; to_stream; to totals",
    "a count of joined records": "table b; stream a; join 0; group_by_key; count; to_stream; counts; to counts; "
    "@2 to joined; @2 process; to processed",
    "a count of two streams that are joined": "stream b; stream a; join_soon 0; group_by_key; count; to_stream; "
    "counts; to counts",
    "sessions beside windows and a count": "stream a; group_by_key; sessions; count; @1 short_windows; count; "
    "@1 count; to_stream; counts; to counts",
    "a class behind a filter beside a count": "stream a; filter; process; to made; @0 group_by_key; count; to_stream; "
    "counts; to counts",
    "a class behind windows": "stream a; group_by_key; short_windows; count; to_stream; plain_counts; process; to made",
    "a class behind final results": "stream a; group_by_key; strict_windows; on_close; count; to_stream; "
    "plain_counts; process; to made",
    "a class beside a join of two streams": "stream b; stream a; join_soon 0; to joined; @2 process; to made; "
    "@1 group_by_key; count; to_stream; counts; to counts",
    "a count of joined tables": "table t; table u; join_tables 0; to_stream; group_by_key; count; to_stream; counts; "
    "to counts",
    "three states": "stream a; group_by_key; python_reduce; to_stream; group_by_key; aggregate; to_stream; process; "
    "to made",
    "a reduction beside a count": "stream a; group_by_key; greatest; to_stream; to best; @1 count; to_stream; counts; "
    "to counts",
    "a reduction of a count": "stream a; group_by_key; count; to_stream; counts; group_by_key; greatest; to_stream; "
    "to best; @4 group_by_key; reduce; to_stream; process; to made",
    "a count joined with a table": "table t; stream a; group_by_key; count; to_stream; counts; left_join 0; to joined; "
    "@6 group_by_key; aggregate; to_stream; to totals",
    "a count between two joins with a table": "table t; stream a; join 0; group_by_key; count; to_stream; counts; "
    "left_join 0; to made",
    "joined tables that are joined with a table": "table t; table u; join_tables 0; to_stream; table v; @3 join 4; "
    "to made; @1 to_stream; join 4; to others",
    "a joined table that a stream is joined with": "table t; table u; left_tables 0; to_stream; to joined; stream a; "
    "left_join 0; to met; @5 join 1; to others",
    "final results beside a class and a count": "stream a; group_by_key; strict_windows; on_close; count; to_stream; "
    "plain_counts; to closed; @1 count; to_stream; counts; to counts; @0 process; to made",
    "a join of a count and a stream": "stream b; stream a; group_by_key; count; to_stream; counts; join_soon 0; "
    "to joined",
    "an aggregate of a count and a stream": "stream a; group_by_key; count; to_stream; counts; group_by_key; stream b; "
    "filter; group_by_key; @5 cogroup 8; cogrouped; to_stream; to totals",
    "what a count and its stream are merged to": "stream a; filter; @0 group_by_key; count; to_stream; counts; "
    "merge 1; group_by_key; aggregate; to_stream; to totals; @6 process; to made",
}
"""Several states in one sub-topology."""

READS = {
    "a table": "table t; stream a; read_table 0; to read",
    "a count": "stream a; group_by_key; count; to_stream; counts; to counts; @0 read_table 2; to read",
    "a table and a count": "table t; stream a; group_by_key; count; @1 read_table 0; to rows; @1 read_table 3; to read",
}
"""Processors that read the store of another operation. One that is given the updates of the same store is not compared:
the library calls it while it flushes its record cache, and the twin's read then waits for the end of the flush.
"""


@pytest.mark.parametrize("text", READS.values(), ids=READS)
def test_a_processor_reads_what_another_operation_has_stored(spark: SparkSession, jvm: Any, text: str) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(3, steps, 12)) > 0


MERGES = {
    "a class": "stream a; process; merge 0; to merged; @0 filter; @1 merge 4; to others",
    "a class without a store": "stream a; process_freely; merge 0; to merged; @0 filter; @1 merge 4; to others",
    "a count": "stream a; group_by_key; count; to_stream; counts; merge 0; to merged",
    "final results": "stream a; group_by_key; strict_windows; on_close; count; to_stream; plain_counts; merge 0; "
    "to merged",
    "a function": "stream a; group_by_key; python_reduce; to_stream; merge 0; to merged",
    "a count and a class": "stream a; group_by_key; count; to_stream; counts; @0 process; merge 4; merge 0; to merged",
    "what is made of a record": "stream a; python_flat_map_values; filter; @1 process; @2 merge 3; to merged",
    "a join of two streams": "stream b; stream a; join_soon 0; merge 0; to merged; @1 merge 3; to all",
    "a join with a table": "table t; stream a; join 0; merge 1; to merged",
    "joined tables": "table t; table u; join_tables 0; to_stream; @0 to_stream; merge 3; to merged",
    "another topic": "stream b; stream a; group_by_key; count; to_stream; counts; merge 0; to merged",
}
"""Results that are merged with a stream of their sub-topology, which they are made of."""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(text, count, id=name, marks=marks)
        for number, (name, text) in enumerate(MERGES.items())
        for count, marks in [(5, ()) if number < 3 else (12, pytest.mark.soak)]
    ],
)
def test_results_and_the_stream_that_they_are_merged_with_have_the_order_of_the_library(
    spark: SparkSession, jvm: Any, text: str, count: int
) -> None:
    steps = program(text)
    assert len(ours(steps, APPLICATION, 1).topology.subtopologies) == 1
    assert compare(spark, jvm, steps, without_empty_deletions(steps, random_records(1, steps, count))) > 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(text, count, id=name, marks=marks)
        for number, (name, text) in enumerate(CHAINS.items())
        for count, marks in [(5, ()) if number < 3 else (12, pytest.mark.soak)]
    ],
)
def test_several_states_of_one_sub_topology_are_those_of_the_library(
    spark: SparkSession, jvm: Any, text: str, count: int
) -> None:
    steps = program(text)
    pipeline = ours(steps, APPLICATION, 1)
    assert len(pipeline.topology.subtopologies) == 1
    assert compare(spark, jvm, steps, without_empty_deletions(steps, random_records(1, steps, count))) > 0


JOINS_WITH_RESULTS = {
    "its own count": "stream a; filter; @0 group_by_key; count; @0 join_counts 3; to joined; @1 join_counts 3; to some",
    "a stream as a table": "stream b; to_table; stream a; left_join 1; to joined; @2 join 1; group_by_key; count; "
    "to_stream; counts; to counts",
    "an aggregate of another topic": "stream b; group_by_key; aggregate; stream a; left_join 2; to joined; "
    "@3 join 2; to inner",
    "a stream as a table that it is joined with": "stream a; filter; to_table_stored; @0 left_join 2; to joined; "
    "@2 to_stream; join 2; to itself",
    "a filter with a store": "stream b; group_by_key; count; often_stored; stream a; left_join_counts 3; to joined; "
    "@3 to_stream; counts; to often",
    "what functions aggregate": "stream a; group_by_key; python_aggregate; @1 python_reduce; @0 join 2; left_join 3; "
    "to joined",
    "what a class has made": "stream a; process; group_by_key; greatest; @1 join 3; to joined",
    "an aggregate behind an aggregate": "stream a; group_by_key; count; to_stream; counts; @4 group_by_key; "
    "aggregate; @0 left_join 6; to joined",
    "updates of an aggregate": "stream a; group_by_key; count; to_stream; counts; @1 aggregate; @4 left_join 5; "
    "to joined; @6 process; to made",
    "a table before it": "table t; stream a; left_join 0; group_by_key; count; @2 left_join_counts 4; to joined",
    "a table behind it": "table t; stream a; group_by_key; aggregate; @1 left_join 3; left_join 0; to joined",
    "joined tables": "table t; table u; join_tables_stored 0; stream a; left_join 2; to joined",
    "behind repartition topics": "stream a; group_by; count; @0 select_key; join_counts 2; to joined",
    "several streams in one aggregate": "stream a; group_by_key; stream b; group_by_key; @1 cogroup 3; cogrouped; "
    "@0 left_join 5; to joined",
}
"""Streams that are joined with tables that are results."""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(text, count, id=name, marks=marks)
        for number, (name, text) in enumerate(JOINS_WITH_RESULTS.items())
        for count, marks in [(6, ()) if number < 3 else (15, pytest.mark.soak)]
    ],
)
def test_a_stream_meets_the_rows_of_a_result_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, count: int
) -> None:
    steps = program(text)
    records = without_empty_deletions(steps, random_records(1, steps, count))
    assert compare(spark, jvm, steps, records, deletes=False) > 0


@pytest.mark.parametrize(
    "name",
    [
        "its own count",
        *soak(
            [
                "what functions aggregate",
                "an aggregate behind an aggregate",
                "a stream as a table that it is joined with",
            ]
        ),
    ],
)
@pytest.mark.parametrize("seed", seeds(1, 5))
def test_a_record_of_a_micro_batch_meets_what_the_records_before_it_have_made(
    spark: SparkSession, jvm: Any, name: str, seed: int
) -> None:
    """The order of the topic decides, although some records are late. The library looks up in its record cache."""
    steps = program(JOINS_WITH_RESULTS[name])
    sinks = {step.topic for step in steps if step.word == "to"}
    with both(spark, jvm, steps) as (driver, library):
        for of_batch in range(3):
            records = [each for each in late_records(10 * seed + of_batch, steps, 12) if each.key is not None]
            with driver.micro_batch():
                for record in records:
                    pipe(driver, record)
            for record in records:
                library.pipe(record)
            its = {topic: made for topic, made in library.outputs().items() if topic in sinks}
            assert by_key(our_outputs(driver, sorted(sinks))) == by_key(its)


JOINED_RESULTS = {
    "two aggregates of a stream": "stream a; group_by_key; aggregate; @1 greatest; @2 join_tables 3; to_stream; "
    "to joined; @5 group_by_key; count; to_stream; counts; to counts",
    "an aggregate and a table": "table t; stream a; group_by_key; aggregate; left_tables_stored 0; to_stream; "
    "to joined; @0 to_stream; to copied; @0 outer_tables 3; to_stream; to all",
    "streams as tables": "stream a; to_table; stream b; to_table_stored; @1 outer_tables 3; to_stream; to joined",
    "a filter with a store": "stream a; group_by_key; reduce; table_filter_stored; table t; @3 left_tables 4; "
    "to_stream; to joined; @2 to_stream; to latest",
    "joined results": "stream a; group_by_key; aggregate; stream b; to_table; table t; @2 left_tables 4; "
    "left_tables_stored 5; to_stream; to joined; @6 to_stream; to first",
    "a join of a stored result of a join": "stream a; group_by_key; aggregate; table t; @2 left_tables 3; "
    "table_filter_stored; table u; @5 join_tables 6; to_stream; to joined",
    "what functions aggregate": "stream a; group_by_key; python_aggregate; @1 python_reduce; @2 left_tables 3; "
    "to_stream; to joined; @0 left_join 3; to met",
    "a group of a table": "unstored_table t; group_table; table_reduce; stream a; to_table; @2 left_tables 4; "
    "to_stream; to joined",
}
"""Joins of tables of which some are results."""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(text, count, id=name, marks=marks)
        for number, (name, text) in enumerate(JOINED_RESULTS.items())
        for count, marks in [(6, ()) if number < 3 else (15, pytest.mark.soak)]
    ],
)
def test_results_are_joined_as_tables_of_the_library(spark: SparkSession, jvm: Any, text: str, count: int) -> None:
    steps = program(text)
    records = without_empty_deletions(steps, random_records(2, steps, count))
    assert compare(spark, jvm, steps, records, deletes=False) > 0


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


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_states_at_random_in_one_sub_topology_are_those_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    steps = drawn_chain(seed)
    assert len(ours(steps, APPLICATION, 1).topology.subtopologies) == 1
    compare(spark, jvm, steps, random_records(seed, steps, 12))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_states_at_random_that_are_merged_with_their_streams_are_those_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    """Of the records with a field that is not declared there are none: where a merge has results, ours drops it."""
    steps = drawn_merges(seed)
    assert len(ours(steps, APPLICATION, 1).topology.subtopologies) == 1
    records = [record for record in random_records(seed, steps, 12) if b"other" not in (record.value or b"")]
    compare(spark, jvm, steps, records)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000))
def test_a_random_topology_writes_what_the_library_writes(spark: SparkSession, jvm: Any, seed: int) -> None:
    steps = drawn(seed)
    compare(spark, jvm, steps, without_empty_deletions(steps, random_records(seed, steps, 25)))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize(
    "text",
    [
        "stream b; stream a; join_soon 0; to joined; @0 to copied",
        "stream a; join_stream 0; to joined",
        "stream b; filter; stream a; each; repartition; join_soon 1; to joined",
        "stream b; stream a; map_values; left_join_soon 0; to joined; @1 to copied",
        "stream b; filter; stream a; repartition; outer_join_soon 1; to joined",
    ],
)
def test_two_streams_meet_as_in_the_library(spark: SparkSession, jvm: Any, text: str, seed: int) -> None:
    """With late, early and equal timestamps, also beyond the grace, and with nulls as keys and values."""
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 60)) > 0


@pytest.mark.parametrize("seed", seeds(1, 100))
@pytest.mark.parametrize("word", ["left_join_soon", "outer_join_soon"])
def test_what_waits_for_a_match_has_the_bytes_and_the_moments_of_the_library(jvm: Any, word: str, seed: int) -> None:
    """Record by record, with the order of all that one record gives. The state alone, without Spark."""
    steps = program(f"stream b; stream a; {word} 0; to joined")
    task = Task(OuterJoinState(FIELDS, StringType(), JOINED_WITHIN[word], both=word == "outer_join_soon"))
    library, passed = LibraryDriver(jvm, steps), 0
    try:
        for record in late_records(seed, steps, 60):
            if record.value == b"no JSON":
                continue
            library.pipe(record)
            its = library.raw_outputs()
            n = 0 if record.value is None else json.loads(record.value)["n"]
            source = "ab".index(record.topic)
            arrived = ArrivedForJoin(source, record.key, record.at, n, record.value is not None, record.value)
            made = task.process([arrived])
            joined = [(key, json.loads(value or b""), at) for key, value, at in its.get("joined", [])]
            shared = [row for topic, rows in its.items() if "-OUTERSHARED-" in topic for row in rows]
            assert [joined_record(row) for row in made if row.joined] == joined
            assert [(row.shared_key, row.shared_value, row.at) for row in made if row.shared_key] == shared
            passed += len(joined)
    finally:
        library.close()
    assert passed > 10


@pytest.mark.parametrize("word", ["left_join_soon", "outer_join_soon"])
def test_a_record_that_was_passed_without_a_match_may_still_find_one(jvm: Any, word: str) -> None:
    """KAFKA-19536. The window of the record at 0 s is over at 70 s. The match at 5 s comes after the record at 71 s."""
    steps = program(f"stream b; stream a; {word} 0; to joined")
    task = Task(OuterJoinState(FIELDS, StringType(), JOINED_WITHIN[word], both=word == "outer_join_soon"))
    library, joined = LibraryDriver(jvm, steps), []
    try:
        for topic, key, second, n in (("a", "k", 0, 1), ("b", "l", 71, 2), ("b", "k", 5, 3), ("b", "k", 100, 4)):
            value, at = b'{"n": %d, "s": "x"}' % n, BEGIN + 1000 * second
            library.pipe(Piped(topic, key, value, at))
            its = [(key, json.loads(value or b""), at) for key, value, at in library.raw_outputs().get("joined", [])]
            made = task.process([ArrivedForJoin("ab".index(topic), key, at, n, True, value)])
            assert [joined_record(row) for row in made if row.joined] == its
            joined += [(key, value["n"]) for key, value, _ in its]
    finally:
        library.close()
    assert joined[:2] == [(b"k", 10), (b"k", 13)], "without a match, and then with one"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize(
    "text",
    [
        "stream a; process; to processed; @0 to copied",
        "stream a; map_values; each; repartition; process; map_values; to processed",
        "stream a; process; repartition; map_values; to processed",
        "stream a; stream b; merge 0; process; to processed",
    ],
)
def test_a_class_with_state_does_what_a_processor_of_the_library_does(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """With a punctuator in stream time, deletions, late, early and equal timestamps, and nulls as keys and values."""
    steps, chosen = program(text), random.Random(seed)
    records = late_records(seed, steps, 60)
    deleting = [record._replace(value=b'{"n": 1}') if chosen.random() < 0.15 else record for record in records]
    assert compare(spark, jvm, steps, deleting) > 0


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("stream a; group_by_key; python_reduce; to_stream; to totals; stream b; map_values; group_by; "
         "python_aggregate; to_stream; to sums", 1),
        *(pytest.param(text, seed, marks=pytest.mark.soak) for seed in range(2, 40) for text in (
            "stream a; group_by_key; python_aggregate; to_stream; to totals",
            "stream a; group_by; python_reduce; to_stream; map_values; select_key; group_by_key; count; to_stream; "
            "counts; to totals",
            "stream a; stream b; merge 0; group_by; python_aggregate; to_stream; filter; to totals; @5 to all",
        )),
    ],
)  # fmt: skip
def test_functions_aggregate_as_those_of_the_library_do(spark: SparkSession, jvm: Any, text: str, seed: int) -> None:
    """With deletions of keys that there are and are not, late records, and nulls as keys and values."""
    steps = program(text)
    records = late_records(seed, steps, 20 if seed == 1 else 60)
    assert compare(spark, jvm, steps, records) > len(records) // 3


IN_WINDOWS = "stream a; group_by_key; %s; %s; to_stream; windows; to w"
IN_SESSIONS = "stream a; group_by_key; %s; %s; to_stream; to_sessions totals; @4 session_values; to by-session"


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        (IN_WINDOWS % ("short_hops", "python_reduce"), 1),
        (IN_SESSIONS % ("short_sessions", "python_aggregate"), 1),
        *(pytest.param(text % (window, word), seed, marks=pytest.mark.soak)
          for seed in range(2, 20) for word in ("python_reduce", "python_aggregate")
          for text, window in ((IN_WINDOWS, "short_windows"), (IN_WINDOWS, "short_hops"),
                               (IN_SESSIONS, "short_sessions"), (IN_SESSIONS, "sessions"))),
    ],
)  # fmt: skip
def test_functions_aggregate_windows_as_those_of_the_library_do(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """With deletions of windows that there are and are not, late records, and nulls as keys and values.

    Of a window that there is not, the library deletes nothing in its cache, and without it writes the deletion.
    """
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 20 if seed == 1 else 60), deletes=False) > 5


FUNCTIONS_COGROUPED = (
    "stream a; group_by_key; stream b; filter; group_by; @1 python_cogroup 4;%s python_cogrouped; to_stream; to totals"
)


@pytest.mark.parametrize(
    ("windows", "seed"),
    [
        ("", 3),
        *(pytest.param(windows, seed, marks=pytest.mark.soak) for seed in range(4, 14)
          for windows in ("", " sessions;", " hopping_windows;")),
    ],
)  # fmt: skip
def test_functions_of_several_streams_aggregate_as_those_of_the_library_do(
    spark: SparkSession, jvm: Any, windows: str, seed: int
) -> None:
    steps = program(FUNCTIONS_COGROUPED % windows)
    if "sessions" in windows:
        steps = program((FUNCTIONS_COGROUPED % windows).replace("to totals", "to_sessions totals"))
    assert compare(spark, jvm, steps, random_records(seed, steps, 16 if seed == 3 else 50), deletes=False) > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("word", ["python_reduce", "python_aggregate"])
@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("stream a; group_by_key; %s; on_close; %s; to_stream; windows; to w", "short_hops"),
        ("stream a; group_by_key; %s; on_close; %s; to_stream; windows; to w", "strict_windows"),
        ("stream a; group_by_key; %s; on_close; %s; to_stream; session_values; to w", "brief_sessions"),
    ],
)
def test_final_results_of_functions_are_those_of_the_library(
    spark: SparkSession, jvm: Any, text: str, window: str, word: str, seed: int
) -> None:
    steps = program(text % (window, word))
    records = within_a_segment(seed) if window in SESSIONS else late_records(seed, steps, 40)
    assert compare(spark, jvm, steps, records, "w", deletes=False) > 5


@pytest.mark.parametrize("seed", seeds(3, 100))
def test_the_store_of_a_class_has_the_bytes_of_the_library(jvm: Any, seed: int) -> None:
    """And its results their order. The state alone, without Spark. The library logs each put, and here the last one."""
    chosen, library = random.Random(seed), LibraryDriver(jvm, program("stream a; process; to processed"))
    task = ProcessTask(Gaps, GAPS_STATE, VALUE.schema, timer="due", value=VALUE)
    written = 0
    try:
        for offset, record in enumerate(late_records(seed, program("stream a"), 60)):
            if record.value == b"no JSON":
                continue
            value = b'{"n": 1}' if chosen.random() < 0.15 else record.value
            library.pipe(record._replace(value=value))
            its = library.raw_outputs()
            task.changes.clear()
            made = task.process([Arrived(record.key, record.at, None, offset, value)])
            results = [(one.key, one.value, one.at) for one in made if one.reason is None]
            parsed = [(key, data and json.loads(data), at) for key, data, at in its.pop("processed", [])]
            assert [(key and key.encode(), value, at) for key, value, at in results] == parsed
            changed = last_of_each_key(its).values()
            assert sorted(task.changes) == sorted(change for topic in changed for change in topic)
            written += len(parsed)
    finally:
        library.close()
    assert written > 10


SESSIONS_IN_ALL_WAYS = (
    "stream a; group_by_key; short_sessions; aggregate; to_stream; to_sessions totals; @4 session_values; to by-session"
)


def test_sessions_are_those_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """Two become one, twice; a record is within one; times are equal; and times are on the edge of gap and grace."""
    steps = program(SESSIONS_IN_ALL_WAYS)
    times = [
        ("k", 0),
        ("k", 60),
        ("k", 30),
        ("k", 45),
        ("l", 100),
        ("k", 60),
        ("k", 59),
        ("l", 100),
        ("l", 131),
        ("l", 115),
    ]
    records = [Piped("a", key, b'{"n": %d, "s": "x"}' % second, BEGIN + 1000 * second) for key, second in times]
    records[3] = records[3]._replace(value=None)
    assert compare(spark, jvm, steps, records) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize(
    "text",
    [
        SESSIONS_IN_ALL_WAYS,
        "stream a; filter; group_by; sessions; aggregate; to_stream; to_sessions totals",
        "stream a; each; repartition; group_by_key; short_sessions; count; to_stream; session_counts; to w",
        "stream a; stream b; merge 0; group_by_key; short_sessions; aggregate; to_stream; to_sessions totals",
    ],
)
def test_sessions_of_random_records_are_those_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """With late, early and equal timestamps, also beyond the grace, and with nulls as keys and values."""
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 60)) > 0


# -- windows that overlap


@pytest.mark.parametrize(
    ("size", "advance"),
    [
        ("2 minutes", "1 minute"),
        ("1 minute", "20 seconds"),
        ("7 seconds", "3 seconds"),
        ("20000 milliseconds", "1 milliseconds"),
    ],
)
def test_a_time_is_in_the_windows_of_the_library(spark: SparkSession, jvm: Any, size: str, advance: str) -> None:
    """No window begins before the epoch."""
    windows, chosen = TimeWindows(size, advance=advance), random.Random(1)
    ends = [0, 1, windows.advance_ms - 1, windows.advance_ms, windows.size_ms - 1, windows.size_ms, windows.size_ms + 1]
    times = sorted({*ends, BEGIN, BEGIN + 1, *(BEGIN + chosen.randrange(10**9) for _ in range(3))})
    millis = jvm.java.time.Duration.ofMillis
    theirs = jvm.org.apache.kafka.streams.kstream.TimeWindows.ofSizeWithNoGrace(millis(windows.size_ms))
    theirs = theirs.advanceBy(millis(windows.advance_ms))
    rows = spark.createDataFrame([(at,) for at in times], "at long").select(
        "at", F.timestamp_millis("at").alias("time")
    )
    bounds = [F.unix_millis(f"window.{name}") for name in ("start", "end")]
    made = with_windows(rows, windows, "time").groupBy("at").agg(F.sort_array(F.collect_list(F.array(*bounds))))
    assert dict(map(tuple, made.collect())) == {
        at: [[start, start + windows.size_ms] for start in starts_of(theirs, at)] for at in times
    }


def test_a_time_is_in_the_hopping_windows_of_a_subclass_of_the_library(spark: SparkSession, jvm: Any) -> None:
    windows, chosen = TimeWindows("2 minutes", advance="50 seconds", offset="7 seconds"), random.Random(1)
    times = [7000, 7001, 57_000, 126_999, 127_000, *(BEGIN + chosen.randrange(10**9) for _ in range(9))]
    theirs = own_windows(jvm, windows)
    rows = spark.createDataFrame([(at,) for at in (0, 6999, *times)], "at long")
    made = with_windows(rows.select("at", F.timestamp_millis("at").alias("time")), windows, "time")
    starts = made.groupBy("at").agg(F.sort_array(F.collect_list(F.unix_millis("window.start"))))
    expected = {at: starts_of(theirs, at) for at in times}
    assert dict(map(tuple, starts.collect())) == expected == {at: [*windows.starts_of(at)] for at in times}


def starts_of(windows: Any, at: int) -> list[int]:
    """The starts of the library's windows, in one text: one call of Py4j for each would take long."""
    text = str(windows.windowsFor(at).keySet().toString())
    return [int(start) for start in text.strip("[]").split(", ")]


ZONES = [
    CalendarWindows("1 day", time_zone="Europe/Berlin"),
    CalendarWindows("1 day", time_zone="America/Havana"),  # the clock is set from 0:00 to 1:00, and from 1:00 to 0:00
    CalendarWindows("1 day", time_zone="Pacific/Apia", offset="6 hours"),  # a day was left out
    CalendarWindows("1 week", time_zone="America/Goose_Bay"),  # the clock was set back across midnight
    CalendarWindows("1 month", time_zone="America/Sao_Paulo"),
    TimeWindows("1 hour", offset="15 minutes"),
]


@pytest.mark.parametrize(
    "windows",
    [
        *ZONES,
        *soak(
            CalendarWindows(size, time_zone=zone, offset=offset)
            for size in CALENDAR_UNITS
            for zone in ("Europe/Berlin", "America/Goose_Bay", "Australia/Lord_Howe", "Antarctica/Casey")
            for offset in (None, "150 minutes")
        ),
    ],
    ids=str,
)
def test_a_time_is_in_the_window_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, windows: TimeWindows
) -> None:
    """Around all moments at which the clocks of the zone are set, up to the year 2038, and at the first moments."""
    zone = ZoneInfo(windows.time_zone if isinstance(windows, CalendarWindows) else "UTC")
    hour, chosen = 3_600_000, random.Random(1)
    around = [n * hour for n in hours_of_changes(zone)]
    around = chosen.sample(around, min(len(around), 12)) + [chosen.randrange(2**41) for _ in range(5)]
    steps = (-25 * hour, -hour, -1, 0, 1, 60_000, hour // 2, hour, 2 * hour, 3 * hour, 25 * hour)
    times = sorted({0, 1, *(at + step for at in around for step in steps)})
    theirs = own_windows(jvm, windows)
    rows = spark.createDataFrame([(at,) for at in times], "at long")
    bounds = rows.select("at", F.array(*window_bounds(windows, F.col("at"))), window_end(windows, F.col("at")))
    made = {row[0]: (*row[1], row[2]) for row in bounds.collect()}
    assert {at: list(found[:2]) for at, found in made.items()} == {at: bounds_of(theirs, at) for at in times}
    starts = spark.createDataFrame([(start, end) for start, end, _ in made.values()], "start long, end long")
    assert starts.where(window_end(windows, F.col("start")) != F.col("end")).count() == 0, "it is told by its start"


def hours_of_changes(zone: ZoneInfo) -> list[int]:
    """The hours since the epoch at which, or in the hour before which, the clocks of a zone are set."""

    def offset(hour: int) -> timedelta | None:
        return datetime.fromtimestamp(hour * 3600, UTC).astimezone(zone).utcoffset()

    days = [day for day in range(68 * 365) if offset(24 * day) != offset(24 * day + 24)]
    return [n for day in days for n in range(24 * day + 1, 24 * day + 25) if offset(n) != offset(n - 1)]


def bounds_of(windows: Any, at: int) -> list[int]:
    """The start and the end of the library's only window, in one text: to Py4j a Long is no key of the map."""
    return [int(number) for number in re.findall(r"Ms=(\d+)", str(windows.windowsFor(at).toString()))]


def across_the_changes_of_clocks(seed: int) -> list[Piped]:
    """Records of some keys around the moments at which Berlin sets its clocks, in the order of time."""
    chosen, hour = random.Random(seed), 3_600_000
    changes = [datetime(2026, month, day, 1, tzinfo=UTC) for month, day in ((3, 29), (10, 25))]
    times = sorted(ms(at) + chosen.randrange(-2 * hour, 24 * hour) for at in changes for _ in range(5))
    # midnight in Berlin before, between and behind
    times += [ms(datetime(2026, 10, 25, 22, 59, 59, tzinfo=UTC)), ms(datetime(2026, 10, 25, 23, tzinfo=UTC))]
    return [Piped("a", chosen.choice("kl"), b'{"n": %d, "s": "x"}' % n, at) for n, at in enumerate(sorted(times))]


def test_a_key_with_a_window_of_its_own_has_the_bytes_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """In a sink, in a repartition topic, and in a store."""
    steps = program(
        "stream a; group_by_key; windowed_by; aggregate; to_stream; by_window; to_windowed w; @5 group_windowed; "
        "count; @7 greatest; to_stream; to_windowed best"
    )
    assert compare(spark, jvm, steps, random_records(1, steps, 8)) > 10


DAYS = {
    "days": "stream a; group_by_key; berlin_days; count; to_stream; window_counts; to counts",
    "weeks": "stream a; group_by_key; utc_weeks; aggregate; to_stream; windows; to totals",
    "days beside other state": "stream a; group_by_key; berlin_days; count; to_stream; plain_counts; process; to made",
}


@pytest.mark.parametrize("text", [DAYS["days"], *soak(text for name, text in DAYS.items() if name != "days")])
def test_days_of_a_time_zone_are_those_of_a_subclass_of_the_library(spark: SparkSession, jvm: Any, text: str) -> None:
    assert compare(spark, jvm, program(text), across_the_changes_of_clocks(1)) > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_windows_with_an_offset_are_those_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    for text in ("count; to_stream; window_counts; to counts", "count; to_stream; plain_counts; process; to made"):
        steps = program(f"stream a; group_by_key; later_windows; {text}")
        assert compare(spark, jvm, steps, sorted(random_records(seed, steps, 12), key=attrgetter("at"))) > 0


CUSTOM = {
    "custom windows": "stream a; group_by_key; shifts; count; to_stream; window_counts; to counts; "
    "@1 shifts; aggregate; to_stream; windows; to totals",
    "hopping windows with an offset": "stream a; group_by_key; later_hops; count; to_stream; window_counts; to counts",
    "by functions": "stream a; group_by_key; shifts; python_aggregate; to_stream; windows; to w",
    "beside other state": "stream a; group_by_key; shifts; count; to_stream; plain_counts; process; to made",
}


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        (CUSTOM["custom windows"], 1),
        (CUSTOM["hopping windows with an offset"], 1),
        *(pytest.param(text, seed, marks=pytest.mark.soak) for text in CUSTOM.values() for seed in range(2, 5)),
    ],
)
def test_custom_windows_are_those_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """With late records, and with nulls as keys and values."""
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 12), settings=UNCACHED) > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_windows_forget_what_the_grace_has_passed_as_tumbling_windows_do(spark: SparkSession, seed: int) -> None:
    """Of windows that overlap, by the watermark of Spark."""
    rows = {}
    for advance in (None, "20 seconds"):
        topology = Topology("forgetting")
        grouped = topology.stream("a", value=VALUE).group_by_key()
        grouped.windowed_by(TimeWindows("1 minute", grace="10 seconds", advance=advance)).count(store="counts")
        with TopologyTestDriver(Pipeline("forgetting", topology, "", {"a": 1}), spark=spark) as driver:
            for second in (0, 300, 600, 0):
                driver.pipe("a", {"n": seed}, key="k", at=BEGIN + 1000 * second)
            rows[advance] = {key.start.timestamp() - BEGIN / 1000: n for key, n in driver.store("counts").items()}
    assert rows[None][0] == rows["20 seconds"][0] == 1, "the record at the end is late for the window of the first one"


# -- the order of the updates of one micro-batch

UPDATES = [
    "stream a; group_by_key; %s; count; to_stream; plain_counts; to w",
    "stream a; group_by_key; %s; count; to_stream; one_key_counts; to w",
    "stream a; select_key; repartition; group_by_key; %s; count; to_stream; one_key_counts; to w",
    "stream a; stream b; merge 0; group_by_key; %s; count; to_stream; one_key_counts; to w",
]
IN_ONE_MICRO_BATCH = [
    *(
        text % windows
        for text in UPDATES
        for windows in ("hopping_windows", "short_hops", "windowed_by")
        if windows != "short_hops" or "merge" not in text
    ),
    "stream a; group_by_key; count; to_stream; key_counts; to w",
    "stream a; group_by_key; short_sessions; count; to_stream; plain_sessions; to w",
]


@pytest.mark.parametrize(
    "text", [IN_ONE_MICRO_BATCH[0], IN_ONE_MICRO_BATCH[-2], IN_ONE_MICRO_BATCH[-1], *soak(IN_ONE_MICRO_BATCH[1:-2])]
)
@pytest.mark.parametrize("seed", seeds(2, 5))
def test_the_updates_of_a_micro_batch_have_the_order_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """Two micro-batches. Of each the last update of each window, in the order in which the library writes them.

    So the library's record cache passes them. Its key is that of the store, which the text of each value names.
    """
    steps, chosen, now = program(text), random.Random(seed), BEGIN
    topics = [topic for step in steps if step.word == "stream" for topic in step.topics]
    with both(spark, jvm, steps) as (driver, library):
        for first in (0, 12):
            records = []
            for number in range(first, first + 12):
                now += chosen.choice([0, 1, 500, 10_000])
                late = 0 if len(topics) > 1 else chosen.choice([0, 0, 1, 8_000])
                value = b'{"n": 1, "s": "%b"}' % chosen.choice([b"x", b"y"])
                # The times of several topics differ: of equal ones the library takes any first.
                records.append(Piped(chosen.choice(topics), chosen.choice("kl"), value, now + number - late))
            with driver.micro_batch():
                for record in records:
                    pipe(driver, record)
            for record in records:
                library.pipe(record)
            its = library.outputs()["w"]
            last = last_of_each(its, lambda record: (record[0], (record[1] or {}).get("s")))
            mine = our_outputs(driver, ["w"])["w"]
            deleted = [record for record in mine if "n" not in record[1]]  # none of sessions that were not there before
            assert [record for record in mine if record not in deleted] == [
                record for record in last if "n" in record[1]
            ]
            assert deleted == [record for record in last if record in deleted]


# -- aggregates of several streams

COGROUPED_SESSIONS = (COGROUPED % " sessions;").replace("to totals", "to_sessions totals")


def test_sliding_windows_of_two_streams_are_those_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """In the order of time: the library takes a record for late by those of its own stream alone."""
    steps = program("stream a; group_by_key; stream b; map; group_by; @1 cogroup 4; sliding_windows; cogrouped")
    assert compare(spark, jvm, steps, sorted(random_records(3, steps, 12), key=attrgetter("at"))) > 0


def test_sessions_of_two_streams_are_those_of_the_library(spark: SparkSession, jvm: Any) -> None:
    steps = program(COGROUPED_SESSIONS)
    assert compare(spark, jvm, steps, random_records(3, steps, 12)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "text",
    [
        COGROUPED % "",
        COGROUPED_SESSIONS,
        "stream a; group_by_key; stream b; map; group_by; @1 cogroup 4; hopping_windows; cogrouped",
        "stream a; filter; group_by; stream b; map_values; repartition; group_by; @2 cogroup 6; cogrouped",
        "table a; to_stream; group_by_key; stream b; group_by_key; @2 cogroup 4; cogrouped; to_stream; to totals; "
        "@4 count; to_stream; counts; to counts",
    ],
)
def test_what_several_streams_are_folded_into_is_that_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(seed, steps, 60)) > 0


# -- final results

FINAL = "stream a; group_by_key; %s; on_close; aggregate; to_stream; windows; to w"
FINAL_SESSIONS = "stream a; group_by_key; %s; on_close; aggregate; to_stream; session_values; to w"


@pytest.mark.soak
def test_final_results_are_those_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """With late, early and equal timestamps, also beyond the grace, and with nulls as keys and values."""
    steps = program(FINAL % "short_hops")
    assert compare(spark, jvm, steps, late_records(2, steps, 14), "w") > 20
    steps = program(FINAL_SESSIONS % "brief_sessions")
    assert compare(spark, jvm, steps, within_a_segment(1)[:10], "w") > 10


SUPPRESSED_SESSIONS = "stream a; group_by_key; %s; aggregate; suppress; to_stream; session_values; to w"
SUPPRESSED = {
    "counted": "stream a; group_by_key; %s; count; suppress; to_stream; window_counts; to w",
    "aggregated": "stream a; group_by_key; %s; aggregate; suppress; to_stream; windows; to w",
    "before other state": "stream a; group_by_key; %s; count; suppress; to_stream; plain_counts; process; to w",
}


@pytest.mark.parametrize(
    ("text", "word", "seed"),
    [
        (SUPPRESSED["counted"], "short_hops", 1),
        (SUPPRESSED_SESSIONS, "brief_sessions", 1),
        pytest.param(SUPPRESSED["before other state"], "strict_windows", 2, marks=pytest.mark.soak),
        *(
            pytest.param(text, word, seed, marks=pytest.mark.soak)
            for text in SUPPRESSED.values()
            for word in ("strict_windows", "short_windows", "short_hops", "later_windows", "berlin_days", "shifts")
            for seed in range(3, 8)
        ),
        pytest.param(SUPPRESSED["counted"], "sliding_windows", 2, marks=pytest.mark.soak),
        *(pytest.param(SUPPRESSED_SESSIONS, "brief_sessions", seed, marks=pytest.mark.soak) for seed in range(2, 8)),
    ],
)
def test_what_is_suppressed_until_a_window_closes_is_passed_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, word: str, seed: int
) -> None:
    """With late records. Its buffer has no changelog here, so the library has none, either."""
    steps = program(text % word)
    records = across_the_changes_of_clocks(seed) if word == "berlin_days" else late_records(seed, steps, 12)
    if word in SESSIONS:
        records = within_a_segment(seed)[:10]
    assert compare(spark, jvm, steps, records, "w", settings=UNCACHED) > 5


@pytest.mark.parametrize("seed", seeds(1, 200))
@pytest.mark.parametrize("word", ["brief_sessions", "sliding_windows", *soak(["short_sessions", "short_hops"])])
def test_suppressed_windows_are_passed_at_the_moments_of_the_library_and_in_its_order(
    jvm: Any, word: str, seed: int
) -> None:
    """Record by record, some of them at the last millisecond of a window. The state alone, without Spark."""
    if word in SESSIONS:
        records = edges_of_sessions(seed, SESSIONS[word])
    elif word == "sliding_windows":
        records = edges_of_sliding_windows(seed)
    else:
        records = late_records(seed, program(FINAL % word), 40)
    assert compare_states(jvm, word, records, suppressed=True) > 10


def updates_of_table(seed: int, count: int) -> list[Piped]:
    """Updates of few keys, some of them late, and some of them deletions."""
    chosen, now, records = random.Random(seed), BEGIN, list[Piped]()
    for number in range(count):
        now += chosen.choice([0, 0, 1, 1000, 5000, 20_000, 21_000])
        at = now - chosen.choice([0, 0, 0, 1, 5000, 20_000, 40_000])
        value = chosen.choices([b'{"n": %d, "s": "x"}' % number, None], [4, 1])[0]
        records.append(Piped("t", chosen.choice(KEYS[:3]), value, at))
    return records


@pytest.mark.parametrize("seed", seeds(2, 200))
@pytest.mark.parametrize(("word", "most"), [("suppress_for", None), ("suppress_two", 2)])
def test_the_buffer_of_suppress_has_the_bytes_and_the_moments_of_the_library(
    jvm: Any, word: str, most: int | None, seed: int
) -> None:
    """Update by update, with the order of all that one lets pass. The state alone, without Spark."""
    library = LibraryDriver(jvm, program(f"unstored_table t; {word}; to_stream; to out"), UNCACHED)
    task, passed = SuppressTask(20_000, most, VALUE), 0
    try:
        for offset, record in enumerate(updates_of_table(seed, 60)):
            library.pipe(record)
            its = library.raw_outputs()
            task.changelog.clear()
            mine = task.process([Update(str(record.key), record.at, record.value, offset)])
            written = [(key, value and json.loads(value), at) for key, value, at in its.get("out", [])]
            assert [(each.key.encode(), each.value and dict(each.value), each.at) for each in mine] == written, record
            changelogs = [rows for topic, rows in its.items() if "-KTABLE-SUPPRESS-" in topic]
            stored = {key: value for key, value, _ in chain.from_iterable(changelogs)}
            assert buffered(task.changelog) == buffered(stored), record
            passed += len(mine)
    finally:
        library.close()
    assert passed > 10


def buffered(changelog: Mapping[Any, bytes | None]) -> dict[Any, bytes | None]:
    """A changelog of the buffer without the values that the table had before, which ours does not have."""
    return {key: value and BufferedUpdate.parse(value).as_bytes() for key, value in changelog.items()}


TIME_LIMITED = {
    "of a table": "unstored_table a; suppress_for; to_stream; to out",
    "of a table with a store, and at most two": "table a; suppress_two; to_stream; filter; to out",
    "of a count": "stream a; group_by_key; count; suppress_for; to_stream; counts; to out",
    "of a reduced stream, beside a join": "stream a; group_by_key; greatest; suppress_for; to_stream; to out; "
    "table t; @0 left_join 5; to joined",
}


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        (TIME_LIMITED["of a table"], 1),
        (TIME_LIMITED["of a count"], 1),
        *(pytest.param(text, seed, marks=pytest.mark.soak) for text in TIME_LIMITED.values() for seed in range(2, 5)),
    ],
)
def test_what_is_suppressed_until_a_time_limit_is_passed_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """The changelog of the library's buffer has the times of the clock. The test above compares its bytes."""
    steps, written = program(text), 0
    topics = ["out", *(["joined"] if "joined" in text else [])]
    with both(spark, jvm, steps, UNCACHED) as (driver, library):
        for record in updates_of_table(seed, 14):
            pipe(driver, record._replace(topic="a"))
            library.pipe(record._replace(topic="a"))
            mine, its = our_outputs(driver, topics), library.raw_outputs()
            passed = {
                topic: [(key, value_of(value), at) for key, value, at in its[topic]] for topic in topics if topic in its
            }
            assert mine == passed, record
            written += sum(map(len, mine.values()))
    assert written > 3


def edges_of_sessions(seed: int, sessions: SessionWindows) -> list[Piped]:
    """Records at the very time at which a session takes no more, and a millisecond before and behind it."""
    chosen, now, records = random.Random(seed), 0, list[Piped]()
    for _ in range(60):
        at = now - chosen.choice([0, 0, 0, sessions.retention_ms - 1, sessions.retention_ms, sessions.retention_ms + 1])
        records.append(Piped("a", chosen.choice(["k", "l", "km"]), b"{}", BEGIN + max(0, at)))
        now += chosen.choice([0, 1, 500, 1000, sessions.inactivity_gap_ms, sessions.retention_ms])
    return records


def edges_of_sliding_windows(seed: int) -> list[Piped]:
    """Records at the very time at which the grace is over, and a millisecond before and behind it."""
    grace = WINDOWS["sliding_windows"].grace_ms
    chosen, now, records = random.Random(seed), BEGIN, list[Piped]()
    for _ in range(60):
        late = chosen.choice([0, 0, grace - 1, grace, grace + 1])
        records.append(Piped("a", chosen.choice("kkl"), b"{}", now - late))
        now += chosen.choice([0, 0, 1, 500, grace, 31_000])
    return records


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("word", ["strict_windows", "short_windows", "short_hops", "hopping_windows"])
def test_final_results_of_random_records_are_those_of_the_library(
    spark: SparkSession, jvm: Any, word: str, seed: int
) -> None:
    steps = program(FINAL % word)
    assert compare(spark, jvm, steps, late_records(seed, steps, 60), "w") > 0


@pytest.mark.parametrize("seed", seeds(1, 200))
@pytest.mark.parametrize("word", ["short_hops", "brief_sessions", *soak(["strict_windows", "short_windows"])])
def test_windows_close_at_the_moments_of_the_library_and_in_its_order(jvm: Any, word: str, seed: int) -> None:
    """Record by record, with the order of all that one record gives. The state alone, without Spark."""
    records = within_a_segment(seed) if word in SESSIONS else late_records(seed, program(FINAL % word), 40)
    assert compare_states(jvm, word, records) > 5


def within_a_segment(seed: int) -> list[Piped]:
    """Records of a minute and five seconds, which are gap and grace of the sessions.

    With a later record the library's store drops what ended in the minute. It drops a session that closes then before
    it is passed.
    """
    chosen = random.Random(seed)
    records, now = list[Piped](), 0
    while now < 65_000:
        at = max(0, now - chosen.choice([0, 0, 0, 1, 1000, 5000, 9000]))
        records.append(Piped("a", chosen.choice("klm"), b"{}", BEGIN + at))
        now += chosen.choice([0, 1, 500, 500, 1000, 3000, 3001])
    return records


def sliding_records(seed: int, begin: int) -> list[Piped]:
    """Records of few keys, some of them late, without a gap that makes the library lose a final result."""
    chosen, records, now = random.Random(seed), list[Piped](), begin
    for _ in range(60):
        now += chosen.choice([0, 0, 1, 500, 10_000, 31_000])
        at = max(0, now - chosen.choice([0, 0, 0, 0, 1, 500, 30_000, 60_007, 69_000]))
        records.append(Piped("a", chosen.choice("kkl"), b"{}", at))
    return records


@pytest.mark.parametrize("seed", seeds(1, 200))
@pytest.mark.parametrize("final", [False, True], ids=["updates", "final results"])
@pytest.mark.parametrize("begin", [0, BEGIN], ids=["from the epoch on", "later"])
def test_sliding_windows_change_as_in_the_library(jvm: Any, seed: int, final: bool, begin: int) -> None:
    """Record by record. The state alone, without Spark."""
    assert compare_states(jvm, "sliding_windows", sliding_records(seed, begin), final=final) > 10


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("stream a; group_by_key; sliding_windows; aggregate; to_stream; windows; to w", 1),
        *(
            pytest.param(f"stream a; group_by_key; sliding_windows; {text}", seed, marks=pytest.mark.soak)
            for text in (
                "aggregate; to_stream; windows; to w",
                "on_close; aggregate; to_stream; windows; to w",
                "count; to_stream; plain_counts; process; to w",
            )
            for seed in range(2, 5)
        ),
    ],
)
def test_sliding_windows_are_those_of_the_library(spark: SparkSession, jvm: Any, text: str, seed: int) -> None:
    """With late records, and with nulls as keys and values."""
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 12)) > 10


def compare_states(
    jvm: Any, word: str, records: Sequence[Piped], *, final: bool = True, suppressed: bool = False
) -> int:
    """Compare the changes of the store, and the results that are passed, with those of the library."""
    counted = "session_counts" if word in SESSIONS else "window_counts"
    task = WindowTask((WINDOWS | SESSIONS)[word], final=final, suppressed=suppressed)
    count = "count; suppress" if suppressed else "on_close; count" if final else "count"
    steps = program(f"stream a; group_by_key; {word}; {count}; to_stream; {counted}; to w")
    library = LibraryDriver(jvm, steps, UNCACHED if suppressed else None)
    passed = 0
    try:
        for record in records:
            if record.value == b"no JSON" or record.key is None:
                continue
            library.pipe(record)
            its = last_of_each_key(library.outputs())
            made = task.process([(record.key, record.at)])
            closed = [(shown(row, word), row.parts["p0"], row.at) for row in made if row.place is not None]
            passed_there = [(key, value["n"], at) for key, value, at in its.get("w", [])]
            assert closed == passed_there or (not final and sorted(closed) == sorted(passed_there)), record
            stored = {
                (stored_key(row, word), row.parts and row.parts["p0"], row.at)
                for row in made
                if not final or row.place is None
            }
            changelogs = [rows for topic, rows in its.items() if topic.endswith("-changelog")]
            assert stored == {*chain.from_iterable(changelogs)}, record
            passed += len(closed)
    finally:
        library.close()
    return passed


def shown(row: Row, word: str) -> bytes:
    """A key with its window, as the twin topologies show it."""
    return b"%b@%d-%d" % (row.key, row.start, row.end) if word in SESSIONS else b"%b@%d" % (row.key, row.start)


def stored_key(row: Row, word: str) -> bytes:
    """The key of a window in the changelog."""
    start, end = row.start.to_bytes(8, "big"), row.end.to_bytes(8, "big")
    return bytes(row.key) + (end + start if word in SESSIONS else start + bytes(4))


# -- joins of tables

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


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 20))
@pytest.mark.parametrize("text", TABLES_JOINED_IN_ALL_WAYS)
def test_tables_are_joined_as_in_the_library(spark: SparkSession, jvm: Any, text: str, seed: int) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, table_records(seed, steps, 60)) > 0


@pytest.mark.usefixtures("compiled_code")
@pytest.mark.parametrize(
    ("text", "drawn_records", "count"),
    [
        (
            "stream a; group_by_key; windowed_by; count; to_stream; window_counts; to w; @1 hopping_windows; aggregate",
            random_records,
            3,
        ),
        (
            "table t; to_stream; to copied; stream a; select_key; left_join 0; to left; @4 join 0; to inner",
            random_records,
            4,
        ),
        ("stream b; stream a; outer_join_soon 0; to joined", late_records, 6),
        (TABLES_JOINED_IN_ALL_WAYS[3], table_records, 6),
        (SESSIONS_IN_ALL_WAYS, late_records, 4),
        (FINAL % "short_windows", late_records, 6),
        ("stream a; process; to processed", late_records, 4),
    ],
    ids=["windows", "joins", "joins of streams", "joins of tables", "sessions", "final results", "process"],
)
def test_compiled_plans_write_what_the_library_writes(
    spark: SparkSession, jvm: Any, text: str, drawn_records: Callable[[int, Program, int], list[Piped]], count: int
) -> None:
    """One plan of each kind of state."""
    steps = program(text)
    assert compare(spark, jvm, steps, drawn_records(1, steps, count)) > 0


class JoinedTables:
    """The state of the joins of tables of a topology, without Spark, for one key after the other."""

    def __init__(self, steps: Program) -> None:
        (self.group,) = ours(steps, APPLICATION, 1).topology.subtopologies
        self.topics = [source.topic for source in self.group.sources]
        self.joins = {
            join.number: (node, join) for node, join in joins_of(self.group, [s.name for s in self.group.sources])
        }
        joins = [join for _, join in self.joins.values()]
        fields = StructType([StructField("n", LongType()), StructField("s", StringType())])
        self._joined = {side for join in joins for side in (join.this, join.other)} - self.joins.keys()
        self._state = TableJoinState(dict.fromkeys(sorted(self._joined), fields), joins, restored=False)
        self._variables = defaultdict[str, Variable](Variable)

    def process(self, record: Piped) -> list[tuple[str, Any, int]]:
        """The changed joins by the names of their processors, with the joined value and its time."""
        variable = self._variables[str(record.key)]
        self._state.init(SimpleNamespace(getValueState=lambda *_: variable))
        source = self.topics.index(record.topic)
        fields = None if record.value is None else {"n": None, "s": None, **json.loads(record.value)}
        place = {"partition_time": record.at, "topic": record.topic, "offset": 0, "order": []}
        row = Row(
            source=source,
            at=record.at,
            rejected=False,
            deleted=record.value is None,
            record=place,
            **{f"f{source}": fields},
        )
        made = [one for one in self._state.handleInputRows((0, record.key), iter([row]), None) if one.join is not None]
        return [(self.joins[one.join][0].name, self._value(one.join, one), one.at) for one in made]

    def _value(self, number: int, row: Row) -> dict[str, Any] | None:
        if number not in self.joins:
            found: dict[str, Any] | None = row[f"t{number}"]
            return found
        _, join = self.joins[number]
        this, other = self._value(join.this, row), self._value(join.other, row)
        if not join.is_there(this is not None, other is not None):
            return None
        n = 10 * ((this or {}).get("n") or 0) + ((other or {}).get("n") or 0)
        return {"n": n, "s": f"{(this or {}).get('s') or ''}-{(other or {}).get('s') or ''}"}


@pytest.mark.parametrize("seed", seeds(1, 100))
@pytest.mark.parametrize("text", [*TABLES_JOINED_IN_ALL_WAYS[-3:], *soak(TABLES_JOINED_IN_ALL_WAYS[:-3])])
def test_joined_tables_change_as_in_the_library(jvm: Any, text: str, seed: int) -> None:
    """Record by record. The state alone, without Spark."""
    steps = program(text)
    tables, library, passed = JoinedTables(steps), LibraryDriver(jvm, steps), 0
    sinks = {before: node.topic for node in tables.group.sinks for before in tables.group.predecessors[node.name]}
    topics = {
        tables.group.predecessors[name][0]: topic for name, topic in sinks.items() if topic in ("joined", "first")
    }
    try:
        for record in table_records(seed, steps, 80):
            if record.value == b"no JSON" or record.key is None:
                continue
            library.pipe(record)
            its = library.outputs()
            made = tables.process(record)
            for name, topic in topics.items():
                mine = [(record.key.encode(), value, at) for join, value, at in made if join == name]
                assert mine == its.get(topic, []), f"{record} in {text}"
                passed += len(mine)
    finally:
        library.close()
    assert passed > 0


# -- joins of tables by a foreign key

JOINED_BY_FOREIGN_KEY = [
    "table u; table t; foreign_inner 0; to_stream; to joined",
    "table t; table u; @0 foreign_left 1; to_stream; to joined",
    "table t; table u; @0 foreign_inner_stored 1; to_stream; to joined; @1 to_stream; to copied",
    "table u; table t; foreign_left_stored 0; to_stream; to joined; @1 to_stream; to copied",
]
"""Inner and left joins, without and with a store. ``t`` is this table, and ``u`` the other one."""

FOREIGN_CHAINS = [
    "table u; table t; foreign_left 0; to_stream; to joined; @3 group_by_key; aggregate; to_stream; to totals; "
    "@1 to_stream; group_by_key; greatest; to_stream; process; to best",
    "table u; table t; foreign_inner 0; to_stream; @1 to_stream; merge 3; to merged; @0 to_stream; group_by_key; "
    "count; to_stream; counts; to counts",
    "table t; table u; @0 foreign_inner_stored 1; to_stream; process; to joined; @0 to_stream; process; to others",
]
"""Other states beside one side of a join by a foreign key, and behind its result."""

FOREIGN_ROWS = [
    "table u; table v; table t; foreign_inner 0; foreign_left 1; to_stream; to joined",
    "table u; table v; table t; foreign_left_stored 0; to_stream; to first; @3 foreign_inner_stored 1; to_stream; "
    "to joined",
    "table u; table t; foreign_left 0; to_stream; to first; @1 foreign_inner 0; to_stream; to joined; @1 to_stream; "
    "to own",
    "table u; table v; table t; foreign_inner 0; foreign_inner 1; to_stream; to joined; @2 foreign_left 1; to_stream; "
    "to others; @1 foreign_left 0; to_stream; group_by_key; count; to_stream; counts; to counted",
]
"""Joins by foreign keys in a row, two of one table, and a table that is on both sides of joins."""

FOREIGN_MERGES = [
    "table u; table t; foreign_left 0; to_stream; stream a; merge 3; to merged; @1 to_stream; merge 4; group_by_key; "
    "count; to_stream; counts; to counts; @0 to_stream; stream b; merge 14; to others",
    "table u; table v; table t; foreign_inner 0; to_stream; to joined; stream a; left_join 2; to met; "
    "stream b; left_join 0; to of_u; @2 foreign_left 1; to_stream; to further",
]
"""Streams of other topics that meet the tables of a join by a foreign key, and its result."""

_BETWEEN = "-KTABLE-FK-JOIN-SUBSCRIPTION-"


def referring_records(seed: int, count: int, others: Sequence[str] = "u") -> list[Piped]:
    """Updates of all tables: changed foreign keys, some of them null, deletions, late and equal times.

    The keys of ``v`` are also those that values joined with ``u`` refer to. With ``a``, ``b`` and ``c`` no record is
    late: what a late one meets in a table is not what it meets in the library.
    """
    chosen = random.Random(seed)
    records, now = [], BEGIN
    for _ in range(count):
        now += chosen.choice([0, 0, 1, 1000])
        at = now - chosen.choice([0, 0, 0, 1, 5000]) * {*others}.isdisjoint("abc")
        fields = {"n": chosen.randrange(8), "s": chosen.choice(TEXTS)}
        fields = {name: field for name, field in fields.items() if chosen.random() < 0.9}
        value = chosen.choices([json.dumps(fields).encode(), None], [6, 3])[0]
        is_this = chosen.random() < 0.6
        topic = "t" if is_this else others[0] if len(others) == 1 else chosen.choice(others)
        key = chosen.choice(KEYS[:3] if topic in "tac" else TEXTS)
        if topic == "v" and chosen.random() < 0.8:
            key = f"{key}-{chosen.choice([*TEXTS, ''])}"
        records.append(Piped(topic, key, value, at))
    return records


class ForeignKeyJoin:
    """Both states of a join by a foreign key, without Spark, for one key after the other."""

    def __init__(self, *, left: bool, stored: bool) -> None:
        fields = StructType([StructField("n", LongType()), StructField("s", StringType())])
        self._subscriber = SubscriberState(fields, ("f0", "f1"), left=left, stores_result=stored, restored=False)
        self._responder = ResponderState(restored=False)
        self._variables = defaultdict[tuple[bool, bytes | None], Variables](Variables)

    def process(self, record: Piped) -> dict[str, list[tuple[Any, Any, int]]]:
        """What is written, by the end of the topic's name or, for the joined table, under ``joined``."""
        self._written = defaultdict[str, list[tuple[Any, Any, int]]](list)
        assert record.key is not None
        if record.topic == "u":
            self._respond(record.key.encode(), THIS, record.value, record.at)
            return self._written
        fields = fields_of(record.value)
        text = None if fields["n"] == 7 else fields["s"]
        more = {"refers": None if text is None else text.encode(), "f0": fields, "f1": None}
        for made in self._run(True, record.key.encode(), THIS, record.value, record.at, more):
            to = None if made.to is None else bytes(made.to)
            self._written["REGISTRATION"].append((to, bytes(made.sent), made.at))
        for key, value, at in [*self._written["REGISTRATION"]]:
            self._respond(key, OTHER, value, at)
        return self._written

    def _respond(self, key: bytes | None, source: int, value: bytes | None, at: int) -> None:
        responses = []
        for made in self._run(False, key, source, value, at, {"f0": None}):
            if made.made == "stored":
                self._written["STATE-STORE"].append((made.to, made.sent, made.at))
            else:
                responses.append((made.to, made.sent[:-4], made.at))
                assert made.sent[-4:] == bytes(4), "the partition of this table"
        self._written["RESPONSE"] += responses
        for key, sent, at in responses:
            other = fields_of(Response.parse(sent).value)
            for made in self._run(True, key, OTHER, sent, at, {"refers": None, "f0": None, "f1": other}):
                self._written["joined"].append((key, joined_fields(made.joined, made.f1), made.at))

    def _run(
        self, of_this: bool, key: bytes | None, source: int, value: bytes | None, at: int, more: dict[str, Any]
    ) -> list[Row]:
        state = self._subscriber if of_this else self._responder
        state.init(self._variables[of_this, key])  # type: ignore[arg-type]
        place = {"partition_time": at, "topic": "", "offset": 0, "order": [], "value": value}
        row = Row(
            partition=0, key=key, source=source, at=at, rejected=False, deleted=value is None, record=place, **more
        )
        return [made for made in state.handleInputRows((0, key), iter([row]), None) if made.made is not None]


def fields_of(value: bytes | None) -> dict[str, Any]:
    return {"n": None, "s": None, **json.loads(value or b"{}")}


def joined_fields(this: Any, other: Any) -> dict[str, Any] | None:
    if this is None:
        return None
    texts = [found["s"] or "" for found in (this, other or fields_of(None))]
    return {"n": 10 * (this["n"] or 0) + ((other or {}).get("n") or 0), "s": "-".join(texts)}


@pytest.mark.parametrize("seed", seeds(1, 200))
@pytest.mark.parametrize("text", JOINED_BY_FOREIGN_KEY)
def test_a_join_by_a_foreign_key_sends_and_stores_the_bytes_of_the_library(jvm: Any, text: str, seed: int) -> None:
    """Record by record, with the order of all that one record gives. The states alone, without Spark."""
    steps = program(text)
    join, library, passed = ForeignKeyJoin(left="left" in text, stored="stored" in text), LibraryDriver(jvm, steps), 0
    try:
        for number, record in enumerate(referring_records(seed, 80)):
            library.pipe(record)
            its, mine = library.raw_outputs(), join.process(record)
            for kind in ("REGISTRATION", "STATE-STORE", "RESPONSE"):
                (found,) = [one for topic, one in its.items() if f"{_BETWEEN}{kind}" in topic] or [[]]
                assert mine[kind] == found, f"record {number}: {record} in {text}"
            found = [(key, value_of(value), at) for key, value, at in its.get("joined", [])]
            assert mine["joined"] == found, f"record {number}: {record} in {text}"
            passed += len(found)
    finally:
        library.close()
    assert passed > 0


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [(JOINED_BY_FOREIGN_KEY[2], 1, 4)]
    + [pytest.param(text, seed, 60, marks=pytest.mark.soak) for text in JOINED_BY_FOREIGN_KEY for seed in range(5)]
    + [(FOREIGN_CHAINS[0], 1, 4)]
    + [pytest.param(text, seed, 20, marks=pytest.mark.soak) for text in FOREIGN_CHAINS for seed in range(2)]
    + [(FOREIGN_ROWS[0], 2, 8)]
    + [pytest.param(text, seed, 40, marks=pytest.mark.soak) for text in FOREIGN_ROWS for seed in range(3)]
    + [(FOREIGN_MERGES[1], 1, 8)]
    + [pytest.param(text, seed, 40, marks=pytest.mark.soak) for text in FOREIGN_MERGES for seed in range(3)],
)
def test_tables_are_joined_by_a_foreign_key_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """All topics, those between the two sides in bytes."""
    steps = program(text)
    pipeline, written = ours(steps, APPLICATION, 1), 0
    topics = [spec.name for spec in pipeline.internal_topics() if not spec.name.endswith("-dead-letter")]
    with both(spark, jvm, steps) as (driver, library):
        others = [step.topic for step in steps if step.word in TOPICS and step.topic != "t"]
        for number, record in enumerate(referring_records(seed, count, others)):
            pipe(driver, record)
            library.pipe(record)
            its = library.raw_outputs()
            for topic in [*topics, *pipeline.topology.sink_topics]:
                read = (lambda value: value) if _BETWEEN in topic else value_of
                found = [(key, read(value), at) for key, value, at in its.get(topic, [])]
                mine = [
                    (
                        one.key.encode() if isinstance(one.key, str) else one.key,
                        without_nulls(one.value),
                        ms(one.timestamp),
                    )
                    for one in driver.output(topic)
                ]
                assert mine == found, f"record {number}: {record}, {topic} in {text}"
                written += len(found)
    assert written > 0


GLOBAL_TABLES = (
    "global_table t; stream a; join_global 0; to joined; @1 left_join_global 0; to all",
    "global_table t; stream a; select_key; left_join_global 0; group_by_key; count; to_stream; counts; to counts",
    "global_table t; stream a; join_global 0; group_by_key; aggregate; to_stream; to sums",
    "stream a; group_by_key; aggregate; to_stream; global_table t; @3 join_global 4; to totals",
)
"""Joins with a global table: of a stream, before a repartition topic, before a state, and of an aggregate's updates."""


def is_readable(value: bytes | None) -> bool:
    return value is None or (value != b"no JSON" and b'"1"' not in value)


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [(GLOBAL_TABLES[0], 1, 20), (GLOBAL_TABLES[2], 9, 14), (GLOBAL_TABLES[3], 9, 14)]
    + [pytest.param(text, seed, 60, marks=pytest.mark.soak) for text in GLOBAL_TABLES for seed in range(5)],
)
def test_a_stream_is_joined_with_a_global_table_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """A record meets the newest row, whatever the time of either. A row that cannot be read: the next test."""
    steps = program(text)
    records = [one for one in random_records(seed, steps, count) if one.topic != "t" or is_readable(one.value)]
    assert compare(spark, jvm, steps, records) > 0


def versioned_records(seed: int, count: int) -> list[Piped]:
    """Rows of one key, and records of a stream up to the newest row. Both are late, some by more than the history."""
    chosen = random.Random(seed)
    records, now = [], BEGIN
    for number in range(count):
        now += chosen.choice([0, 1, 500, 4_000, 20_000])
        late = now - chosen.choice([0, 0, 1, 400, 10_000, 29_999, 30_000, 30_001, 50_000])
        row = chosen.choice([b'{"n": %d, "s": "x"}' % number, b'{"n": 1, "s": "%d"}' % number, None])
        records.append(Piped("t", "k", row, late if chosen.random() < 0.5 else now))
        records.append(Piped("a", "k", b'{"n": %d, "s": "now"}' % number, now))
        records.append(Piped("a", "k", b'{"n": %d, "s": "late"}' % number, late))
    return records


@pytest.mark.parametrize("seed", seeds(3, 100))
def test_a_versioned_table_gives_the_rows_of_the_library(jvm: Any, seed: int) -> None:
    """The state without Spark."""
    steps = program("versioned_table t; stream a; left_join 0; to joined")
    task, library = VersionedTask(1000 * HISTORY_SECONDS), LibraryDriver(jvm, steps)
    met = 0
    for record in versioned_records(seed, 100):
        library.pipe(record)
        its = library.outputs()
        if record.topic == "t":
            number = None if record.value is None else json.loads(record.value)["s"]
            task.run(("price", record.at, number))
            assert [one[1:] for one in its[f"{APPLICATION}-t-store-changelog"]] == [(value_of(record.value), record.at)]
        else:
            ((_, value, at),) = its["joined"]
            assert (task.run(("order", record.at)), at) == ([value.get("s")], record.at), record
            met += "s" in value
    library.close()
    assert met > 20


@pytest.mark.parametrize(("seed", "count"), [(1, 4), *(pytest.param(n, 30, marks=pytest.mark.soak) for n in range(5))])
def test_a_stream_is_joined_with_a_versioned_table_as_in_the_library(
    spark: SparkSession, jvm: Any, seed: int, count: int
) -> None:
    steps = program(
        "versioned_table t; stream a; left_join 0; to all; @1 filter; join 0; group_by_key; count; to_stream; counts; "
        "to counts"
    )
    assert compare(spark, jvm, steps, versioned_records(seed, count)) > 0


# -- where they differ, as docs/language.md says


def test_a_record_whose_row_cannot_be_read_is_rejected_or_meets_the_row_before(spark: SparkSession, jvm: Any) -> None:
    """The library skips such a row, or stops, as it is configured."""
    steps = program("global_table t; stream a; join_global 0; to joined")
    row, unreadable = Piped("t", "k", b'{"s": "row"}', BEGIN), Piped("t", "k", b"no JSON", BEGIN)
    record = Piped("a", "any", b'{"n": 1, "s": "x"}', BEGIN)
    with both(spark, jvm, steps) as (driver, library):
        for piped in (row, unreadable, record):
            pipe(driver, piped)
            library.pipe(piped)
        assert [value for _, value, _ in library.outputs()["joined"]] == [{"n": 1, "s": "row"}]
        assert our_outputs(driver, ["joined"]) == {}
        (rejected,) = driver.dead_letters
        assert (rejected.topic, rejected.offset) == ("a", 0)
        assert rejected.reason.startswith("its row, t-0 offset 1: ")
        for piped in (row, record):
            pipe(driver, piped)
        assert [value for _, value, _ in our_outputs(driver, ["joined"])["joined"]] == [{"n": 1, "s": "row"}]


def one(topic: str, second: int, value: bytes = b"{}") -> Piped:
    return Piped(topic, "k", value, BEGIN + 1000 * second)


def counts_by_window(records: Sequence[tuple[Any, Any, int]]) -> list[int]:
    return [value["n"] for _, value, _ in records]


def test_a_late_record_is_dropped_at_once_or_from_the_next_micro_batch_on(spark: SparkSession, jvm: Any) -> None:
    """The record at 90 s closes the first window. The one at 30 s is late, and the one at 61 s is not."""
    steps = program("stream a; group_by_key; short_windows; count; to_stream; window_counts; to counts")
    records = [one("a", second) for second in (0, 90, 30, 61)]
    assert compare(spark, jvm, steps, records) > 0
    with both(spark, jvm, steps) as (driver, library):
        with driver.micro_batch():
            for record in records:
                pipe(driver, record)
        for record in records:
            library.pipe(record)
        assert sorted(counts_by_window(our_outputs(driver, ["counts"])["counts"])) == [2, 2]
        assert counts_by_window(library.outputs()["counts"]) == [1, 1, 2]
        pipe(driver, records[2])
        assert driver.output("counts") == []


def test_a_row_of_a_later_time_is_met_by_arrival_or_by_time(spark: SparkSession, jvm: Any) -> None:
    steps = program("table t; stream a; left_join 0; to joined")
    with both(spark, jvm, steps) as (driver, library):
        for record in (one("t", 20, b'{"s": "row"}'), one("a", 10, b'{"n": 1}'), one("a", 20, b'{"n": 2}')):
            pipe(driver, record)
            library.pipe(record)
        mine, its = our_outputs(driver, ["joined"])["joined"], library.outputs()["joined"]
    assert [value for _, value, _ in mine] == [{"n": 1}, {"n": 2, "s": "row"}]
    assert [value for _, value, _ in its] == [{"n": 1, "s": "row"}, {"n": 2, "s": "row"}]


def test_the_library_loses_a_session_that_closes_with_the_segment_of_its_store(jvm: Any) -> None:
    """It ends at 59 s, in the first minute of its store. The record at 101 s closes it, and drops that minute."""
    library = LibraryDriver(jvm, program(FINAL_SESSIONS % "short_sessions"))
    try:
        for second in (30, 59, 101):
            library.pipe(one("a", second))
        assert "w" not in library.outputs()
    finally:
        library.close()
    task = WindowTask(SESSIONS["short_sessions"])
    rows = [row for second in (30, 59, 101) for row in task.process([("k", BEGIN + 1000 * second)])]
    (closed,) = [row for row in rows if row.place is not None]
    assert (closed.start, closed.end, closed.parts["p0"]) == (BEGIN + 30_000, BEGIN + 59_000, 2)


def test_the_library_without_its_cache_loses_a_window_that_a_much_later_record_closes(jvm: Any) -> None:
    steps = program(FINAL % "strict_windows")
    for cache, number in (("10485760", 1), ("0", 0)):
        library = LibraryDriver(jvm, steps, {"statestore.cache.max.bytes": cache})
        try:
            for second in (5, 700):
                library.pipe(one("a", second))
            assert len(library.outputs().get("w", [])) == number
        finally:
            library.close()
    task = WindowTask(WINDOWS["strict_windows"])
    rows = [row for second in (5, 700) for row in task.process([("k", BEGIN + 1000 * second)])]
    assert [row.start for row in rows if row.place is not None] == [BEGIN]
