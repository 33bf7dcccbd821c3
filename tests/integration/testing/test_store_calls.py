"""The methods of the stores of a processor, beside the library's: the same calls and the same answers.

The value of a record is a call: the store, the method and its arguments. Both sides forward the answer.
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
    WALL_CLOCK_TIME,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    Windowed,
    WindowStore,
)
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String
from streamplan.testing import TopologyTestDriver, WindowedKey

from tests.support.kafka_streams import strings
from tests.support.processor_driver import ProcessorDriver, add_stores, supplier
from tests.support.streams_library import Library

APPLICATION = "calls"
BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
RETENTION, SIZE = timedelta(minutes=5), timedelta(minutes=1)
STORES: dict[str, Any] = {
    "plain": KeyValueStore(String(), Long()),
    "timed": TimestampedKeyValueStore(String(), Long()),
    "windows": WindowStore(String(), Long(), retention=RETENTION, size=SIZE),
    "timed-windows": TimestampedWindowStore(String(), Long(), retention=RETENTION, size=SIZE),
    "sessions": SessionStore(String(), Long(), retention=RETENTION),
    "versions": VersionedKeyValueStore(String(), Long(), history=RETENTION),
}
NOT_PUT = -(1 << 63)
"""``VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT``."""


class Calls(Processor):
    """Calls a method of a store, and forwards the answer."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.stores = {name: context.get_state_store(name) for name in STORES}
        context.schedule("1 minute", WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record) -> None:
        store, method, *arguments = json.loads(record.value.call)
        answer = getattr(self.stores[store], method)(*arguments)
        place = self.context.record_metadata()
        self.context.commit()
        told = [place and [*place], ms(self.context.current_system_time())]
        self.context.forward({"text": json.dumps([shown(answer), told])})

    def tick(self, now: datetime) -> None: ...


def shown(answer: Any) -> Any:
    match answer:
        case None | int() | str():
            return answer
        case datetime():
            return ms(answer)
        case ValueAndTimestamp(value, timestamp):
            return [value, ms(timestamp)]
        case VersionedRecord(value, timestamp, valid_to):
            return [value, ms(timestamp), None if valid_to is None else ms(valid_to)]
        case Windowed(key, start, end):
            return [key, ms(start), ms(end)]
    return [shown(each) if isinstance(each, VersionedRecord) else [*map(shown, each)] for each in answer]


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


class LibraryCalls:
    """The same with the library's stores."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def init(self, context: Any) -> None:
        self._context = context
        self._stores = {name: context.getStateStore(name) for name in STORES}

    def process(self, record: Any) -> None:
        store, method, *arguments = json.loads(json.loads(bytes(record.value()))["call"])
        name = "".join(word.title() if n else word for n, word in enumerate(method.split("_")))
        if store == "versions":
            answer = self._versions(method, *arguments)
        else:
            called = name.replace("Range", "") if name.endswith("etchRange") else name
            answer = self._shown(self._called(store, called, arguments))
        place = self._context.recordMetadata().get()
        told = [[place.topic(), place.partition(), place.offset()], self._context.currentSystemTimeMs()]
        self._context.commit()
        text = json.dumps({"text": json.dumps([answer, told])}, separators=(",", ":"))
        self._context.forward(record.withValue(text.encode()))

    def _versions(self, method: str, key: str, *arguments: int | None) -> Any:
        """A call of the versioned store. Its answers are shown at once."""
        store, query = self._stores["versions"], self._jvm.org.apache.kafka.streams.query
        match method, arguments:
            case "put", [n, at]:
                return store.put(key.encode(), None if n is None else n.to_bytes(8, "big"), self._long(at)) != NOT_PUT
            case "get" | "delete", _:
                return self._version(getattr(store, method)(key.encode(), *map(self._long, arguments)))
        asked = query.MultiVersionedKeyQuery.withKey(key.encode())
        first, last = (None if each is None else self._jvm.java.time.Instant.ofEpochMilli(each) for each in arguments)
        asked = asked.fromTime(first).toTime(last)
        asked = asked.withAscendingTimestamps() if method == "versions" else asked.withDescendingTimestamps()
        found = store.query(asked, query.PositionBound.unbounded(), query.QueryConfig(False)).getResult()
        versions = []
        while found.hasNext():
            versions.append(self._version(found.next()))
        found.close()
        return versions

    def _version(self, version: Any) -> Any:
        if version is None:
            return None
        valid_to = version.validTo()
        ends = int(valid_to.get()) if valid_to.isPresent() else None
        return [int.from_bytes(bytes(version.value()), "big"), int(version.timestamp()), ends]

    def _called(self, store: str, method: str, arguments: list[Any]) -> Any:
        of_store, streams = self._stores[store], self._jvm.org.apache.kafka.streams
        call = getattr(of_store, method)
        match store, method, arguments:
            case _, "putAll", [entries]:
                listed = self._jvm.java.util.ArrayList()
                for key, value in entries:
                    listed.add(streams.KeyValue(key.encode(), self._value(store, value)))
                return call(listed)
            case _, "prefixScan", [prefix]:
                serializer = self._jvm.org.apache.kafka.common.serialization.ByteArraySerializer()
                return call(prefix.encode(), serializer)
            case "sessions", "put", [key, value, start, end]:
                window = streams.kstream.internals.SessionWindow(self._long(start), self._long(end))
                return call(streams.kstream.Windowed(key.encode(), window), self._value(store, value))
            case _, ("put" | "putIfAbsent"), [key, value, *times]:
                return call(key.encode(), self._value(store, value), *map(self._long, times))
        given = []
        for argument in arguments:
            key = None if argument is None else argument.encode() if isinstance(argument, str) else argument
            if not isinstance(key, int):
                given.append(key)
            elif store == "sessions" or (len(arguments) == 2 and method == "fetch"):
                given.append(self._long(key))
            else:
                given.append(self._jvm.java.time.Instant.ofEpochMilli(key))
        return call(*given)

    def _value(self, store: str, value: Any) -> Any:
        if value is None:
            return None
        if store.startswith("timed"):
            made = self._jvm.org.apache.kafka.streams.state.ValueAndTimestamp.make
            return made(value[0].to_bytes(8, "big"), self._long(value[1]))
        return value.to_bytes(8, "big")

    def _shown(self, answer: Any) -> Any:
        if answer is None or isinstance(answer, int):
            return answer
        if isinstance(answer, bytes | bytearray):
            return int.from_bytes(bytes(answer), "big")
        if hasattr(answer, "hasNext") and "Iterator" in answer.getClass().getName():
            found = []
            while answer.hasNext():
                entry = answer.next()
                found.append([self._shown_key(get_field(entry, "key")), self._shown(get_field(entry, "value"))])
            answer.close()
            return found
        return [self._shown(answer.value()), int(answer.timestamp())]

    def _shown_key(self, key: Any) -> Any:
        if isinstance(key, int):
            return key
        if isinstance(key, bytes | bytearray):
            return bytes(key).decode()
        window = key.window()
        return [bytes(key.key()).decode(), int(window.start()), int(window.end())]

    def _long(self, n: int) -> Any:
        (boxed,) = self._jvm.java.util.stream.LongStream.of(n).boxed().toArray()
        return boxed


def theirs(jvm: Any) -> ProcessorDriver:
    library = Library(jvm, APPLICATION)
    add_stores(library, STORES)
    serdes = (library.bytes, library.bytes)
    calls = library.builder.stream("calls", library.option("Consumed", "with", *serdes))
    answers = calls.process(supplier(lambda: LibraryCalls(jvm)), strings(jvm, [*STORES]))
    answers.to("answers", library.option("Produced", "with", *serdes))
    return ProcessorDriver(library, APPLICATION, BEGIN)


def ours() -> Pipeline:
    topology = Topology(APPLICATION)
    calls = topology.stream("calls", value=Json("call string"))
    calls.process(Calls, stores=STORES, schema="text string").to("answers")
    return Pipeline(APPLICATION, topology, "Calls.", {"calls": 1, "answers": 1})


def drawn_call(drawn: random.Random, now: int) -> list[Any]:
    """A call of a store. Half of the calls put something."""

    def key() -> str:
        return drawn.choice(["a", "ab", "b", "ba", "c"])

    def bound() -> str | None:
        return drawn.choice([None, key(), key()])

    def time() -> int:
        return now - drawn.randrange(400) * 1_000

    store, n = drawn.choice([*STORES]), drawn.randrange(100)
    value: Any = n
    if store.startswith("timed"):
        value = [n, time()]
    keys = sorted([key(), key()])
    first, last = sorted([time(), time()])
    if drawn.random() < 0.1:
        value = None
    if store in ("plain", "timed"):
        puts = [["put", key(), value], ["put_all", [[key(), value], [key(), value]]], ["put_if_absent", key(), value]]
        reads: list[list[Any]] = [
            ["get", key()],
            ["delete", key()],
            [drawn.choice(["range", "reverse_range"]), *drawn.choice([keys, [None, key()], [key(), None]])],
            [drawn.choice(["all", "reverse_all"])],
            ["prefix_scan", drawn.choice(["a", "b", "ba", "x"])],
        ]
        if value is None:
            puts = puts[:1]
    elif store == "versions":
        # The library finds more of what was replaced before the history, until its segment is over.
        first, last = sorted(now - drawn.randrange(200) * 1_000 for _ in range(2))
        puts = [["put", key(), value, time()], ["delete", key(), time()]]
        reads = [
            ["get", key()],
            ["get", key(), time()],
            [drawn.choice(["versions", "reverse_versions"]), key(), first, drawn.choice([last, None])],
        ]
    elif store == "sessions":
        puts = [["put", key(), value, first, last]]
        range_of = drawn.choice([keys, [None, key()], [key(), None], [None, None]])
        reads = [
            [drawn.choice(["find_sessions", "backward_find_sessions"]), key(), first, last],
            [drawn.choice(["fetch", "backward_fetch"]), key()],
            [drawn.choice(["fetch_range", "backward_fetch_range"]), *range_of],
            ["fetch_session", key(), first, last],
        ]
    else:
        puts = [["put", key(), value, time()]]
        range_of = drawn.choice([keys, [None, key()], [key(), None], [None, None]])
        reads = [
            ["fetch", key(), time()],
            [drawn.choice(["fetch", "backward_fetch"]), key(), first, last],
            [drawn.choice(["fetch_range", "backward_fetch_range"]), *range_of, first, last],
            [drawn.choice(["fetch_all", "backward_fetch_all"]), first, last],
            [drawn.choice(["all", "backward_all"])],
        ]
    return [store, *drawn.choice(puts if drawn.random() < 0.5 else reads)]


def in_bytes(record: Any) -> tuple[bytes, bytes | None, int]:
    key = record.key
    name = (
        key.key.encode() + ms(key.start).to_bytes(8, "big") + bytes(4) if isinstance(key, WindowedKey) else key.encode()
    )
    return name, None if record.value is None else record.value.to_bytes(8, "big"), ms(record.timestamp)


@pytest.mark.parametrize(("turns", "of_turn"), [(6, 20), pytest.param(20, 20, marks=pytest.mark.soak)])
def test_the_methods_of_the_stores_answer_as_those_of_the_library(
    spark: SparkSession, jvm: Any, turns: int, of_turn: int
) -> None:
    library, drawn, now, answered = theirs(jvm), random.Random(3), BEGIN, 0
    pipeline = ours()
    try:
        assert pipeline.topology.describe() == library.description
        with TopologyTestDriver(pipeline, spark=spark, start=datetime.fromtimestamp(BEGIN / 1000, UTC)) as driver:
            for turn in range(turns):
                calls = [drawn_call(drawn, now) for _ in range(of_turn)]
                with driver.micro_batch():
                    for call in calls:
                        now += drawn.choice([0, 1_000, 20_000])
                        value = json.dumps({"call": json.dumps(call)}).encode()
                        driver.pipe("calls", value, key="k", at=now)
                        library.pipe("calls", value, now)
                mine = [json.loads(each.value["text"]) for each in driver.output("answers")]
                its = [json.loads(json.loads(value or b"")["text"]) for _, value, *_ in library.output("answers")]
                assert driver.dead_letters == []
                for call, one, other in zip(calls, mine, its, strict=True):
                    assert one == other, f"turn {turn}: {call}"
                    answered += one[0] not in (None, [])
                changelog = f"{APPLICATION}-versions-changelog"
                written = [of for *of, _ in library.output(changelog)]
                assert [[*in_bytes(each)] for each in driver.output(changelog)] == written, f"turn {turn}"
                for store in ("timed", "timed-windows", "plain"):
                    changelog = f"{APPLICATION}-{store}-changelog"
                    changed = {key: of for key, *of in map(in_bytes, driver.output(changelog))}
                    assert changed == {key: of for key, *of, _ in library.output(changelog)}, f"turn {turn}: {store}"
                driver.advance_wall_clock("7 seconds")
                library.advance(7_000)
    finally:
        library.close()
    assert answered > turns * of_turn // 5
