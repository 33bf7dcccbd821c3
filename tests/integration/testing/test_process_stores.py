"""Processors with several stores beside the library's: the same records, the same calls, the same bytes.

Each side has a processor in Python. Ours is given our stores; the library's, in its ``TopologyTestDriver``, calls the
library's stores.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from py4j.java_gateway import get_field
from pyspark.sql import SparkSession
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import (
    STREAM_TIME,
    WALL_CLOCK_TIME,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    SessionStore,
    VersionedKeyValueStore,
    WindowStore,
)
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String
from streamplan.testing import SessionKey, TestRecord, TopologyTestDriver, WindowedKey

from tests.support.kafka_streams import STREAMS, strings
from tests.support.processor_driver import ProcessorDriver, add_stores, supplier
from tests.support.soak import soak
from tests.support.streams_library import Callback, Library, raw

APPLICATION = "words"
BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
RETENTION, SIZE = timedelta(minutes=3), timedelta(minutes=1)
RULES, COUNTS = KeyValueStore(String(), Long()), KeyValueStore(String(), Json("n bigint, last string"))
VISITS = SessionStore(String(), Long(), retention=RETENTION)
RECENT = WindowStore(Long(), Long(), retention=RETENTION, size=SIZE)
STORES: dict[str, Any] = {"rules": RULES, "counts": COUNTS, "recent": RECENT, "visits": VISITS}


class Lines(Processor):
    """Counts words, keeps when each length was seen, and forwards what it finds."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.rules, self.counts = context.get_state_store("rules"), context.get_state_store("counts")
        self.recent, self.visits = context.get_state_store("recent"), context.get_state_store("visits")
        context.schedule("10 seconds", STREAM_TIME, self.by_stream_time)
        context.schedule("30 seconds", WALL_CLOCK_TIME, self.by_wall_clock)

    def process(self, record: Record) -> None:
        for word in sorted(set(record.value.line.split())):
            before = self.counts.get(word)
            self.counts.put(word, {"n": 1 + (0 if before is None else before.n), "last": record.key})
            self.recent.put(len(word), 1 + (self.recent.fetch(len(word), record.timestamp) or 0), record.timestamp)
        self.visit(str(record.key), record.timestamp)
        since = record.timestamp - timedelta(minutes=2)
        seen = [(ms(start), n) for start, n in self.recent.fetch(1, since, record.timestamp)]
        later = record.timestamp + timedelta(seconds=1)
        self.context.forward({"text": str(seen)}, key=record.value.line or None, timestamp=later, headers=[("n", b"1")])
        limit = self.rules.get("limit")
        for word, count in self.counts.range("b", "d"):
            if limit is not None and count.n > limit:
                self.counts.delete(word)
                self.context.forward({"text": f"{word} {count.n}"})

    def visit(self, key: str, at: datetime) -> None:
        begin, end, n, gap = at, at, 1, timedelta(seconds=30)
        for session, before in self.visits.find_sessions(key, at - gap, at + gap):
            self.visits.remove(key, session.start, session.end)
            begin, end, n = min(begin, session.start), max(end, session.end), n + before
        self.visits.put(key, n, begin, end)
        known = [(ms(session.start), ms(session.end), before) for session, before in self.visits.fetch(key)]
        self.context.forward({"text": f"{known} {self.visits.fetch_session(key, begin, end)}"}, key="visits")

    def by_stream_time(self, now: datetime) -> None:
        for word, count in self.counts.all():
            self.context.forward({"text": f"{count.n} {count.last}"}, key=word)

    def by_wall_clock(self, now: datetime) -> None:
        windows = [(window.key, ms(window.start), n) for window, n in self.recent.all()]
        self.context.forward({"text": str(windows)}, key="windows")


class Rules(Processor):
    """Fills the store that the other one asks."""

    def init(self, context: ProcessorContext) -> None:
        self.rules = context.get_state_store("rules")

    def process(self, record: Record) -> None:
        if record.value is None:
            self.rules.delete(record.key)
        else:
            self.rules.put_if_absent(record.key, record.value.n)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def ours() -> Pipeline:
    topology = Topology(APPLICATION)
    rules = topology.stream("rules", value=Json("n bigint"))
    rules.process(Rules, stores={"rules": RULES})
    lines = topology.stream("lines", value=Json("line string"))
    lines.process(Lines, stores=STORES, schema="text string").to("found")
    return Pipeline(APPLICATION, topology, "Words.", {"lines": 1, "rules": 1, "found": 1})


class LibraryLines:
    """The same with the library's stores."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def init(self, context: Any) -> None:
        self._context = context
        self._rules, self._counts, self._recent = map(context.getStateStore, ("rules", "counts", "recent"))
        self._visits = context.getStateStore("visits")
        types = self._jvm.org.apache.kafka.streams.processor.PunctuationType
        for seconds, punctuation, call in (
            (10, types.STREAM_TIME, self._by_stream_time),
            (30, types.WALL_CLOCK_TIME, self._by_wall_clock),
        ):
            punctuator = Callback(f"{STREAMS}.processor.Punctuator", punctuate=call)
            context.schedule(self._jvm.java.time.Duration.ofSeconds(seconds), punctuation, punctuator)

    def process(self, record: Any) -> None:
        key, at = raw(record.key()), int(record.timestamp())
        line = json.loads(bytes(record.value()))["line"]
        for word in sorted(set(line.split())):
            before = raw(self._counts.get(word.encode()))
            n = 1 + (0 if before is None else json.loads(before)["n"])
            last = {} if key is None else {"last": key.decode()}
            self._counts.put(word.encode(), json.dumps({"n": n, **last}, separators=(",", ":")).encode())
            seen = raw(self._recent.fetch(long(len(word)), self._long(at)))
            self._recent.put(long(len(word)), long(1 + (0 if seen is None else number(seen))), self._long(at))
        self._visit(str(None if key is None else key.decode()).encode(), at, record.headers())
        windows = entries(self._recent.fetch(long(1), self._long(at - 120_000), self._long(at)))
        found = [(int(start), number(value)) for start, value in windows]
        headers = self._jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        headers.add("n", b"1")
        self._forward(line.encode() or None, str(found), at + 1000, headers)
        limit = raw(self._rules.get(b"limit"))
        for word, value in entries(self._counts.range(b"b", b"d")):
            n = json.loads(bytes(value))["n"]
            if limit is not None and n > number(limit):
                self._counts.delete(word)
                self._forward(key, f"{bytes(word).decode()} {n}", at, record.headers())

    def _visit(self, key: bytes, at: int, headers: Any) -> None:
        kstream = self._jvm.org.apache.kafka.streams.kstream
        window = kstream.internals.SessionWindow
        begin, end, n = at, at, 1
        for session, value in entries(self._visits.findSessions(key, self._long(at - 30_000), self._long(at + 30_000))):
            start, last = int(session.window().start()), int(session.window().end())
            self._visits.remove(kstream.Windowed(key, window(self._long(start), self._long(last))))
            begin, end, n = min(begin, start), max(end, last), n + number(value)
        self._visits.put(kstream.Windowed(key, window(self._long(begin), self._long(end))), long(n))
        known = [
            (int(session.window().start()), int(session.window().end()), number(value))
            for session, value in entries(self._visits.fetch(key))
        ]
        one = number(self._visits.fetchSession(key, self._long(begin), self._long(end)))
        self._forward(b"visits", f"{known} {one}", at, headers)

    def _by_stream_time(self, now: int) -> None:
        for word, value in entries(self._counts.all()):
            count = json.loads(bytes(value))
            self._forward(bytes(word), f"{count['n']} {count.get('last')}", now)

    def _by_wall_clock(self, now: int) -> None:
        windows = [
            (number(raw(key.key())), int(key.window().start()), number(value))
            for key, value in entries(self._recent.all())
        ]
        self._forward(b"windows", str(windows), now)

    def _forward(self, key: bytes | None, text: str, at: int, *headers: Any) -> None:
        value = json.dumps({"text": text}, separators=(",", ":"), ensure_ascii=False).encode()
        made = self._jvm.org.apache.kafka.streams.processor.api.Record(key, value, self._long(at), *headers)
        self._context.forward(made)

    def _long(self, n: int) -> Any:
        (boxed,) = self._jvm.java.util.stream.LongStream.of(n).boxed().toArray()
        return boxed


class LibraryRules:
    def init(self, context: Any) -> None:
        self._rules = context.getStateStore("rules")

    def process(self, record: Any) -> None:
        value = raw(record.value())
        if value is None:
            self._rules.delete(record.key())
        else:
            self._rules.putIfAbsent(record.key(), long(json.loads(value)["n"]))


def entries(iterator: Any) -> list[tuple[Any, Any]]:
    found = []
    while iterator.hasNext():
        entry = iterator.next()
        found.append((get_field(entry, "key"), get_field(entry, "value")))
    iterator.close()
    return found


def long(n: int) -> bytes:
    return n.to_bytes(8, "big", signed=True)


def number(data: Any) -> int:
    return int.from_bytes(bytes(data), "big", signed=True)


def theirs(jvm: Any) -> ProcessorDriver:
    library = Library(jvm, APPLICATION)
    add_stores(library, STORES)
    builder, serdes = library.builder, (library.bytes, library.bytes)
    consumed = library.option("Consumed", "with", *serdes)
    builder.stream("rules", consumed).process(supplier(LibraryRules), strings(jvm, ["rules"]))
    lines = builder.stream("lines", consumed)
    found = lines.process(supplier(lambda: LibraryLines(jvm)), strings(jvm, [*STORES]))
    found.to("found", library.option("Produced", "with", *serdes))
    return ProcessorDriver(library, APPLICATION, BEGIN)


def key_bytes(key: Any) -> bytes | None:
    match key:
        case None:
            return None
        case SessionKey():
            return str(key.key).encode() + long(ms(key.end)) + long(ms(key.start))
        case WindowedKey():
            return long(key.key) + long(ms(key.start)) + bytes(4)
    return str(key).encode()


def value_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, int):
        return long(value)
    fields = {name: field for name, field in value.items() if field is not None}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def in_bytes(record: TestRecord) -> tuple[Any, ...]:
    return key_bytes(record.key), value_bytes(record.value), ms(record.timestamp), [*record.headers]


def last_of_each_key(records: list[tuple[Any, ...]]) -> dict[Any, Any]:
    """The library logs each put, we the last one of a micro-batch."""
    return {key: (value, at) for key, value, at, _ in records}


@pytest.mark.parametrize("turns", [14, *soak([40])])
def test_processors_with_shared_stores_windows_and_punctuators_agree_with_the_library(
    spark: SparkSession, jvm: Any, turns: int
) -> None:
    library, drawn, pipeline, at = theirs(jvm), random.Random(5), ours(), BEGIN
    written = 0
    try:
        assert pipeline.topology.describe() == library.description
        with TopologyTestDriver(pipeline, spark=spark, start=datetime.fromtimestamp(BEGIN / 1000, UTC)) as driver:
            for turn in range(turns):
                at = max(BEGIN, at + drawn.choice([-20_000, 500, 4_000, 30_000, 70_000]))
                kind = drawn.random()
                if kind < 0.15:
                    seconds = drawn.choice([5, 30, 70])
                    driver.advance_wall_clock(f"{seconds} seconds")
                    library.advance(1000 * seconds)
                else:
                    topic = "rules" if kind < 0.35 else "lines"
                    key: str | None = drawn.choice(["k", "l"] if topic == "lines" else ["limit", "other"])
                    value: dict[str, Any] | None = {"line": " ".join(drawn.choices(["a", "b", "bb", "c", "ddd"], k=2))}
                    if topic == "rules":
                        value = drawn.choice([None, {"n": drawn.randrange(4)}])
                    elif drawn.random() < 0.1:
                        key = None
                    data = None if value is None else json.dumps(value, separators=(",", ":")).encode()
                    driver.pipe(topic, data, key=key, at=at, headers=[("of", topic)])
                    of_key = None if key is None else key.encode()
                    library.pipe(topic, data, at, key=of_key, headers=[("of", topic.encode())])
                mine, its = [in_bytes(each) for each in driver.output("found")], library.output("found")
                assert mine == its, f"turn {turn}"
                written += len(its)
                for store in ("rules", "counts", "recent", "visits"):
                    changelog = f"{APPLICATION}-{store}-changelog"
                    changed = [in_bytes(each) for each in driver.output(changelog)]
                    assert last_of_each_key(changed) == last_of_each_key(library.output(changelog)), f"turn {turn}"
            assert driver.dead_letters == []
            assert {key: value["n"] for key, value in driver.store("counts").items()}
    finally:
        library.close()
    assert written > turns // 2


class Numbered(Processor):
    """Numbers the records of all keys."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.last = context, context.get_state_store("last")

    def process(self, record: Record) -> None:
        number = 1 + (self.last.get("all") or 0)
        self.last.put("all", number)
        self.context.forward({"n": number}, key=number)


class Summed(Processor):
    """Sums the numbers, and tells the sum once a minute."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.sums = context, context.get_state_store("sums")
        context.schedule("1 minute", STREAM_TIME, self.tell)

    def process(self, record: Record) -> None:
        self.sums.put("sum", record.key + (self.sums.get("sum") or 0))

    def tell(self, now: datetime) -> None:
        self.context.forward({"sum": self.sums.get("sum")})


def test_a_processor_behind_another_one_has_its_keys_and_the_time_of_records_that_a_filter_drops(
    spark: SparkSession,
) -> None:
    topology = Topology("chained")
    lines = topology.stream("lines", value=Json("line string")).filter("line != 'dropped'")
    numbers = lines.process(
        Numbered, stores={"last": KeyValueStore(String(), Long())}, schema="n bigint", key_serde=Long()
    )
    sums = numbers.process(Summed, stores={"sums": KeyValueStore(String(), Long())}, schema="sum bigint")
    sums.to("sums")
    pipeline = Pipeline("chained", topology, "Sums.", {"lines": 1, "sums": 1})
    with TopologyTestDriver(pipeline, spark=spark) as driver:
        driver.pipe("lines", {"line": "a"}, key="x", at="12:00:10")
        driver.pipe("lines", {"line": "b"}, key="y", at="12:00:50")
        assert [(each.key, each.value, ms(each.timestamp) - BEGIN) for each in driver.output("sums")] == [
            (None, {"sum": 1}, 10_000)
        ]
        driver.pipe("lines", {"line": "dropped"}, key="y", at="12:01:30")
        assert [(each.key, each.value, ms(each.timestamp) - BEGIN) for each in driver.output("sums")] == [
            (None, {"sum": 3}, 90_000)
        ]
        assert (driver.store("last")["all"], driver.store("sums")["sum"]) == (2, 3)


class Found(Processor):
    """Looks up in a global table. It has a store of its own where it is declared with one."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.prices = context, context.get_state_store("prices")

    def process(self, record: Record) -> None:
        self.tell(record.value.line, None)

    def tell(self, line: str, n: int | None) -> None:
        row = self.prices.get(line)
        found = None if row is None else (row.value.n, ms(row.timestamp))
        rest = [(key, row.value.n, ms(row.timestamp)) for key, row in self.prices.range("b", "d")]
        rest += [(key, row.value.n, ms(row.timestamp)) for key, row in self.prices.reverse_all()]
        self.context.forward({"text": f"{n} {found} {rest} {self.prices.approximate_num_entries()}"})


class Counted(Found):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        self.seen.put(record.value.line, 1 + (self.seen.get(record.value.line) or 0))
        self.tell(record.value.line, self.seen.get(record.value.line))


class LibraryFound:
    """The same with the library's stores. ``seen`` tells whether it has a store of its own."""

    def __init__(self, jvm: Any, *, seen: bool) -> None:
        self._jvm, self._counts = jvm, seen

    def init(self, context: Any) -> None:
        self._context, self._prices = context, context.getStateStore("prices")
        self._seen = context.getStateStore("seen") if self._counts else None

    def process(self, record: Any) -> None:
        line, n = json.loads(bytes(record.value()))["line"].encode(), None
        if self._seen is not None:
            before = raw(self._seen.get(line))
            n = 1 + (0 if before is None else number(before))
            self._seen.put(line, long(n))
        row = self._prices.get(line)
        found = None if row is None else self._row(row)
        rest = [(bytes(key).decode(), *self._row(row)) for key, row in entries(self._prices.range(b"b", b"d"))]
        rest += [(bytes(key).decode(), *self._row(row)) for key, row in entries(self._prices.reverseAll())]
        text = f"{n} {found} {rest} {len(entries(self._prices.all()))}"
        value = json.dumps({"text": text}, separators=(",", ":")).encode()
        self._context.forward(record.withValue(value))

    def _row(self, row: Any) -> tuple[int, int]:
        return json.loads(bytes(row.value()))["n"], int(row.timestamp())


@pytest.mark.parametrize("turns", [14, *soak([40])])
def test_classes_with_and_without_a_store_read_a_global_table_as_in_the_library(
    spark: SparkSession, jvm: Any, turns: int
) -> None:
    topology = Topology("prices")
    prices = topology.global_table("prices", value=Json("n bigint"), store="prices")
    lines = topology.stream("lines", value=Json("line string"))
    lines.process(Found, stores={"prices": prices}, schema="text string").to("found")
    seen = KeyValueStore(String(), Long())
    lines.process(Counted, stores={"seen": seen, "prices": prices}, schema="text string").to("counted")
    pipeline = Pipeline("prices", topology, "Prices.", {"lines": 2, "prices": 3, "found": 1, "counted": 1})

    library, drawn, at, written = Library(jvm, "prices"), random.Random(11), BEGIN, 0
    add_stores(library, {"seen": seen})
    serdes = (library.bytes, library.bytes)
    consumed, produced = library.option("Consumed", "with", *serdes), library.option("Produced", "with", *serdes)
    library.builder.globalTable("prices", consumed, library.option("Materialized", "as", "prices"))
    stream = library.builder.stream("lines", consumed)
    stream.process(supplier(lambda: LibraryFound(jvm, seen=False)), strings(jvm, [])).to("found", produced)
    stream.process(supplier(lambda: LibraryFound(jvm, seen=True)), strings(jvm, ["seen"])).to("counted", produced)
    theirs = ProcessorDriver(library, "prices", BEGIN)
    try:
        assert topology.describe() == theirs.description
        with TopologyTestDriver(pipeline, spark=spark, start=datetime.fromtimestamp(BEGIN / 1000, UTC)) as driver:
            for turn in range(turns):
                at = max(BEGIN, at + drawn.choice([-20_000, 500, 4_000]))
                topic = drawn.choice(["prices", "lines"])
                key = drawn.choice(["a", "b", "c", "d", "e"])
                value: Any = drawn.choice([None, {"n": turn}, {"n": turn}])
                if topic == "lines":
                    key, value = "k", {"line": key}
                elif turn == 20:
                    key = None
                data = None if value is None else value_bytes(value)
                driver.pipe(topic, data, key=key, at=at)
                theirs.pipe(topic, data, at, key=None if key is None else key.encode())
                for name in ("found", "counted", "prices-seen-changelog"):
                    mine, its = [in_bytes(each) for each in driver.output(name)], theirs.output(name)
                    assert mine == its, f"turn {turn}"
                    written += len(its)
            assert driver.dead_letters == []
            driver.pipe("prices", b"no JSON", key="a", at=at)
            driver.pipe("lines", {"line": "a"}, key="k", at=at)
            (letter, other) = driver.dead_letters
            assert "a row of the global table prices: the value is not JSON" in letter.reason
            assert "a row of the global table prices: the value is not JSON" in other.reason
    finally:
        theirs.close()
    assert written > turns // 2


class Latest(Processor):
    """Keeps every value, and forwards the last one by time."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.kept = context, context.get_state_store("kept")

    def process(self, record: Record) -> None:
        self.kept.put(record.key, record.value.n, record.timestamp)
        self.context.forward({"n": self.kept.get(record.key).value})


def test_a_late_value_is_not_the_last_one_of_a_versioned_store_and_a_test_can_fill_it(spark: SparkSession) -> None:
    topology = Topology("latest")
    stores = {"kept": VersionedKeyValueStore(String(), Long(), history="1 hour")}
    topology.stream("in", value=Json("n bigint")).process(Latest, stores=stores, schema="n bigint").to("out")
    pipeline = Pipeline("latest", topology, "Latest.", {"in": 1, "out": 1})
    with TopologyTestDriver(pipeline, spark=spark) as driver:
        driver.store("kept").put("k", 5, at="12:02")
        for n, at in ((1, "12:01"), (2, "12:03"), (3, "12:00")):
            driver.pipe("in", {"n": n}, key="k", at=at)
        assert [each.value["n"] for each in driver.output("out")] == [5, 2, 2]
        assert driver.store("kept") == {"k": 2}
