"""What the recount by Spark says of output topics that others write to, that lose records, or that are wrong.

No aggregator runs here. Each test writes by hand what an application would have written, and commits its positions.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from streamplan.checks.framework.check import Observation
from streamplan.errors import CouldNotLook
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics, delete_records, delete_topics
from streamplan.maintenance.reset import Resetter
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.model.windows import CalendarWindows, JoinWindows, OnWindowClose, SessionWindows, TimeWindows
from streamplan.reports.sink_offsets import SinkOffsets, read_sink_offsets
from streamplan.serdes.json import Json
from streamplan.serdes.subscriptions import Instruction, Subscription, combined_key, value_hash
from streamplan.settings import Settings
from streamplan.spark.recount.recount import _Recount, recount

from tests.support.soak import soak

_numbers = itertools.count()

MINUTE = 60_000
AT = (int(time.time()) // 60 - 60) * MINUTE
"""A time at which a minute begins. The retention of the topics does not reach it."""


class ByHand:
    """A topology from the topic ``source`` to the topic ``sink``, each of 2 partitions, and what is written by hand."""

    def __init__(self, bootstrap_servers: str, spark: SparkSession, declare: Callable[[Topology, str, str], None]):
        name = f"by-hand-{os.getpid()}-{next(_numbers)}"
        self.brokers, self.spark = Brokers(bootstrap_servers), spark
        self.source, self.sink = f"{name}-in", f"{name}-out"
        topology = Topology(name)
        declare(topology, self.source, self.sink)
        test_data = TestData((self.source,), lambda n: (self.source, b"", b""), "n")
        topics = dict.fromkeys((*topology.source_topics, self.sink), 2)
        self.pipeline = Pipeline(name, topology, "", topics, test_data)
        self.producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
        self.group = {"bootstrap.servers": bootstrap_servers, "group.id": topology.application_id}
        apply_topics(self.brokers, self.pipeline)

    def write(self, topic: str, *records: tuple[bytes | None, bytes | None, int], **more: object) -> None:
        for key, value, timestamp in records:
            self.producer.produce(topic, value, key, timestamp=timestamp, **more)
        assert self.producer.flush(120) == 0

    def ends(self, topic: str) -> dict[int, int]:
        offsets = KafkaCluster(self.brokers).offsets(topic)
        return {number: found.high_watermark for number, found in offsets.items()}

    def rows(
        self, sinks: SinkOffsets | None = None, positions: Mapping[tuple[str, int], int] | None = None
    ) -> list[Observation]:
        """The rows of a recount; all input is processed, unless ``positions`` say another one."""
        groups = self.pipeline.topology.subtopologies
        topics = dict.fromkeys(topic for group in groups for topic in self.pipeline.source_topics(group))
        ends = {(topic, number): end for topic in topics for number, end in self.ends(topic).items()}
        at = [TopicPartition(*place, end) for place, end in {**ends, **(positions or {})}.items()]
        consumer = Consumer(self.group)
        consumer.commit(offsets=at, asynchronous=False)
        consumer.close()
        return list(recount(self.spark, self.pipeline, KafkaCluster(self.brokers), self.brokers, sinks))

    def wrong(self, sinks: SinkOffsets | None = None) -> str:
        return "\n".join(f"{row.subject}: {row.expected}, {row.observed}" for row in self.rows(sinks) if not row.agrees)


Declare = Callable[[Callable[[Topology, str, str], None]], ByHand]


@pytest.fixture
def declared(bootstrap_servers: str, spark: SparkSession) -> Iterator[Declare]:
    made: list[ByHand] = []

    def declare(function: Callable[[Topology, str, str], None]) -> ByHand:
        made.append(ByHand(bootstrap_servers, spark, function))
        return made[-1]

    yield declare
    for one in made:
        delete_topics(one.brokers, [spec.name for spec in one.pipeline.topics()])


# -- aggregates of several streams


def cogrouped(topology: Topology, source: str, sink: str) -> None:
    others = topology.stream(f"{source}-others", value=Json("m int, s string")).group_by_key()
    numbers = topology.stream(source, value=Json("n int")).group_by_key()
    of_others = {"m": "sum(m)", "best": "max_by(s, m)"}
    numbers.cogroup({"n": "sum(n)"}).cogroup(others, of_others).aggregate(store="both").to_stream().to(sink)


@pytest.mark.soak
def test_what_several_streams_are_folded_into_is_recounted(declared: Declare) -> None:
    """Of two values with the same greatest number either may be stored."""
    one = declared(cogrouped)
    changelog = one.pipeline.topology.changelog_topic("both")
    one.write(one.source, record(b"a", 1), record(b"a", 3), record(b"b", 2), (b"b", None, AT + 4))
    one.write(f"{one.source}-others", (b"a", b'{"m": 5, "s": "x"}', AT + 9), (b"a", b'{"m": 5, "s": "y"}', AT + 9))
    stored = [
        (b"a", b'{"n":4,"m":10,"best":{"value":"%b","by":5}}', AT + 9),
        (b"b", b'{"n":2}', AT + 2),
    ]
    shown = [(b"a", b'{"n":4,"m":10,"best":"%b"}', AT + 9), stored[1]]

    def write(best: bytes, first: bytes) -> None:
        rows = [(key, value % best if b"%" in value else value, at) for key, value, at in stored]
        one.write(changelog, (b"a", first, AT + 1), *rows)
        one.write(one.sink, *((key, value % best if b"%" in value else value, at) for key, value, at in shown))

    write(b"y", b'{"n":1}')
    assert one.wrong() == ""
    assert {row.observed for row in one.rows() if "keys" in row.subject} == {2}
    write(b"z", b'{"n":1}')
    assert f"{changelog}" in one.wrong()


# -- joins of two streams


def joined_with_itself(topology: Topology, source: str, sink: str) -> None:
    numbers = topology.stream(source, value=Json("n int"))
    numbers.join(numbers, {"sum": "n + other.n"}, within=JoinWindows("1 minute")).to(sink)


def test_of_a_join_of_two_streams_the_dead_letters_alone_are_compared(declared: Declare) -> None:
    one = declared(joined_with_itself)
    one.write(one.source, record(b"a", 1), (b"a", b"no JSON", AT))
    topology = one.pipeline.topology
    rows = one.rows()
    not_compared = {row.subject for row in rows if not row.is_judged and "a join of two streams" in row.where}
    (group,) = topology.subtopologies
    assert not_compared == {one.sink, *map(topology.changelog_topic, group.stores)}
    assert [row.subject for row in rows if not row.agrees] == [
        f"{topology.dead_letter_topic}: records that sub-topology 0 could not process (see {one.source}-"
        f"{partition_for_key(b'a', 2)} offset 1)"
    ]


# -- joins of two tables


def tables_joined(topology: Topology, source: str, sink: str) -> None:
    others = topology.table(f"{source}-others", value=Json("m int"), store="others")
    numbers = topology.table(source, value=Json("n int"), store="numbers")
    numbers.left_join(others, {"n": "n", "m": "table.m"}, store="joined").to_stream().to(sink)


def test_the_last_joined_value_of_each_key_is_recounted(declared: Declare) -> None:
    one = declared(tables_joined)
    changelogs = {store: one.pipeline.topology.changelog_topic(store) for store in ("numbers", "others", "joined")}
    of_numbers = [record(b"a", 1), record(b"b", 2), record(b"a", 3), (b"b", None, AT + 4), record(b"e", 4)]
    of_others = [
        (b"a", b'{"m": 5}', AT + 9),
        (b"c", b'{"m": 6}', AT + 1),
        (b"e", b'{"m": 7}', AT),
        (b"e", None, AT + 8),
    ]
    one.write(one.source, *of_numbers, (b"d", b"no JSON", AT))
    one.write(f"{one.source}-others", *of_others)
    one.write(changelogs["numbers"], *of_numbers)
    one.write(changelogs["others"], *of_others)
    last = (b"a", b'{"n":3,"m":5}', AT + 9)
    for topic in (one.sink, changelogs["joined"]):
        # As if the other table had come last.
        one.write(topic, (b"b", b'{"n":2}', AT + 2), (b"a", b'{"n":1}', AT + 1), (b"b", None, AT + 4), last)
        one.write(topic, (b"e", b'{"n":4}', AT + 8))  # as if the other value had been deleted later
    one.write(one.sink, (b"a", b'{"n":3,"m":4}', AT + 9))
    one.write(changelogs["joined"], (b"c", b'{"m":6}', AT + 1))
    rows = one.rows()
    wrong = {row.subject: (row.expected, row.observed) for row in rows if not row.agrees}
    assert wrong.pop(f"{changelogs['joined']}: key c") == ("none", '{"m":6}')
    (no_json, recounted) = sorted(wrong)
    assert no_json.startswith(f"{one.pipeline.topology.dead_letter_topic}: records that sub-topology 0")
    assert recounted == f"{changelogs['joined']}: keys whose last value is the recounted one"
    told = [row.subject for row in rows]
    (doubt,) = (subject for subject in told if subject.startswith(f"{one.sink}: 1 keys whose last value is another"))
    assert "(a). Whether they are wrong cannot be told: another producer may write to the topic" in doubt


# -- joins of two tables by a foreign key


def tables_computed(topology: Topology, source: str, sink: str) -> None:
    kept = topology.table(source, value=Json("n int")).filter("n > 1", store="kept")
    kept.map_values({"twice": "2 * n"}).to_stream().to(sink)


def test_the_values_that_a_table_keeps_and_those_that_it_deletes_are_recounted(declared: Declare) -> None:
    one = declared(tables_computed)
    changelog = one.pipeline.topology.changelog_topic("kept")
    one.write(one.source, record(b"a", 5), record(b"b", 1), record(b"c", 3), (b"c", None, AT + 4))
    stored = record(b"a", 5), (b"b", None, AT + 1), record(b"c", 3), (b"c", None, AT + 4)
    one.write(changelog, *stored)
    one.write(one.sink, (b"a", b'{"twice":10}', AT + 5), (b"b", None, AT + 1), (b"c", b'{"twice":6}', AT + 3))
    one.write(changelog, record(b"b", 1))
    wrong = one.wrong()
    assert f"{changelog}: key b: none" in wrong
    assert f"{one.sink}: key c: none" in wrong
    assert f"{changelog}: key a" not in wrong
    assert f"{changelog}: key c" not in wrong
    assert f"{one.sink}: key a" not in wrong
    assert f"{one.sink}: key b" not in wrong


def joined_by_foreign_key(topology: Topology, source: str, sink: str) -> None:
    others = topology.table(f"{source}-others", value=Json("m int"), store="others")
    numbers = topology.table(source, value=Json("n int, other string"), store="numbers")
    joined = numbers.join(others, {"n": "n", "m": "table.m"}, foreign_key="other", store="joined", name="by-other")
    joined.to_stream().to(sink)


def referring(key: bytes, n: int, other: bytes) -> tuple[bytes, bytes, int]:
    return key, b'{"n": %d, "other": "%b"}' % (n, other), AT + n


def subscription(record: tuple[bytes, bytes, int], other: bytes) -> tuple[bytes, bytes, int]:
    key, value, at = record
    asked = Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
    return other, Subscription(value_hash(value), asked, key, partition_for_key(key, 2)).written(), at


def test_the_last_values_of_both_tables_are_joined_again_but_for_what_is_under_way(declared: Declare) -> None:
    """Key a is right, b and c are wrong, and a new subscription of e is under way: nobody knows its last value."""
    one = declared(joined_by_foreign_key)
    topology = one.pipeline.topology
    changelogs = {store: topology.changelog_topic(store) for store in ("numbers", "others", "joined")}
    registration = topology.decorate("by-other-subscription-registration-topic")
    stored = topology.changelog_topic("by-other-subscription-store")
    a, b, c, e = (referring(*row) for row in ((b"a", 1, b"x"), (b"b", 2, b"x"), (b"c", 3, b"y"), (b"e", 4, b"x")))
    others = (b"x", b"x", b"y", b"x")
    subscriptions = [
        (record[0], *subscription(record, other)) for record, other in zip((a, b, c, e), others, strict=True)
    ]
    for topic in (one.source, changelogs["numbers"]):
        one.write(topic, a, b, c, e)
    for topic in (f"{one.source}-others", changelogs["others"]):
        one.write(topic, (b"x", b'{"m": 5}', AT + 9))
    for key, other, value, at in subscriptions:
        one.write(registration, (other, value, at))
        one.write(stored, (combined_key(other, key), value, at), partition=partition_for_key(other, 2))
    one.write(stored, (combined_key(b"x", b"d"), subscriptions[0][2], AT), partition=partition_for_key(b"x", 2))
    for topic in (one.sink, changelogs["joined"]):
        one.write(topic, *((key, b'{"n":%d,"m":5}' % n, AT + 9) for key, n in ((b"a", 1), (b"b", 2), (b"e", 7))))
    one.write(changelogs["joined"], (b"b", b'{"n":2,"m":4}', AT + 9), (b"c", b'{"n":3}', AT + 9))
    one.write(registration, subscription(referring(b"e", 8, b"x"), b"x"))
    of_x = (registration, partition_for_key(b"x", 2))
    rows = one.rows(positions={of_x: one.ends(registration)[of_x[1]] - 1})
    wrong = {row.subject: (row.expected, row.observed) for row in rows if not row.agrees}
    read = subscriptions[0][2].decode(errors="backslashreplace")
    recounted = "keys whose last value is the recounted one"
    assert wrong == {
        f"{changelogs['joined']}: key b": ('{"n":2,"m":5}', '{"n":2,"m":4}'),
        f"{changelogs['joined']}: key c": ("none", '{"n":3}'),
        f"{changelogs['joined']}: {recounted}": (3, 1),  # of a, b and c
        f"{stored}: key 'x' of 'd'": ("none", read),
        f"{stored}: {recounted}": (5, 4),
    }
    under_way = {row.subject for row in rows if not row.is_judged and row.where == "a change is under way"}
    assert f"1 keys of {changelogs['joined']}" in under_way


# -- one record, one record


def passed_on(topology: Topology, source: str, sink: str) -> None:
    topology.stream(source, value=Json("n int")).filter("n > 0").to(sink)


def record(key: bytes, n: int) -> tuple[bytes, bytes, int]:
    return key, b'{"n": %d}' % n, AT + n


A, B, C, D = (record(b"a", n) for n in (1, 2, 3, 4))


@pytest.fixture
def passing(declared: Declare) -> ByHand:
    app = declared(passed_on)
    app.write(app.source, A, B, C, D)
    return app


def test_equal_records_are_equal(passing: ByHand) -> None:
    passing.write(passing.sink, A, B, C, D)
    assert passing.wrong() == ""
    (row,) = (row for row in passing.rows() if row.subject.startswith(f"{passing.sink}: records"))
    assert row.expected == 4


def test_few_records_are_recounted_in_few_partitions(passing: ByHand) -> None:
    """Spark's default is 200, each with a task, and a recount has dozens of jobs."""
    passing.write(passing.sink, A, B, C, D)
    spark, name = passing.spark, "spark.sql.shuffle.partitions"
    context, before = spark.sparkContext, spark.conf.get(name)
    spark.conf.set(name, "200")
    context.setJobGroup(passing.sink, "a recount")
    try:
        assert passing.wrong() == ""
        assert spark.conf.get(name) == "200"
    finally:
        spark.conf.set(name, str(before))
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(passing.sink)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    tasks = [stage.numTasks for stage in stages if stage is not None]
    assert len(tasks) > 3
    assert max(tasks) < 20


def test_what_is_left_of_a_source_is_compared(passing: ByHand) -> None:
    """Its retention has deleted A and B. What was made of them is not compared; the rest is."""
    passing.write(passing.sink, A, B, C)
    place = partition_for_key(b"a", 2)
    delete_records(passing.brokers, passing.source, {place: 2})
    assert f"{passing.sink}: records as the input demands, in its order: 2, 1" in passing.wrong()
    passing.write(passing.sink, D)
    assert passing.wrong() == ""
    assert any(f"what was made of {passing.source}-" in row.subject for row in passing.rows() if not row.is_judged)


def test_an_aggregate_of_deleted_records_can_no_longer_be_proven(declared: Declare) -> None:
    def counted(topology: Topology, source: str, sink: str) -> None:
        topology.stream(source, value=Json("n int")).group_by_key().count(store="totals").to_stream().to(sink)

    app = declared(counted)
    app.write(app.source, A, B)
    delete_records(app.brokers, app.source, {partition_for_key(b"a", 2): 1})
    with pytest.raises(CouldNotLook, match=r"begins at offset 1.*Nobody can prove any more"):
        app.rows()


def test_two_of_one_record_are_not_two_of_another(declared: Declare) -> None:
    """An xor of their hashes is 0 either way."""
    app = declared(passed_on)
    app.write(app.source, A, A)
    app.write(app.sink, B, B)
    wrong = app.wrong()
    assert f"{app.sink}: records as the input demands, in its order: 2, 0" in wrong
    assert 'offset 0: key a, value {"n": 1}' in wrong
    assert f'key a, value {{"n": 2}}, timestamp {AT + 2}: none, there' in wrong


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        pytest.param(
            lambda app: app.write(app.sink, A, (b"a", B[1], AT + 9), C, D),
            f"timestamp {AT + 9}",
            id="timestamp",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            lambda app: (
                app.write(app.sink, A),
                app.write(app.sink, B, headers=[("h", b"1")]),
                app.write(app.sink, C, D),
            ),
            'headers [{"key":"h"',
            id="headers",
            marks=pytest.mark.soak,
        ),
        pytest.param(lambda app: app.write(app.sink, A, C, B, D), "behind offset 2, at offset 1", id="order"),
        pytest.param(lambda app: app.write(app.sink, A, B, C, C, D), "once, once more", id="doubled"),
        pytest.param(lambda app: app.write(app.sink, A, B, D), 'offset 2: key a, value {"n": 3}', id="lost"),
    ],
)
def test_what_is_wrong_is_named(passing: ByHand, changed: Callable[[ByHand], object], named: str) -> None:
    changed(passing)
    assert named in passing.wrong()


def test_a_record_in_the_partition_of_another_key(declared: Declare) -> None:
    app = declared(passed_on)
    key = next(b"%d" % n for n in range(9) if partition_for_key(b"%d" % n, 2) == 0)
    app.write(app.source, record(key, 1))
    app.write(app.sink, record(key, 1), partition=1)
    assert f"{app.sink}: partition of key {key.decode()} at offset 0: 0, 1" in app.wrong()


@pytest.mark.soak
def test_another_producer_is_no_fault_and_nothing_is_proved(passing: ByHand) -> None:
    passing.write(passing.sink, A, B, C, D, (b"other", b"{}", AT))
    with pytest.raises(CouldNotLook, match=r"1 records that the input does not demand.*another producer"):
        passing.rows()
    passing.write(passing.sink, C)
    assert "once, once more" in passing.wrong()


@pytest.mark.soak
def test_after_a_reset_what_was_written_before_is_not_counted(passing: ByHand, tmp_path: Path) -> None:
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})
    passing.write(passing.sink, A, B, C, D)
    assert passing.wrong() == ""
    reset = Resetter(passing.pipeline, passing.brokers, settings)
    reset.apply(reset.observe().written())
    passing.write(passing.sink, A, B, C, D)
    with pytest.raises(CouldNotLook, match=r"4 records that are there once more.*an earlier run"):
        passing.rows()  # nobody says where the application began
    path = ReportPaths(settings.reports, passing.pipeline.name).sink_offsets
    sinks = read_sink_offsets(path, KafkaCluster(passing.brokers))
    assert passing.wrong(sinks) == ""
    passing.write(passing.sink, C)
    assert "once, once more" in passing.wrong(sinks)


@pytest.mark.soak
def test_records_that_a_sink_has_deleted_are_not_missing(passing: ByHand) -> None:
    passing.write(passing.sink, A, B, D)
    (partition,) = (number for number, end in passing.ends(passing.sink).items() if end)
    assert 'offset 2: key a, value {"n": 3}' in passing.wrong()
    delete_records(passing.brokers, passing.sink, {partition: 1})
    assert 'offset 2: key a, value {"n": 3}' in passing.wrong()  # B is there, and C came after it
    delete_records(passing.brokers, passing.sink, {partition: 2})
    assert passing.wrong() == ""
    assert [row.subject for row in passing.rows() if not row.is_judged] == [f"3 records of {passing.sink}"]


# -- windows


def per_minute(topology: Topology, source: str, sink: str) -> None:
    (
        topology.stream(source, value=Json("n int"))
        .group_by_key()
        .windowed_by(TimeWindows("1 minute", grace="1 minute"))
        .count(store="counts")
        .to_stream()
        .to(sink)
    )


def count(key: bytes, start: int, total: int, timestamp: int, *, stored: bool) -> tuple[bytes, bytes, int]:
    """A record of the changelog (``stored``) or of the sink."""
    return key + start.to_bytes(8, "big") + bytes(4 if stored else 0), total.to_bytes(8, "big"), timestamp


@pytest.mark.soak
def test_a_record_that_came_too_late_is_not_missing(declared: Declare) -> None:
    app = declared(per_minute)
    late = AT + 1
    app.write(app.source, (b"a", b"{}", AT), (b"a", b"{}", AT + 10 * MINUTE), (b"a", b"{}", late))
    changelog = app.pipeline.topology.changelog_topic("counts")
    totals = [(AT, 1, AT), (AT + 10 * MINUTE, 1, AT + 10 * MINUTE)]
    partition = next(number for number, end in app.ends(app.source).items() if end)
    app.write(changelog, *(count(b"a", *total, stored=True) for total in totals), partition=partition)
    app.write(app.sink, *(count(b"a", *total, stored=False) for total in totals), partition=partition)
    assert app.wrong() == ""
    said = {row.subject for row in app.rows() if not row.is_judged}
    assert said == {f"1 windows of {topic}" for topic in (changelog, app.sink)}
    app.write(app.sink, count(b"a", AT + 10 * MINUTE, 2, AT + 10 * MINUTE, stored=False), partition=partition)
    with pytest.raises(CouldNotLook, match="whose last value is another than the recounted one"):
        app.rows()
    app.write(changelog, count(b"a", AT + 10 * MINUTE, 2, AT + 10 * MINUTE, stored=True), partition=partition)
    assert f"{changelog}: key a" in app.wrong()


def by_another_key(topology: Topology, source: str, sink: str) -> None:
    """What is made of windows has another key, and meets a table by it."""
    rooms = topology.table(f"{source}-rooms", value=Json("room string"), store="rooms")
    (
        topology.stream(source, value=Json("n int"))
        .group_by_key()
        .windowed_by(TimeWindows("1 minute", grace="1 minute"))
        .aggregate({"n": "count(*)", "mean": "avg(n)", "most": "max(n)"}, store="minutes")
        .to_stream()
        .map_values({"start": "record.window.start", "n": "n", "mean": "round(mean, 2)", "most": "most"})
        .select_key("record.key", name="again")
        .join(rooms, {"room": "table.room", "start": "start", "n": "n", "mean": "mean"}, name="with-room")
        .to(sink)
    )


def test_spark_optimizes_what_is_recounted_before_it_meets_the_dead_letters(
    declared: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both in one plan the optimizer does not come to an end. So the join of both reads rows that are computed."""
    app = declared(by_another_key)
    app.write(app.source, record(b"a", 1))
    app.write(app.pipeline.topology.dead_letter_topic, (b"a", b"a dead letter", AT))
    with_turns = _Recount._with_turns

    def look(self: _Recount, rows: DataFrame, letters: DataFrame) -> DataFrame:
        joined = with_turns(self, rows, letters)
        leaves = joined._jdf.queryExecution().withCachedData().collectLeaves()  # what comes before the optimizer
        assert {leaves.apply(number).nodeName() for number in range(leaves.size())} == {"InMemoryRelation"}
        rows.unpersist()
        letters.unpersist()
        raise CouldNotLook("seen")  # to compute the rows takes a minute

    monkeypatch.setattr(_Recount, "_with_turns", look)
    with pytest.raises(CouldNotLook, match="seen"):
        app.rows()


def per_hopping_window(topology: Topology, source: str, sink: str) -> None:
    windows = TimeWindows("2 minutes", advance="1 minute", grace="1 minute")
    best = topology.stream(source, value=Json("n int, by int")).group_by_key().windowed_by(windows)
    best.aggregate({"best": "max_by(n, by)"}, store="best").to_stream().to(sink)


@pytest.mark.soak
def test_each_window_of_those_that_overlap_is_compared(declared: Declare) -> None:
    """Of two records with the same greatest value either is right, in each window that has both."""
    app = declared(per_hopping_window)
    app.write(app.source, (b"a", b'{"n": 1, "by": 5}', AT), (b"a", b'{"n": 2, "by": 5}', AT + 1))
    changelog = app.pipeline.topology.changelog_topic("best")
    partition = next(number for number, end in app.ends(app.source).items() if end)

    def write(begin: int, kept: int) -> None:
        value = b'{"best":{"value":%d,"by":5}}' % kept
        app.write(changelog, (b"a" + begin.to_bytes(8, "big") + bytes(4), value, AT + 1), partition=partition)
        app.write(app.sink, (b"a" + begin.to_bytes(8, "big"), b'{"best":%d}' % kept, AT + 1), partition=partition)

    write(AT, 1)
    assert f"{changelog}: key a" in app.wrong()  # the window that began a minute earlier is missing
    write(AT - MINUTE, 2)
    assert app.wrong() == ""


def per_day_of_tokyo(topology: Topology, source: str, sink: str) -> None:
    days = CalendarWindows("1 day", time_zone="Asia/Tokyo", grace="1 day")
    best = topology.stream(source, value=Json("n int, by int")).group_by_key().windowed_by(days)
    best.aggregate({"best": "max_by(n, by)"}, store="best").to_stream().to(sink)


@pytest.mark.soak
def test_each_day_of_a_time_zone_is_compared(declared: Declare) -> None:
    """Of two records with the same greatest value either is right."""
    app = declared(per_day_of_tokyo)
    before = AT - 24 * 60 * MINUTE
    app.write(app.source, (b"a", b'{"n": 1, "by": 5}', before), (b"a", b'{"n": 2, "by": 5}', AT))
    app.write(app.source, (b"a", b'{"n": 3, "by": 5}', AT))
    changelog = app.pipeline.topology.changelog_topic("best")
    partition = next(number for number, end in app.ends(app.source).items() if end)

    def write(at: int, kept: int) -> None:
        date = datetime.fromtimestamp(at / 1000, ZoneInfo("Asia/Tokyo")).date()
        begin = round(datetime.combine(date, datetime.min.time(), ZoneInfo("Asia/Tokyo")).timestamp()) * 1000
        value = b'{"best":{"value":%d,"by":5}}' % kept
        app.write(changelog, (b"a" + begin.to_bytes(8, "big") + bytes(4), value, at), partition=partition)
        app.write(app.sink, (b"a" + begin.to_bytes(8, "big"), b'{"best":%d}' % kept, at), partition=partition)

    write(AT, 3)
    assert f"{changelog}: key a" in app.wrong()  # the day before is missing
    write(before, 1)
    assert app.wrong() == ""


# -- sessions


def per_session(topology: Topology, source: str, sink: str) -> None:
    sessions = topology.stream(source, value=Json("n int, by int")).group_by_key()
    windowed = sessions.windowed_by(SessionWindows("1 minute", grace="1 minute"))
    windowed.aggregate({"best": "max_by(n, by)"}, store="best").to_stream().to(sink)


@pytest.mark.soak
def test_sessions_of_keys_without_late_records_are_compared(declared: Declare) -> None:
    """Two sessions have become one. Of its records with the same greatest value either is right."""
    app = declared(per_session)
    app.write(app.source, (b"a", b'{"n": 1, "by": 5}', AT + MINUTE), (b"a", b'{"n": 2, "by": 5}', AT + 1))
    app.write(app.source, *((b"b", b'{"n": 3, "by": 5}', at) for at in (AT, AT + 10 * MINUTE, AT + 1)))
    changelog = app.pipeline.topology.changelog_topic("best")

    def write(key: bytes, start: int, end: int, kept: int | None) -> None:
        session = key + end.to_bytes(8, "big") + start.to_bytes(8, "big")
        partition = partition_for_key(key, 2)
        stored, result = (
            None if kept is None else text % kept for text in (b'{"best":{"value":%d,"by":5}}', b'{"best":%d}')
        )
        app.write(changelog, (session, stored, AT + 1 if start < end or kept is None else end), partition=partition)
        app.write(app.sink, (session, result, end), partition=partition)

    write(b"a", AT + MINUTE, AT + MINUTE, 1)
    write(b"b", AT, AT, 3)
    write(b"a", AT + MINUTE, AT + MINUTE, None)
    write(b"a", AT + 1, AT + MINUTE, 1)
    rows = app.rows()
    assert [row for row in rows if not row.agrees] == []
    assert sum("a record of them came later than the grace" in row.where for row in rows if not row.is_judged) == 2
    write(b"a", AT + 1, AT + MINUTE, 3)
    assert f"{changelog}: key a" in app.wrong()


# -- final results


def per_final_minute(topology: Topology, source: str, sink: str) -> None:
    minutes = topology.stream(source, value=Json("n int, by int")).group_by_key()
    windowed = minutes.windowed_by(TimeWindows("1 minute", grace="1 minute")).emit_strategy(OnWindowClose())
    windowed.count(store="counts").to_stream().to(sink)


def test_final_results_are_compared_one_by_one_and_in_their_order(declared: Declare) -> None:
    """A record that came when its window was closed is left out. The last window is open."""
    app = declared(per_final_minute)
    seconds = (0, 59, 60, 119, 120, 30, 239)  # that of 30 s is late: the first window takes records before 120 s
    app.write(app.source, *((b"a", b'{"n": 1}', AT + 1000 * second) for second in seconds))
    partition, changelog = partition_for_key(b"a", 2), app.pipeline.topology.changelog_topic("counts")

    def write(topic: str, suffix: bytes, second: int, count: int, newest: int) -> None:
        key = b"a" + (AT + 1000 * second).to_bytes(8, "big") + suffix
        app.write(topic, (key, count.to_bytes(8, "big"), AT + 1000 * newest), partition=partition)

    for second, count, newest in ((0, 2, 59), (60, 2, 119), (120, 1, 120), (180, 1, 239)):
        write(changelog, bytes(4), second, count, newest)
    write(app.sink, b"", 0, 2, 59)
    assert f"{app.sink}: records as the input demands, in its order: 2, 1" in app.wrong()
    write(app.sink, b"", 60, 2, 119)
    write(app.sink, b"", 120, 1, 120)
    with pytest.raises(CouldNotLook, match="1 records that the input does not demand"):
        app.rows()


# -- stores


def greatest(topology: Topology, source: str, sink: str) -> None:
    best = topology.stream(source, value=Json("n int, by int")).group_by_key()
    best.aggregate({"best": "max_by(n, by)"}, store="best").to_stream().to(sink)


@pytest.mark.parametrize("tied", [2, *soak([1])])
def test_either_of_equals_is_right(declared: Declare, tied: int) -> None:
    app = declared(greatest)
    changelog = app.pipeline.topology.changelog_topic("best")
    for key, kept in ((b"a", tied), (b"b", 3)):
        app.write(app.source, *((key, b'{"n": %d, "by": 7}' % n, AT) for n in (1, 2)), (key, b'{"n": 3, "by": 6}', AT))
        app.write(changelog, (key, b'{"best":{"value":%d,"by":7}}' % kept, AT))
        app.write(app.sink, (key, b'{"best":%d}' % kept, AT))
    wrong = app.wrong()
    assert f'{changelog}: key b: {{"best":{{"value":' in wrong
    assert ": key a" not in wrong


def test_the_timestamp_of_a_total_is_compared(declared: Declare) -> None:
    app = declared(greatest)
    app.write(app.source, (b"a", b'{"n": 1, "by": 7}', AT))
    changelog = app.pipeline.topology.changelog_topic("best")
    partition = next(number for number, end in app.ends(app.source).items() if end)
    app.write(changelog, (b"a", b'{"best":{"value":1,"by":7}}', AT + 1), partition=partition)
    app.write(app.sink, (b"a", b'{"best":1}', AT), partition=partition)
    assert app.wrong().endswith(f"{changelog}: key a, timestamp: {AT}, {AT + 1}")


def changing_keys(topology: Topology, source: str, sink: str) -> None:
    totals = topology.stream(source, value=Json("n int")).group_by_key().aggregate({"sum": "sum(n)"}, store="sums")
    totals.to_stream().filter("sum > 1").map("if(sum > 5, 'large', 'small')", {"sum": "sum"}).to(sink)


def test_what_was_written_of_earlier_totals_is_no_fault(declared: Declare) -> None:
    """A total was small before it was large, and another is not passed on any more."""
    app = declared(changing_keys)
    app.write(app.source, (b"a", b'{"n": 2}', AT), (b"a", b'{"n": 8}', AT), (b"b", b'{"n": 3}', AT))
    app.write(app.source, (b"b", b'{"n": -3}', AT))
    changelog = app.pipeline.topology.changelog_topic("sums")
    for key, total in ((b"a", 10), (b"b", 0)):
        app.write(changelog, (key, b'{"sum":%d}' % total, AT))
    app.write(app.sink, (b"small", b'{"sum":2}', AT), (b"small", b'{"sum":3}', AT))
    assert f'{app.sink}: key large: {{"sum":10}}, none' in app.wrong()
    app.write(app.sink, (b"large", b'{"sum":10}', AT))
    assert app.wrong() == ""
