"""Where docs/language.md says "as in the library", or how ours differs: the same records through both.

The library reads the same source topics as ours, and writes topics of its own. Both are waited for where the order of
arrival counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from streamplan.model.windows import TimeWindows
from streamplan.serdes.json import Json

from tests.support.brokers import retried
from tests.support.kafka_streams import STREAMS
from tests.support.records import read_committed
from tests.support.streams_library import Callback, Library, java_with_callbacks, raw, started
from tests.support.tried_topology import Tried
from tests.support.waiting import eventually

AMOUNT = Json("n bigint")
CITY = Json("city string")


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks() as jvm:
        yield jvm


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path / "ours", spark, restoring=False)
    yield made
    made.delete_topics()


class Both:
    """Our topology and the library's, on the same source topics. The library runs from the first drain on."""

    def __init__(self, tried: Tried, library: Library) -> None:
        self.tried, self.library = tried, library
        self._group = Consumer({"bootstrap.servers": tried.bootstrap_servers, "group.id": library.application_id})

    def stream(self, topic: str) -> Any:
        return self.library.stream(self.tried.named(topic))

    def table(self, topic: str, *store: Any) -> Any:
        return self.library.builder.table(self.tried.named(topic), self.library.consumed(), *store)

    def produce(self, topic: str, *records: tuple[str | None, Any, int], **headers: bytes) -> None:
        """Key, value and second of each record, all with the same headers."""
        self.tried.produce(topic, records, headers=[*headers.items()])

    def drain(self) -> None:
        """Wait until both have processed all records of the source topics."""
        self.tried.drain()
        eventually(self._library_is_through, "the library has read all source topics")

    def _library_is_through(self) -> bool:
        for topic in self.tried.topology.source_topics:
            for partition in range(2):
                asked = TopicPartition(topic, partition)
                end = self._group.get_watermark_offsets(asked, 60)[1]
                [found] = retried(lambda asked=asked: self._group.committed([asked], 60))  # type: ignore[misc]
                if found.offset < end and end > 0:
                    return False
        return True

    def outputs(self, topic: str) -> tuple[list[Message], list[Message]]:
        """Our records and the library's."""
        ours = read_committed(self.tried.bootstrap_servers, self.tried.named(topic))
        return ours, read_committed(self.tried.bootstrap_servers, self.library.output(topic))

    def values(self, topic: str) -> tuple[list[Any], list[Any]]:
        """The values of our records and of the library's, in the order of the topic. Each key has one partition."""
        ours, theirs = self.outputs(topic)
        return [value_of(message) for message in ours], [value_of(message) for message in theirs]


def value_of(message: Message) -> Any:
    return None if message.value() is None else json.loads(message.value())


@contextmanager
def both(tried: Tried, jvm: Any, declare: Callable[[Both], None], home: Path) -> Iterator[Both]:
    """Create all topics, and start the library when the block asks for it by ``with``.

    ``declare`` declares the topology twice: with ``tried.topology`` and with the library's builder.
    """
    library = Library(jvm, f"jvm-{uuid.uuid4().hex[:8]}")
    made = Both(tried, library)
    declare(made)
    tried.create_topics()
    outputs = [library.output(topic.removeprefix(f"{tried.name}-")) for topic in tried.topology.sink_topics]
    admin = AdminClient({"bootstrap.servers": tried.bootstrap_servers})
    for future in (admin.create_topics([NewTopic(name, 2, 1) for name in outputs]) if outputs else {}).values():
        future.result(120)
    yield made


def at_work(made: Both, home: Path, **config: str) -> Any:
    return started(made.library, made.library.builder.build(), made.tried.bootstrap_servers, home / "library", **config)


def mapper(function: Callable[[Any], Any]) -> Callback:
    """A ``ValueMapper`` on JSON values, which is given None for a null value."""

    def apply(value: Any) -> bytes | None:
        made = function(None if value is None else json.loads(bytes(value)))
        return None if made is None else json.dumps(made, separators=(",", ":")).encode()

    return Callback(f"{STREAMS}.kstream.ValueMapper", apply=apply)


def predicate(function: Callable[[Any], bool]) -> Callback:
    return Callback(
        f"{STREAMS}.kstream.Predicate",
        test=lambda key, value: function(None if value is None else json.loads(bytes(value))),
    )


def joiner() -> Callback:
    def apply(left: Any, right: Any) -> bytes:
        joined = json.loads(bytes(left)) | ({} if right is None else json.loads(bytes(right)))
        return json.dumps(joined).encode()

    return Callback(f"{STREAMS}.kstream.ValueJoiner", apply=apply)


# -- merged topics


def test_merged_topics_are_taken_by_the_oldest_head(tried: Tried, jvm: Any, tmp_path: Path) -> None:
    """``PartitionGroup.nextRecord``: the oldest of the next records of all topics, and a late one after its own."""

    def declare(made: Both) -> None:
        merged = tried.topology.stream(tried.named("z"), value=AMOUNT).filter("n < 1000")
        merged.merge(tried.topology.stream(tried.named("a"), value=AMOUNT)).to(tried.named("merged"))
        small = predicate(lambda value: value["n"] < 1000)
        made.library.to(made.stream("z").filter(small).merge(made.stream("a")), "merged")

    with both(tried, jvm, declare, tmp_path) as made:
        made.produce("z", *(("k", {"n": n}, second) for n, second in [(1, 1), (5, 5), (3, 3), (9, 9)]))
        made.produce("z", ("k", {"n": 1000}, 20), ("k", {"n": 14}, 14), ("k", {"n": 30}, 30))
        made.produce("a", *(("k", {"n": n}, n) for n in (2, 4, 6, 15, 25)))
        with at_work(made, tmp_path):
            made.drain()
            ours, theirs = made.values("merged")
    assert [value["n"] for value in theirs] == [1, 2, 4, 5, 3, 6, 9, 15, 14, 25, 30]
    assert ours == theirs


def test_reduce_over_merged_topics_keeps_the_newest_and_the_library_the_last(
    tried: Tried, jvm: Any, tmp_path: Path
) -> None:
    """They differ for a record that is late in its own topic. Behind a repartition topic they do not."""

    def declare(made: Both) -> None:
        topology, named, library = tried.topology, tried.named, made.library
        merged = topology.stream(named("z"), value=AMOUNT).merge(topology.stream(named("a"), value=AMOUNT))
        merged.group_by_key().reduce(store="direct")
        merged.repartition(name="through").group_by_key().reduce(store="repartitioned")
        theirs = made.stream("z").merge(made.stream("a"))
        later = Callback(f"{STREAMS}.kstream.Reducer", apply=lambda one, other: raw(other))
        theirs.groupByKey().reduce(later, library.stored("direct"))
        through = library.option("Repartitioned", "with", library.bytes, library.bytes).withName("through")
        theirs.repartition(through).groupByKey().reduce(later, library.stored("repartitioned"))

    with both(tried, jvm, declare, tmp_path) as made:
        made.produce("z", ("k", {"n": 1}, 1), ("k", {"n": 5}, 5), ("k", {"n": 3}, 3))
        made.produce("a", ("k", {"n": 2}, 2))
        with at_work(made, tmp_path):
            made.drain()

            def kept(store: str) -> tuple[Any, Any]:
                theirs = read_committed(tried.bootstrap_servers, f"{made.library.application_id}-{store}-changelog")
                return tried.store(store)["k"]["n"], value_of(theirs[-1])["n"]

            eventually(lambda: kept("repartitioned")[1] == 3, "the library has reduced the repartition topic")
            assert kept("direct") == (5, 3)
            assert kept("repartitioned") == (3, 3)


# -- a stream and a table


@pytest.mark.soak
def test_time_alone_decides_which_row_a_record_meets(tried: Tried, jvm: Any, tmp_path: Path) -> None:
    """In the library a row also counts, whatever its time, from when the task had read all of the stream."""

    def declare(made: Both) -> None:
        topology, named = tried.topology, tried.named
        shops = topology.table(named("shops"), value=CITY)
        joined = {"n": "n", "city": "table.city"}
        topology.stream(named("sales"), value=AMOUNT).join(shops, joined).to(named("joined"))
        made.library.to(made.stream("sales").join(made.table("shops"), joiner()), "joined")

    with both(tried, jvm, declare, tmp_path) as made:
        made.produce("sales", ("k", {"n": 0}, 0))
        made.produce("shops", ("k", {"city": "Lyon"}, 20))
        made.produce("sales", ("k", {"n": 1}, 10))  # there with its row: time decides
        with at_work(made, tmp_path):
            made.drain()
            made.produce("sales", ("k", {"n": 2}, 11))  # it comes after its row
            made.drain()
            made.produce("shops", ("k", {"city": "Turin"}, 40))
            made.drain()
            made.produce("sales", ("k", {"n": 3}, 30))
            made.drain()
            made.produce("shops", ("k", None, 50))
            made.drain()
            made.produce("sales", ("k", {"n": 4}, 45))
            made.drain()
            ours, theirs = made.values("joined")
    assert theirs == [{"n": 2, "city": "Lyon"}, {"n": 3, "city": "Turin"}]
    assert ours == [{"n": 3, "city": "Lyon"}, {"n": 4, "city": "Turin"}]


# -- headers


def test_headers(tried: Tried, jvm: Any, tmp_path: Path) -> None:
    """A record keeps its headers. An update of an aggregate has none, and in the library those of its last record."""

    def declare(made: Both) -> None:
        topology, named, library = tried.topology, tried.named, made.library
        sales = topology.stream(named("sales"), value=AMOUNT)
        shops = topology.table(named("shops"), value=CITY, store="table")
        sales.map_values({"n": "n + 1"}).to(named("mapped"))
        sales.left_join(shops, {"n": "n", "city": "table.city"}).to(named("joined"))
        through = sales.repartition(name="through")
        through.group_by_key().count(store="counted").to_stream().to(named("counts"))
        theirs = made.stream("sales")
        library.to(theirs.mapValues(mapper(lambda value: {"n": value["n"] + 1})), "mapped")
        library.to(theirs.leftJoin(made.table("shops", library.stored("table")), joiner()), "joined")
        repartitioned = library.option("Repartitioned", "with", library.bytes, library.bytes).withName("through")
        counted = theirs.repartition(repartitioned).groupByKey().count(library.stored("counted"))
        produced = library.option("Produced", "with", library.bytes, library.serdes.Long())
        counted.toStream().to(library.output("counts"), produced)

    with both(tried, jvm, declare, tmp_path) as made:
        made.produce("shops", ("k", {"city": "Lyon"}, 0), trace=b"of the table")
        made.produce("sales", ("k", {"n": 1}, 1), trace=b"first")
        made.produce("sales", ("k", {"n": 2}, 2), trace=b"second", more=b"\xff")
        made.produce("sales", ("k", {"n": 3}, 1), late=b"the last")
        with at_work(made, tmp_path):
            made.drain()
            eventually(lambda: bool(made.outputs("counts")[1]), "the library's count")
            for topic in ("mapped", "joined", "counts"):
                ours, theirs = made.outputs(topic)
                if topic != "counts":
                    assert [m.headers() for m in ours] == [m.headers() for m in theirs]
                assert ours[-1].headers() == (None if topic == "counts" else [("late", b"the last")])
                assert theirs[-1].headers() == [("late", b"the last")]
            changelogs = [
                tried.topology.changelog_topic(store)
                for group in tried.topology.subtopologies
                for store in group.stores
            ]
            assert len(changelogs) == 2
            for changelog in changelogs:  # what is written there has none
                for name in (changelog, changelog.replace(tried.name, made.library.application_id, 1)):
                    eventually(lambda name=name: bool(tried.read(name)), f"records in {name}")
                    assert {str(m.headers()) for m in tried.read(name)} == {"None"}


# -- null values


def of(count: int) -> bytes:
    return count.to_bytes(8, "big")


@pytest.mark.soak
def test_null_values_in_a_stream(tried: Tried, jvm: Any, tmp_path: Path) -> None:
    """They pass the operations and are written. Joins and aggregations without windows pass over them."""

    def declare(made: Both) -> None:
        topology, named, library = tried.topology, tried.named, made.library
        sales = topology.stream(named("sales"), value=AMOUNT)
        others = topology.stream(named("others"), value=AMOUNT)
        shops = topology.table(named("shops"), value=CITY)
        doubled = sales.map_values({"n": "2 * n"})
        sales.to(named("copied"))
        sales.filter("n > 1").to(named("large"))
        sales.filter("n is null").to(named("without"))
        doubled.to(named("doubled"))
        doubled.merge(others).to(named("merged"))
        sales.left_join(shops, {"n": "n", "city": "table.city"}).to(named("joined"))
        sales.repartition(name="through").to(named("repartitioned"))
        grouped = sales.select_key("'all'").group_by_key(name="grouped")
        grouped.count(store="counted")
        grouped.windowed_by(TimeWindows("1 minute")).count(store="windowed")

        theirs, other = made.stream("sales"), made.stream("others")
        twice = theirs.mapValues(mapper(lambda value: None if value is None else {"n": 2 * value["n"]}))
        library.to(theirs, "copied")
        library.to(theirs.filter(predicate(lambda value: value is not None and value["n"] > 1)), "large")
        library.to(theirs.filter(predicate(lambda value: value is None)), "without")
        library.to(twice, "doubled")
        library.to(twice.merge(other), "merged")
        library.to(theirs.leftJoin(made.table("shops"), joiner()), "joined")
        through = library.option("Repartitioned", "with", library.bytes, library.bytes).withName("through")
        library.to(theirs.repartition(through), "repartitioned")
        regrouped = library.grouped(theirs, lambda key, value: b"all", "grouped")
        regrouped.count(library.stored("counted"))
        duration = jvm.java.time.Duration
        minutes = library.option("TimeWindows", "ofSizeAndGrace", duration.ofMinutes(1), duration.ofDays(1))
        regrouped.windowedBy(minutes).count(library.stored("windowed"))

    with both(tried, jvm, declare, tmp_path) as made:
        made.produce("sales", ("k", {"n": 1}, 1), ("k", None, 2), ("k", {"n": 3}, 3))
        made.produce("others", ("k", {"n": 7}, 4), ("k", None, 5))
        made.produce("shops", ("k", {"city": "Lyon"}, 0))
        with at_work(made, tmp_path):
            made.drain()
            eventually(lambda: len(made.outputs("repartitioned")[1]) == 3, "the repartition topic's records")
            found = {
                topic.removeprefix(f"{tried.name}-"): made.values(topic.removeprefix(f"{tried.name}-"))
                for topic in tried.topology.sink_topics
            }

            def counts(application_id: str) -> list[bytes | None]:
                """The last value of each of the two changelogs."""
                names = [f"{application_id}-{store}-changelog" for store in ("counted", "windowed")]
                return [tried.read(name)[-1].value() if tried.read(name) else None for name in names]

            eventually(lambda: counts(made.library.application_id) == [of(2), of(3)], "the library has counted")
            assert counts(tried.name) == [of(2), of(3)]  # a windowed aggregation does not look at the value
    assert found["copied"][1] == found["repartitioned"][1] == [{"n": 1}, None, {"n": 3}]
    assert found["large"][1] == [{"n": 3}]
    assert found["without"][1] == [None]
    assert found["merged"][1] == [{"n": 2}, None, {"n": 6}, {"n": 7}, None]
    assert [value["n"] for value in found["joined"][1]] == [1, 3]
    assert {topic: ours for topic, (ours, _) in found.items()} == {
        topic: theirs for topic, (_, theirs) in found.items()
    }
    assert tried.dead_letters() == []


@pytest.mark.soak
def test_null_keys(tried: Tried, jvm: Any, tmp_path: Path) -> None:
    """A left join takes them, behind a repartition topic, too. What the library drops elsewhere is dead-lettered."""

    def declare(made: Both) -> None:
        topology, named, library = tried.topology, tried.named, made.library
        joined = {"n": "n", "city": "table.city"}
        sales = topology.stream(named("sales"), value=AMOUNT)
        shops = topology.table(named("shops"), value=CITY)
        sales.left_join(shops, joined).to(named("left"))
        sales.join(shops, joined).to(named("inner"))
        again = topology.table(named("again"), value=CITY)
        sales.select_key("record.key").left_join(again, joined, name="one").to(named("left-again"))
        sales.select_key("record.key").join(again, joined, name="two").to(named("inner-again"))

        theirs, table, other = made.stream("sales"), made.table("shops"), made.table("again")
        same = Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=lambda key, value: raw(key))

        def named_join(name: str) -> Any:
            return library.option("Joined", "with", library.bytes, library.bytes, library.bytes).withName(name)

        library.to(theirs.leftJoin(table, joiner()), "left")
        library.to(theirs.join(table, joiner()), "inner")
        library.to(theirs.selectKey(same).leftJoin(other, joiner(), named_join("one")), "left-again")
        library.to(theirs.selectKey(same).join(other, joiner(), named_join("two")), "inner-again")

    with both(tried, jvm, declare, tmp_path) as made:
        made.produce("shops", ("k", {"city": "Lyon"}, 0))
        made.produce("again", ("k", {"city": "Turin"}, 0))
        made.produce("sales", ("k", {"n": 1}, 1), (None, {"n": 2}, 2), ("k", {"n": 3}, 3))
        with at_work(made, tmp_path):
            made.drain()
            lengths = {"left": 3, "inner": 2, "left-again": 3, "inner-again": 2}
            eventually(
                lambda: all(len(made.values(topic)[1]) == length for topic, length in lengths.items()),
                "the library has joined",
            )
            for topic in lengths:
                ours, theirs = (
                    sorted((m.key() or b"", sorted(value_of(m).items())) for m in found)
                    for found in made.outputs(topic)
                )
                assert ours == theirs, topic
    assert tried.dead_letters() == [("sales", "the key is null")]


def test_a_null_value_has_no_field_to_be_grouped_by(tried: Tried) -> None:
    """The library's mapper fails on it, or drops it. Here it is dead-lettered, by either way of re-keying."""
    topology, named = tried.topology, tried.named
    topology.stream(named("one"), value=AMOUNT).group_by("n").count(store="one")
    topology.stream(named("two"), value=AMOUNT).filter("n is null or n > 0").group_by("n").count(store="two")
    tried.create_topics()
    for topic in ("one", "two"):
        tried.produce(topic, [("k", {"n": 1}, 1), ("k", None, 2)])
    tried.drain()
    assert tried.dead_letters() == [("one", "the value is null"), ("two", "the value is null")]
