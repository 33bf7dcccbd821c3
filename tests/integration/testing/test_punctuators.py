"""Punctuators that are scheduled and cancelled while records are processed, beside the library's.

Each record is a micro-batch of ours, with a new object of the class. The library has one object for all records. Its
punctuators cannot schedule here: the library holds a lock while it calls Python, and Python's answer comes in another
thread of the JVM. tests/unit/spark/test_punctuators.py compares that with a plain model.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import (
    STREAM_TIME,
    WALL_CLOCK_TIME,
    Cancellable,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
)
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String
from streamplan.testing import TopologyTestDriver

from tests.support.kafka_streams import STREAMS, strings
from tests.support.processor_driver import ProcessorDriver, supplier
from tests.support.soak import soak
from tests.support.streams_library import Callback, Library, raw

APPLICATION = "alarms"
BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
RING_MS, AFTER_MS, TICK_MS = 10_007, 13_009, 11_003
"""No two of them are due at the same time: the library has no order of those."""


class Alarms(Processor):
    """Has two punctuators of init. Records say which others are scheduled, and which are cancelled."""

    alarm: Cancellable | None = None
    after: Cancellable | None = None
    clock: Cancellable | None = None

    def init(self, context: ProcessorContext) -> None:
        self.context, self.calls = context, context.get_state_store("calls")
        self.regular = context.schedule("7 seconds", STREAM_TIME, self.regularly)
        self.second = context.schedule("9 seconds", WALL_CLOCK_TIME, self.on_second)

    def process(self, record: Record) -> None:
        if self.alarm is not None and (self.calls.get("ring") or 0) >= 4 and self.after is None:
            self.after = self.context.schedule(f"{AFTER_MS} milliseconds", STREAM_TIME, self.afterwards)
        match record.value.line:
            case "arm" if self.alarm is None:
                self.alarm = self.context.schedule(f"{RING_MS} milliseconds", STREAM_TIME, self.ring)
            case "disarm" if self.alarm is not None:
                self.alarm.cancel()
                self.alarm = None
            case "clock":
                self.clock = self.context.schedule(f"{TICK_MS} milliseconds", WALL_CLOCK_TIME, self.tick)
            case "no clock" if self.clock is not None:
                self.clock.cancel()
            case "not regular":
                self.regular.cancel()
            case "no second":
                self.second.cancel()

    def regularly(self, now: datetime) -> None:
        self.count("regular")

    def on_second(self, now: datetime) -> None:
        self.count("second")

    def ring(self, now: datetime) -> None:
        if self.count("ring") % 8 == 0 and self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
            if self.after is not None:
                self.after.cancel()

    def afterwards(self, now: datetime) -> None:
        self.count("after")

    def tick(self, now: datetime) -> None:
        self.count("tick")

    def count(self, name: str) -> int:
        n = 1 + (self.calls.get(name) or 0)
        self.calls.put(name, n)
        self.context.forward({"n": n}, key=name)
        return n


class LibraryAlarms:
    """The same with the library's context and store."""

    def __init__(self, jvm: Any) -> None:
        self._jvm, self._types = jvm, jvm.org.apache.kafka.streams.processor.PunctuationType
        self._alarm = self._after = self._clock = None

    def init(self, context: Any) -> None:
        self._context, self._calls = context, context.getStateStore("calls")
        self._regular = self._schedule(7_000, self._types.STREAM_TIME, lambda now: self._count("regular", now))
        self._second = self._schedule(9_000, self._types.WALL_CLOCK_TIME, lambda now: self._count("second", now))

    def process(self, record: Any) -> None:
        rung = raw(self._calls.get(b"ring"))
        if self._alarm is not None and int.from_bytes(rung or b"", "big") >= 4 and self._after is None:
            self._after = self._schedule(AFTER_MS, self._types.STREAM_TIME, lambda at: self._count("after", at))
        match json.loads(bytes(record.value()))["line"]:
            case "arm" if self._alarm is None:
                self._alarm = self._schedule(RING_MS, self._types.STREAM_TIME, self._ring)
            case "disarm" if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            case "clock":
                self._clock = self._schedule(TICK_MS, self._types.WALL_CLOCK_TIME, lambda now: self._count("tick", now))
            case "no clock" if self._clock is not None:
                self._clock.cancel()
            case "not regular":
                self._regular.cancel()
            case "no second":
                self._second.cancel()

    def _ring(self, now: int) -> None:
        if self._count("ring", now) % 8 == 0 and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            if self._after is not None:
                self._after.cancel()

    def _count(self, name: str, now: int) -> int:
        before = raw(self._calls.get(name.encode()))
        n = 1 + (0 if before is None else int.from_bytes(before, "big"))
        self._calls.put(name.encode(), n.to_bytes(8, "big"))
        (at,) = self._jvm.java.util.stream.LongStream.of(now).boxed().toArray()
        value = json.dumps({"n": n}, separators=(",", ":")).encode()
        self._context.forward(self._jvm.org.apache.kafka.streams.processor.api.Record(name.encode(), value, at))
        return n

    def _schedule(self, interval_ms: int, punctuation: Any, call: Any) -> Any:
        punctuator = Callback(f"{STREAMS}.processor.Punctuator", punctuate=lambda now: call(now) and None)
        return self._context.schedule(self._jvm.java.time.Duration.ofMillis(interval_ms), punctuation, punctuator)


def theirs(jvm: Any) -> ProcessorDriver:
    library, stores = Library(jvm, APPLICATION), jvm.org.apache.kafka.streams.state.Stores
    serdes = (library.bytes, library.bytes)
    kept = stores.persistentKeyValueStore("calls")
    library.builder.addStateStore(stores.keyValueStoreBuilder(kept, *serdes))
    lines = library.builder.stream("lines", library.option("Consumed", "with", *serdes))
    calls = lines.process(supplier(lambda: LibraryAlarms(jvm)), strings(jvm, ["calls"]))
    calls.to("calls", library.option("Produced", "with", *serdes))
    return ProcessorDriver(library, APPLICATION, BEGIN)


def ours() -> Pipeline:
    topology = Topology(APPLICATION)
    lines = topology.stream("lines", value=Json("line string"))
    stores = {"calls": KeyValueStore(String(), Long())}
    lines.process(Alarms, stores=stores, schema="n bigint").to("calls")
    return Pipeline(APPLICATION, topology, "Alarms.", {"lines": 1, "calls": 1})


@pytest.mark.parametrize("turns", [42, *soak([60])])
def test_what_is_scheduled_and_cancelled_is_called_when_the_library_calls_it(
    spark: SparkSession, jvm: Any, turns: int
) -> None:
    library, drawn, at = theirs(jvm), random.Random(11), BEGIN
    words = ["arm", "arm", "disarm", "clock", "no clock", "nothing", "nothing", "nothing", "nothing"]
    called: set[str] = set()
    try:
        with TopologyTestDriver(ours(), spark=spark, start=datetime.fromtimestamp(BEGIN / 1000, UTC)) as driver:
            for turn in range(turns):
                if drawn.random() < 0.25:
                    passed = drawn.choice([1_000, 8_000, 12_000, 50_000])
                    driver.advance_wall_clock(f"{passed} milliseconds")
                    library.advance(passed)
                else:
                    at = max(BEGIN, at + drawn.choice([-3_000, 500, 4_000, 12_000, 30_000]))
                    word = {30: "not regular", 40: "no second"}.get(turn) or drawn.choice(words)
                    value = json.dumps({"line": word}).encode()
                    driver.pipe("lines", value, key="k", at=at)
                    library.pipe("lines", value, at)
                mine = [
                    (str(each.key).encode(), json.dumps(each.value, separators=(",", ":")).encode(), ms(each.timestamp))
                    for each in driver.output("calls")
                ]
                assert driver.dead_letters == []
                assert mine == [each[:3] for each in library.output("calls")], f"turn {turn}"
                called |= {key.decode() for key, _, _ in mine}
            counted = {
                (key or b"").decode(): int.from_bytes(value or b"", "big")
                for key, value, *_ in library.output(f"{APPLICATION}-calls-changelog")
            }
            assert dict(driver.store("calls").items()) == counted
    finally:
        library.close()
    assert called == {"regular", "second", "ring", "after", "tick"}


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
