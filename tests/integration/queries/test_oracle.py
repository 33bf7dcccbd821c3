"""The answers of stores beside those of the library's own stores, on the changelogs that the library has written.

The library's stores are RocksDB stores in ``TopologyTestDriver``. All windows of a store are compared without their
order: the library passes them segment by segment, and promises no order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from py4j.java_gateway import get_field
from streamplan import Json, Pipeline, SessionWindows, TimeWindows, Topology
from streamplan.local.jars import KAFKA_STREAMS_TEST_UTILS
from streamplan.model.processor import Windowed
from streamplan.queries.follower import Follower, read_to_the_ends
from streamplan.queries.queries import Queries, view_of
from streamplan.queries.store_form import ReadValues
from streamplan.serdes.moments import as_milliseconds

from tests.support.fake_cluster import FakeCluster
from tests.support.kafka_streams import properties
from tests.support.queried import MINUTE, NoFollower
from tests.support.streams_library import Library, java_with_callbacks, raw

BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
TEXTS = ("a", "ab", "abc", "b", "é", "éa", "z", "ab\x00", "\U0001f600")
APPLICATION = "asked"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks(KAFKA_STREAMS_TEST_UTILS) as jvm:
        yield jvm


class Both:
    """Counts by key, in windows and in sessions: the library computes them, and our stores read its changelogs."""

    def __init__(self, jvm: Any, state: str) -> None:
        self._jvm = jvm
        library = Library(jvm, APPLICATION)
        streams = jvm.org.apache.kafka.streams
        millis = jvm.java.time.Duration.ofMillis
        stream = library.builder.stream("input", library.option("Consumed", "with", library.bytes, library.bytes))
        grouped = stream.groupByKey(library.option("Grouped", "with", library.bytes, library.bytes))
        grouped.count(library.stored("totals"))
        windows = streams.kstream.TimeWindows.ofSizeAndGrace(millis(MINUTE), millis(4 * MINUTE))
        grouped.windowedBy(windows).count(library.stored("windows"))
        sessions = streams.kstream.SessionWindows.ofInactivityGapAndGrace(millis(MINUTE), millis(4 * MINUTE))
        grouped.windowedBy(sessions).count(library.stored("sessions"))
        # With a record cache the library also answers with what its store has dropped, until the cache is flushed.
        config = {"application.id": APPLICATION, "bootstrap.servers": "none:1", "state.dir": state}
        config["statestore.cache.max.bytes"] = "0"
        self.driver = streams.TopologyTestDriver(library.builder.build(), properties(jvm, config))
        self._bytes = library.bytes

        topology = Topology(APPLICATION)
        ours = topology.stream("input", value=Json("n bigint")).group_by_key()
        ours.count(store="totals")
        ours.windowed_by(TimeWindows("1 minute", grace="4 minutes")).count(store="windows")
        ours.windowed_by(SessionWindows("1 minute", grace="4 minutes")).count(store="sessions")
        self.pipeline = Pipeline(APPLICATION, topology, "", {"input": 1})

    def pipe(self, records: list[tuple[str, bytes | None, int]]) -> None:
        serializer = self._bytes.serializer()
        topic = self.driver.createInputTopic("input", serializer, serializer)
        for key, value, at in records:
            instant = self._jvm.java.time.Instant.ofEpochMilli(at)
            topic.pipeInput(self._jvm.org.apache.kafka.streams.test.TestRecord(key.encode(), value, instant))

    def queries(self) -> Queries:
        cluster = FakeCluster()
        for spec in self.pipeline.topics():
            cluster.create(spec.name, 1)
        deserializer = self._bytes.deserializer()
        for topic in self.driver.producedTopicNames():
            for record in self.driver.createOutputTopic(topic, deserializer, deserializer).readRecordsToList():
                cluster.produce(topic, raw(record.getKey()), raw(record.getValue()), timestamp=int(record.timestamp()))
        view = view_of(self.pipeline, cluster)
        read_to_the_ends(cluster, view)
        return Queries(view, ReadValues(cluster.schemas), cast(Follower, NoFollower()))

    def instant(self, ms: int) -> Any:
        return self._jvm.java.time.Instant.ofEpochMilli(ms)

    @staticmethod
    def found(iterator: Any) -> list[tuple[Any, Any]]:
        """Key and value of each entry. A windowed key is given as key, start and end."""
        entries = []
        while iterator.hasNext():
            entry = iterator.next()
            key: Any = get_field(entry, "key")
            if isinstance(key, bytes | bytearray):
                key = key.decode()
            elif not isinstance(key, int):
                window = key.window()
                key = (bytes(key.key()).decode(), int(window.start()), int(window.end()))
            entries.append((key, int(get_field(entry, "value"))))
        iterator.close()
        return entries


@pytest.fixture
def both(jvm: Any) -> Iterator[Both]:
    with TemporaryDirectory() as state:
        made = Both(jvm, state)
        yield made
        made.driver.close()


def seen(entries: Iterator[Any]) -> list[tuple[Any, Any]]:
    """As :meth:`Both.found` has them."""

    def key_of(key: Any) -> Any:
        if isinstance(key, Windowed):
            return key.key, as_milliseconds(key.start), as_milliseconds(key.end)
        return as_milliseconds(key) if isinstance(key, datetime) else key

    return [(key_of(key), value) for key, value in entries]


@pytest.mark.parametrize("seed", range(3))
def test_each_answer_is_that_of_the_library(both: Both, seed: int) -> None:
    numbers = random.Random(seed)
    at, records = BEGIN, []
    for _ in range(300):
        at += numbers.randrange(0, 20_000)
        late = numbers.choice((0, 0, 0, numbers.randrange(6 * MINUTE)))
        records.append((numbers.choice(TEXTS), b"{}", at - late))
    both.pipe(records)
    queries = both.queries()
    _compare_keys(both, queries, numbers)
    _compare_windows(both, queries, numbers, at)
    _compare_sessions(both, queries, numbers, at)


def _compare_keys(both: Both, queries: Queries, numbers: random.Random) -> None:
    ours, theirs = queries.key_value_store("totals"), both.driver.getKeyValueStore("totals")
    assert seen(ours.all()) == both.found(theirs.all())
    assert seen(ours.reverse_all()) == both.found(theirs.reverseAll())
    assert ours.approximate_num_entries() == len(both.found(theirs.all()))
    for _ in range(10):
        first, last = sorted(numbers.choices((*TEXTS, "aa", "y"), k=2), key=str.encode)
        assert ours.get(first) == theirs.get(first.encode())
        bounds = first.encode(), last.encode()
        assert seen(ours.range(first, last)) == both.found(theirs.range(*bounds))
        assert seen(ours.reverse_range(first, last)) == both.found(theirs.reverseRange(*bounds))
        assert seen(ours.range(first)) == both.found(theirs.range(bounds[0], None))
        assert seen(ours.reverse_range(None, last)) == both.found(theirs.reverseRange(None, bounds[1]))
        serializer = both._bytes.serializer()
        assert seen(ours.prefix_scan(first)) == both.found(theirs.prefixScan(bounds[0], serializer))


def _compare_windows(both: Both, queries: Queries, numbers: random.Random, end: int) -> None:
    ours, theirs = queries.window_store("windows"), both.driver.getWindowStore("windows")
    assert sorted(seen(ours.all())) == sorted(both.found(theirs.all()))
    assert len(seen(ours.all())) > 5
    for key in TEXTS:
        first, last = sorted(numbers.choices(range(end - 10 * MINUTE, end + MINUTE), k=2))
        times = both.instant(first), both.instant(last)
        assert seen(ours.fetch(key, first, last)) == both.found(theirs.fetch(key.encode(), *times))
        assert seen(ours.backward_fetch(key, first, last)) == both.found(theirs.backwardFetch(key.encode(), *times))
        assert sorted(seen(ours.fetch_all(first, last))) == sorted(both.found(theirs.fetchAll(*times)))
        for start in range(end // MINUTE * MINUTE - 10 * MINUTE, end, MINUTE):
            assert ours.fetch(key, start) == theirs.fetch(key.encode(), start)


def _compare_sessions(both: Both, queries: Queries, numbers: random.Random, end: int) -> None:
    ours, theirs = queries.session_store("sessions"), both.driver.getSessionStore("sessions")
    found = 0
    for key in TEXTS:
        raw_key = key.encode()
        sessions = both.found(theirs.fetch(raw_key))
        found += len(sessions)
        assert seen(ours.fetch(key)) == sessions
        assert seen(ours.backward_fetch(key)) == both.found(theirs.backwardFetch(raw_key))
        for (_, start, last), count in sessions:
            assert ours.fetch_session(key, start, last) == count == theirs.fetchSession(raw_key, start, last)
        earliest, latest = sorted(numbers.choices(range(end - 8 * MINUTE, end), k=2))
        assert seen(ours.find_sessions(key, earliest, latest)) == both.found(
            theirs.findSessions(raw_key, earliest, latest)
        )
    assert found > 5
