"""Keys of all serdes: what Spark's expressions make of them, and whole topologies beside the JVM library's."""

from __future__ import annotations

import io
import json
import struct
import uuid
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import fastavro
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from streamplan.errors import Refused
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, SessionWindows, TimeWindows
from streamplan.serdes.json import Json
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.primitive import KEY_SERDES, UUID, Bytes, Double, Integer, KeySerde, Long, String
from streamplan.serdes.serde import Undecodable
from streamplan.serdes.windowed import SessionWindowed, TimeWindowed, Windowed
from streamplan.spark.planning.keys import key_fault, read_key, write_key
from streamplan.testing import SessionKey, TopologyTestDriver, WindowedKey

from tests.support.kafka_streams import STREAMS, properties
from tests.support.soak import soak
from tests.support.streams_library import Callback, Library, raw

BEGIN = 1_767_268_800_000  # 2026-01-01T12:00:00Z
ONE, OTHER = "0a1b2c3d-0000-4000-8000-00000000ffff", "ffffffff-1111-4111-9111-111111111111"
READ = (
    *(b"", b"k", b"\xff\xfe", bytes(4), bytes(8), struct.pack(">i", -2), struct.pack(">q", -(1 << 63)), b"\xff" * 9),
    *(struct.pack(">d", number) for number in (0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22)),
    *(struct.pack(">d", float(text)) for text in ("nan", "inf", "-inf")),
    *(ONE.encode(), ONE.upper().encode(), ONE.encode() + b"\n", ONE[:-1].encode() + b"g"),
    *(b"null", b"{}", b"[]", b'{"s":"a","n":1}', b'{"s": "a","n":1}', b'{"n":1,"s":"a"}', b'{"s":"a","n":null}'),
    *(b'{"s":"a"}', b'{"s":"a","n":"1"}', b'{"s":1,"n":1}', b'{"s":"a","n":1.0}', b'{"s":"a","n":1,"n":1}'),
    *(b'{"s":"a","n":1,"m":2}', b'{"s":"a","n":1}\n', b'{"s":"a","n":2147483648}', b'{"s":"\xff","n":1}'),
    *(b'{"s":"\\u001F","n":1}', b'{"s":"\\u001f","n":1}', b'{"s":"\\/","n":1}', b'{"s":"\\ud800","n":1}'),
    json.dumps({"s": 'ä "\\ / \n\t\u2028\x7f\U0001f600', "n": -1}, separators=(",", ":"), ensure_ascii=False).encode(),
)
READ = (*READ, *(key + struct.pack(">qq", 7, -1) for key in (b"", bytes(8), ONE.encode(), b"\xff")))
FIELDS = Json("s string, n int")


WINDOWED = [TimeWindowed(Long()), TimeWindowed(Bytes()), SessionWindowed(UUID()), SessionWindowed(Double())]


@pytest.mark.parametrize("serde", [*KEY_SERDES.values(), FIELDS, *WINDOWED], ids=lambda serde: serde.name)
def test_expressions_read_and_write_a_key_as_its_serde_does(spark: SparkSession, serde: KeySerde) -> None:
    data = F.col("key")
    rows = spark.createDataFrame([(key,) for key in (*READ, None)], "key binary")
    fault = key_fault(serde, data)
    read = read_key(serde, data)
    rows = rows.select(
        "key",
        read.alias("read") if not isinstance(serde, String) else F.lit(None).alias("read"),
        write_key(serde, read).alias("written"),
        (F.lit(None) if fault is None else fault).cast("string").alias("fault"),
    )
    for key, found, written, reason in rows.collect():
        if key is None:
            assert (found, written, reason) == (None, None, None)
            continue
        expected, told = reading(serde, bytes(key))
        if told is not None:
            assert isinstance(serde, String) or reason == told
            continue
        assert reason is None
        if not isinstance(serde, String):  # the text of such a key holds its bytes as they are
            found = found.asDict() if isinstance(serde, Json | Windowed) else found
            found = {name: plain(part) for name, part in found.items()} if isinstance(found, dict) else plain(found)
            assert repr(found) == repr(expected)
        assert bytes(written) == serde.write_key(expected)


def plain(key: Any) -> Any:
    return bytes(key) if isinstance(key, bytearray) else key


def reading(serde: KeySerde, data: bytes) -> tuple[Any, str | None]:
    """The key, or why there is none."""
    try:
        return serde.read_key(data), None
    except Undecodable as error:
        return None, str(error)


class Keys(NamedTuple):
    """Keys of one serde: as our declaration has them, and as a function gives them to the library."""

    serde: KeySerde
    type: str
    one: Any
    other: Any
    expression: str = "n"


SERDES = [
    Keys(FIELDS, "struct<s: string, n: int>", {"s": "ä", "n": 1}, {"s": '"\\', "n": -1}),
    *soak(
        [
            Keys(Long(), "bigint", 1 << 40, -(1 << 33)),  # Python's numbers become the smallest type that fits
            Keys(Integer(), "int", -7, 1 << 30),
            Keys(Double(), "double", -0.1, 1e300),
            Keys(UUID(), "string", ONE, OTHER),
            Keys(Bytes(), "string", b"\xff\x00", b"one", "cast(n as binary)"),
            Keys(
                TimeWindowed(String()),
                "struct<key: string, start: bigint>",
                {"key": "ä", "start": BEGIN},
                {"key": "b", "start": 0},
            ),
        ]
    ),
]


def ours(keys: Keys) -> Pipeline:
    topology, serde = Topology("twin"), keys.serde
    value = Json(f"n {keys.type}")
    counted = topology.stream("a", value=value, key_serde=serde)
    counted.group_by_key().count(store="own")
    counted.group_by_key().windowed_by(TimeWindows("1 minute", grace="1 day")).count(store="windowed")
    by_n = counted.group_by(keys.expression, key_serde=serde, name="by-n").count(store="by-n")
    by_n.to_stream().to("counts")
    table = topology.table("t", value=Json("s string"), key_serde=serde, store="rows")
    topology.stream("b", value=value, key_serde=serde).join(table, {"s": "table.s"}, name="looked-up").to("joined")
    one, other = (topology.stream(topic, value=value, key_serde=serde) for topic in ("c", "d"))
    one.join(other, {"n": "other.n"}, within=JoinWindows("1 minute", grace="1 day"), name="met", store="met").to("met")
    first, second = (topology.stream(topic, value=value, key_serde=serde) for topic in ("f", "g"))
    within = JoinWindows("1 minute", grace="1 day")
    first.left_join(second, {"n": "other.n"}, within=within, name="waited", store="waited").to("waited")
    in_sessions = topology.stream("e", value=value, key_serde=serde).group_by_key()
    in_sessions.windowed_by(SessionWindows("1 minute", grace="1 day")).count(store="sessions")
    return Pipeline("twin", topology, "", dict.fromkeys((*topology.source_topics, *topology.sink_topics), 1))


class TheirKeys:
    """The library's topology with the same serde of keys, and its driver."""

    def __init__(self, jvm: Any, keys: Keys) -> None:
        library = Library(jvm, "twin")
        self._jvm, self._bytes = jvm, library.bytes
        names = {"Bytes": "ByteArray"}
        name = "String" if isinstance(keys.serde, Json) else keys.serde.name
        is_windowed = isinstance(keys.serde, TimeWindowed)
        serde = library.serdes.String() if is_windowed else getattr(library.serdes, names.get(name, name))()
        self.key_of = jvm.java.util.UUID.fromString if isinstance(keys.serde, UUID) else lambda key: key
        if isinstance(keys.serde, Json):
            self.key_of = compact
        if is_windowed:
            kstream = jvm.org.apache.kafka.streams.kstream
            serde, window = kstream.WindowedSerdes.TimeWindowedSerde(serde, 60_000), kstream.internals.TimeWindow
            self.key_of = lambda key: kstream.Windowed(key["key"], window(key["start"], key["start"] + 60_000))

        def fields(value: Any) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(bytes(value))
            return found

        def key_in(key: Any, value: Any) -> Any:
            n = fields(value)["n"]
            return n.encode() if isinstance(keys.serde, Bytes) else self.key_of(n)

        def option(kind: str, method: str, *arguments: Any) -> Any:
            return library.option(kind, method, *arguments)

        def joiner(made: Any) -> Callback:
            def apply(left: Any, right: Any) -> bytes:
                return json.dumps(made(right)).encode()

            return Callback(f"{STREAMS}.kstream.ValueJoiner", apply=apply)

        consumed = option("Consumed", "with", serde, library.bytes)
        produced = option("Produced", "with", serde, library.bytes)
        millis = jvm.java.time.Duration.ofMillis
        counted = library.builder.stream("a", consumed)
        grouped = option("Grouped", "with", serde, library.bytes)
        counted.groupByKey(grouped).count(library.stored("own"))
        windows = option("TimeWindows", "ofSizeAndGrace", millis(60_000), millis(86_400_000))
        counted.groupByKey(grouped).windowedBy(windows).count(library.stored("windowed"))
        by_n = counted.groupBy(
            Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=key_in),
            option("Grouped", "with", "by-n", serde, library.bytes),
        ).count(library.stored("by-n"))
        by_n.toStream().to("counts", option("Produced", "with", serde, library.serdes.Long()))
        table = library.builder.table("t", consumed, library.stored("rows"))
        joined = option("Joined", "with", serde, library.bytes, library.bytes).withName("looked-up")
        row_of = joiner(lambda row: {"s": fields(row)["s"]})
        library.builder.stream("b", consumed).join(table, row_of, joined).to("joined", produced)
        one, other = (library.builder.stream(topic, consumed) for topic in ("c", "d"))
        within = option("JoinWindows", "ofTimeDifferenceAndGrace", millis(60_000), millis(86_400_000))
        stores = option("StreamJoined", "with", serde, library.bytes, library.bytes)
        stores = stores.withName("met").withStoreName("met")
        one.join(other, joiner(lambda record: {"n": fields(record)["n"]}), within, stores).to("met", produced)
        first, second = (library.builder.stream(topic, consumed) for topic in ("f", "g"))
        stores = option("StreamJoined", "with", serde, library.bytes, library.bytes)
        stores = stores.withName("waited").withStoreName("waited")
        first.leftJoin(second, joiner(lambda record: {"n": fields(record)["n"]}), within, stores).to("waited", produced)
        sessions = option("SessionWindows", "ofInactivityGapAndGrace", millis(60_000), millis(86_400_000))
        in_sessions = library.builder.stream("e", consumed).groupByKey(grouped).windowedBy(sessions)
        in_sessions.count(library.stored("sessions"))
        built = library.builder.build()
        self.description = str(built.describe().toString())
        self._serializer = serde.serializer()
        config = {
            "application.id": "twin",
            "bootstrap.servers": "localhost:1",
            "default.key.serde": "org.apache.kafka.common.serialization.Serdes$ByteArraySerde",
            "default.value.serde": "org.apache.kafka.common.serialization.Serdes$ByteArraySerde",
        }
        self._driver = jvm.org.apache.kafka.streams.TopologyTestDriver(built, properties(jvm, config))

    def pipe(self, topic: str, key: Any, value: bytes) -> None:
        topics = self._driver.createInputTopic(topic, self._serializer, self._bytes.serializer())
        at = self._jvm.java.time.Instant.ofEpochMilli(BEGIN)
        topics.pipeInput(self._jvm.org.apache.kafka.streams.test.TestRecord(self.key_of(key), value, at))

    def outputs(self) -> dict[str, set[tuple[bytes | None, bytes | None]]]:
        found = {}
        for topic in self._driver.producedTopicNames():
            reader = self._bytes.deserializer()
            records = self._driver.createOutputTopic(topic, reader, reader).readRecordsToList()
            found[topic] = {(unnumbered(topic, raw(each.getKey())), raw(each.getValue())) for each in records}
            if "shared" in topic:  # a list of one record, before which stand its lengths and its side
                found[topic] = {(key, value and value[10:]) for key, value in found[topic]}
        return {topic: records for topic, records in found.items() if records}

    def close(self) -> None:
        self._driver.close()


def compact(key: Any) -> str:
    """The text of a key of several fields: Python's own."""
    return json.dumps(key, separators=(",", ":"), ensure_ascii=False)


def unnumbered(topic: str, key: bytes | None) -> bytes | None:
    """A key without the number that tells records of one key and time apart: the library's counts all of a task."""
    is_numbered = topic.startswith(("twin-met-", "twin-waited-")) and "shared" not in topic
    return key[:-4] + bytes(4) if key is not None and is_numbered else key


def in_bytes(topic: str, serde: KeySerde, key: Any) -> bytes | None:
    if isinstance(key, SessionKey):
        end, start = (int(at.timestamp() * 1000).to_bytes(8, "big") for at in (key.end, key.start))
        return serde.write_key(key.key) + end + start
    if isinstance(key, WindowedKey) and "shared" in topic:
        return int(key.start.timestamp() * 1000).to_bytes(8, "big") + b"\1" + serde.write_key(key.key)
    if isinstance(key, WindowedKey):
        start = int(key.start.timestamp() * 1000).to_bytes(8, "big")
        return serde.write_key(key.key) + start + (bytes(4) if topic.endswith("-changelog") else b"")
    return None if key is None else serde.write_key(key)


def value_in_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, list):  # one record waits
        (value,) = value
    return value.to_bytes(8, "big") if isinstance(value, int) else json.dumps(value).encode()


@pytest.mark.soak
@pytest.mark.parametrize("keys", SERDES, ids=lambda keys: keys.serde.name)
def test_keys_have_the_librarys_bytes_in_every_topic(spark: SparkSession, jvm: Any, keys: Keys) -> None:
    """In a repartition topic, in changelogs of all kinds, and in topics of others; and joins meet the same records."""
    pipeline = ours(keys)
    library = TheirKeys(jvm, keys)
    field_of = {keys.one: "one", keys.other: "other"} if isinstance(keys.serde, Bytes) else {}
    others = {*pipeline.topology.source_topics, pipeline.topology.dead_letter_topic}
    topics = [spec.name for spec in pipeline.topics() if spec.name not in others]
    try:
        with TopologyTestDriver(pipeline, spark=spark) as driver:
            assert pipeline.topology.describe() == library.description
            mine: dict[str, set[tuple[bytes | None, bytes | None]]] = {}
            with driver.micro_batch():
                for topic in "tabcdefg":
                    for key in (keys.one, keys.other):
                        other = keys.other if key == keys.one else keys.one
                        field = field_of[other] if field_of else other
                        value = json.dumps({"s": "row"} if topic == "t" else {"n": field}).encode()
                        driver.pipe(topic, value, key=key, at=BEGIN)
                        library.pipe(topic, key, value)
            for topic in topics:
                if records := driver.output(topic):
                    mine[topic] = {
                        (in_bytes(topic, keys.serde, each.key), value_in_bytes(each.value)) for each in records
                    }
            assert mine == library.outputs()
            assert len(mine) >= 14
            assert driver.store("own")[keys.one] == 1
            assert driver.dead_letters == []
    finally:
        library.close()


def test_expressions_and_functions_see_a_key_in_its_type(spark: SparkSession) -> None:
    topology = Topology("typed")
    stream = topology.stream("a", value=Json("s string"), key_serde=Long())
    stream.filter("record.key > 5").map_values({"k": "record.key + 1"}).to("expressions")
    stream.map_values(next_key, schema="k bigint").select_key("k").to("functions")
    with TopologyTestDriver(Pipeline("typed", topology, "", {"a": 1}), spark=spark) as driver:
        with driver.micro_batch():
            for key in (5, 6):
                driver.pipe("a", {"s": "x"}, key=key)
        assert [(each.key, each.value) for each in driver.output("expressions")] == [(6, {"k": 7})]
        assert [(each.key, each.value) for each in driver.output("functions")] == [("6", {"k": 6}), ("7", {"k": 7})]


def test_a_key_with_a_window_lies_where_its_key_belongs(spark: SparkSession) -> None:
    """In a topic that is written, as with the library's ``WindowedStreamPartitioner``. All bytes count in between."""
    topology = Topology("windowed")
    counts = topology.stream("a", value=Json("s string"), key_serde=TimeWindowed(String()))
    counts.to("same")
    counts.select_key("struct(s as key, record.key.start as start)", key_serde=TimeWindowed(String())).to("other")
    counts.select_key("struct(s as key, 1 as start, 2 as end)", key_serde=SessionWindowed(String())).to("sessions")
    counts.select_key("struct(s as key, 5 as start)", key_serde=TimeWindowed(String())).repartition(name="through")
    topics = dict.fromkeys(("a", "same", "other", "sessions"), 3)
    with TopologyTestDriver(Pipeline("windowed", topology, "", topics), spark=spark) as driver:
        with driver.micro_batch():
            for n in range(6):
                driver.pipe("a", {"s": f"s{n}"}, key={"key": f"k{n}", "start": 60_000 * n})
        through = "windowed-through-repartition"
        written = {topic: driver.output(topic) for topic in ("same", "other", "sessions", through)}
        assert driver.dead_letters == []
    keys = sorted((record.key for record in written["same"]), key=itemgetter("start"))
    assert keys == [{"key": f"k{n}", "start": 60_000 * n} for n in range(6)]
    for topic, records in written.items():
        assert len(records) == 6
        for record in records:
            key = record.key["key"].encode()
            if topic == through:
                key += (5).to_bytes(8, "big")
            assert record.partition == partition_for_key(key, 3)


def next_key(record: Any) -> dict[str, int]:
    return {"k": record.record.key + 1}


def test_a_key_that_its_serde_does_not_read_is_dead_lettered(spark: SparkSession) -> None:
    topology = Topology("rejected")
    stream = topology.stream("a", value=Json("id string"), key_serde=Long())
    stream.group_by("id", name="by-id").count(store="counts")
    stream.select_key("id", key_serde=UUID()).to("ids")
    with TopologyTestDriver(Pipeline("rejected", topology, "", {"a": 1}), spark=spark) as driver:
        with driver.micro_batch():
            driver.pipe("a", {"id": ONE.upper()}, key=7)
            driver.pipe("a", {"id": ONE}, key=b"seven")
            driver.pipe("a", {"id": "x"}, key=8)
        assert [each.key for each in driver.output("ids")] == [ONE]
        assert {(each.key, each.reason) for each in driver.dead_letters} == {
            (b"seven", "the key has 5 bytes; Long has 8"),
            (8, "the key is no UUID of 36 characters"),
        }
        assert driver.store("counts") == {ONE.upper(): 1, "x": 1}


def test_an_expression_of_another_type_than_the_serde_writes_is_refused(spark: SparkSession) -> None:
    topology = Topology("refused")
    topology.stream("a", value=Json("price double")).select_key("price", key_serde=Long()).to("b")
    with pytest.raises(Refused) as refused:
        TopologyTestDriver(Pipeline("refused", topology, "", {"a": 1}), spark=spark)
    assert "the key is of type double, and Long writes bigint" in str(refused.value)


def test_a_driver_refuses_a_key_that_the_serde_does_not_write(spark: SparkSession) -> None:
    topology = Topology("piped")
    topology.stream("a", value=Json("s string"), key_serde=UUID()).to("b")
    with TopologyTestDriver(Pipeline("piped", topology, "", {"a": 1}), spark=spark) as driver:
        driver.pipe("a", {"s": "x"}, key=uuid.UUID(ONE))
        assert [each.key for each in driver.output("b")] == [ONE]
        with pytest.raises(Refused, match="the key for a: expected one of UUID, bytes or None, observed 'x'"):
            driver.pipe("a", {"s": "x"}, key="x")


class Orders(Processor):
    """Counts the orders of a customer and a product, and says for whom."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        seen = store.get()
        count = 1 if seen is None else seen.count + 1
        store.put({"count": count})
        yield {"text": f"{record.key.customer} {store.key.product} {count}"}


def customer_of(order: Any) -> dict[str, Any]:
    return {"customer": order.record.key.customer, "product": order.record.key["product"]}


def test_a_key_of_several_fields_is_read_part_by_part(spark: SparkSession) -> None:
    """By expressions, by functions, by classes, in joins and behind windows."""
    topology, serde = Topology("parts"), Json("customer string, product int")
    orders = topology.stream("orders", value=Json("n int"), key_serde=serde)
    prices = topology.table("prices", value=Json("price int"), key_serde=serde)
    orders.filter("record.key.product > 1").select_key("record.key.customer").to("customers")
    orders.map_values(customer_of, schema="customer string, product int").to("functions")
    orders.join(prices, {"price": "table.price", "of": "record.key.customer"}).to("priced")
    counted = (
        orders.repartition(name="counted").group_by_key().windowed_by(TimeWindows("1 minute")).count(store="counts")
    )
    counted.to_stream().map_values({"of": "record.key.customer", "count": "count"}).to("windows")
    seen = orders.repartition(name="seen")
    seen.process(Orders, store="seen", state="count bigint", schema="text string").to("processed")
    topics = {"orders": 3, "prices": 3}
    with TopologyTestDriver(Pipeline("parts", topology, "", topics), spark=spark) as driver:
        ann, bob = {"customer": "ann", "product": 1}, {"customer": "bob", "product": 2}
        with driver.micro_batch():
            driver.pipe("prices", {"price": 5}, key=ann, at="11:00")
            driver.pipe("orders", {"n": 1}, key=ann, at="12:00")
            driver.pipe("orders", {"n": 2}, key=bob, at="12:00")
            driver.pipe("orders", {"n": 3}, key=ann, at="12:00")
        assert [each.key for each in driver.output("customers")] == ["bob"]
        functions = driver.output("functions")
        assert sorted(each.key.customer for each in functions) == ["ann", "ann", "bob"]
        assert all(each.key == each.value for each in functions)
        assert {each.partition for each in functions if each.key == ann} == {
            partition_for_key(b'{"customer":"ann","product":1}', 3)
        }
        assert [(each.key, each.value) for each in driver.output("priced")] == [(ann, {"price": 5, "of": "ann"})] * 2
        windows = driver.output("windows")
        assert {each.key.key.product: each.value for each in windows} == {
            1: {"of": "ann", "count": 2},
            2: {"of": "bob", "count": 1},
        }
        assert driver.store("counts")[ann, "12:00"] == 2
        assert driver.store("seen")[bob] == {"count": 1}
        processed = {each.value["text"] for each in driver.output("processed")}
        assert processed == {"ann 1 1", "ann 1 2", "bob 2 1"}
        assert driver.dead_letters == []


def test_a_key_in_another_form_is_dead_lettered_and_one_without_a_part_too(spark: SparkSession) -> None:
    topology, serde = Topology("forms"), Json("customer string, product int")
    orders = topology.stream("orders", value=Json("customer string, product int"), key_serde=serde)
    orders.group_by("struct(customer, product)", key_serde=serde, name="by").count(store="counts")
    with TopologyTestDriver(Pipeline("forms", topology, "", {"orders": 1}), spark=spark) as driver:
        key = {"customer": "ann", "product": 1}
        other = json.dumps(key).encode()
        with driver.micro_batch():
            driver.pipe("orders", key, key=key)
            driver.pipe("orders", key, key=None)
            driver.pipe("orders", key, key=other)
            driver.pipe("orders", {"customer": "ann"}, key=key)
            driver.pipe("orders", None, key=key)
        assert driver.store("counts") == {KeyFields(key): 2}
        assert [(each.key, each.reason) for each in driver.dead_letters] == [
            (other, f"the key is not as {serde.name} writes it"),
            (key, "the key has no product"),
            (key, "the key has no customer"),
        ]
        with pytest.raises(Refused, match="the key for orders: expected one of Json"):
            driver.pipe("orders", key, key={"customer": "ann"})


@pytest.mark.parametrize("key", ["struct(product, customer)", "struct(customer, n)", "customer"])
def test_an_expression_with_other_fields_than_the_key_has_is_refused(spark: SparkSession, key: str) -> None:
    topology = Topology("refused")
    stream = topology.stream("a", value=Json("customer string, product int, n bigint"))
    stream.select_key(key, key_serde=Json("customer string, product int")).to("b")
    with pytest.raises(Refused) as refused:
        TopologyTestDriver(Pipeline("refused", topology, "", {"a": 1}), spark=spark)
    assert 'and Json("customer string, product int") writes struct<customer: string, product: int>' in str(
        refused.value
    )
    assert "struct(customer, product)" in str(refused.value)


def test_a_key_with_a_schema_is_its_bytes_so_another_id_is_another_key(spark: SparkSession) -> None:
    topology, value = Topology("with-schemas"), Json("n int")
    topology.stream("visits", value=value, key_serde=Bytes()).group_by_key().count(store="counts")
    orders = topology.stream("orders", value=value, key_serde=Bytes())
    orders.join(topology.table("rates", value=Json("rate int"), key_serde=Bytes()), {"rate": "table.rate"}).to("rated")
    ann, again, bob = (key_with_schema(*each) for each in ((1, "ann"), (2, "ann"), (1, "bob")))
    pipeline = Pipeline("with-schemas", topology, "", dict.fromkeys(("visits", "orders", "rates", "rated"), 1))
    with TopologyTestDriver(pipeline, spark=spark) as driver:
        driver.pipe("rates", {"rate": 7}, key=ann)
        with driver.micro_batch():
            for each in (ann, again, bob, ann):
                driver.pipe("visits", {"n": 1}, key=each)
                driver.pipe("orders", {"n": 1}, key=each)
        assert driver.store("counts") == {ann: 2, again: 1, bob: 1}
        assert [record.key for record in driver.output("rated")] == [ann, ann]


def key_with_schema(schema_id: int, customer: str) -> bytes:
    """A key as Confluent's serializer writes it in Avro."""
    schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"id": customer})
    return struct.pack(">bI", 0, schema_id) + stream.getvalue()
