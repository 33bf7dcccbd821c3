"""What goes where when a topic gets more partitions."""

from __future__ import annotations

import pytest
from streamplan.errors import Refused
from streamplan.kafka.copying import last_values, new_partition, records_by_time, relocated_dead_letters
from streamplan.maintenance.repartition_plan import RepartitionPlan, TopicMove, refuse_other_counts, require_declared
from streamplan.model.dead_letters import (
    LetterPlace,
    Origin,
    Redrive,
    is_mark,
    mark_headers,
    parse_mark,
    parse_origin,
    record_digest,
)
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import Difference, TopicRole, TopicSpec, explain_differences, temporary_topic
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, PIPELINE, order
from streamplan.pipelines.pageviews import PIPELINE as PAGEVIEWS

from tests.support.fake_cluster import FakeCluster


def test_a_windowed_key_goes_where_its_raw_key_goes() -> None:
    (changelog,) = [spec for spec in PAGEVIEWS.topics() if spec.role is TopicRole.CHANGELOG]
    keys = [b"%d" % n for n in range(50)]
    window = (60_000).to_bytes(8, "big") + bytes(4)
    placed = [new_partition(key + window, 0, 7, changelog.application_key) for key in keys]
    assert placed == [partition_for_key(key, 7) for key in keys]
    assert len(set(placed)) == 7
    assert temporary_topic(changelog).window_bytes == 12


def test_a_record_without_a_key_stays_and_an_empty_key_is_a_key() -> None:
    assert [new_partition(None, before, 4) for before in range(4)] == [0, 1, 2, 3]
    assert new_partition(None, 5, 4) == 1
    assert new_partition(b"", 0, 4) == partition_for_key(b"", 4)


def test_of_a_changelog_the_last_value_of_each_key_moves() -> None:
    cluster = FakeCluster()
    cluster.create("changelog", 2)
    for n in range(3):
        for key in (b"a", b"b", b"gone", b"back"):
            cluster.produce("changelog", key, b"%d" % n, timestamp=n)
    cluster.produce("changelog", b"gone", None)
    cluster.produce("changelog", b"back", None)
    cluster.produce("changelog", b"back", b"again", timestamp=9, headers=(("h", b"x"),))
    found = list(last_values(cluster, TopicSpec("changelog", TopicRole.CHANGELOG, 5, {})))
    assert {one.record.key: one.record.value for one in found} == {b"a": b"2", b"b": b"2", b"back": b"again"}
    assert all(one.partition == partition_for_key(one.record.key or b"", 5) for one in found)
    assert [one.record.headers for one in found if one.record.key == b"back"] == [(("h", b"x"),)]


def test_records_of_several_partitions_come_in_the_order_of_time() -> None:
    cluster = FakeCluster()
    cluster.create("topic", 2)
    for partition, timestamp in ((0, 1), (0, 4), (0, 3), (1, 2), (1, 4), (1, 9)):
        cluster.produce("topic", b"", b"", partition=partition, timestamp=timestamp)
    found = list(records_by_time(cluster, "topic", {0: (0, 3), 1: (0, 3)}))
    assert [(one.timestamp, one.partition) for one in found] == [(1, 0), (2, 1), (4, 0), (3, 0), (4, 1), (9, 1)]
    rest = list(records_by_time(cluster, "topic", {0: (1, 3), 1: (1, 3)}))
    assert rest == found[2:]  # taken up again it goes on alike


def test_letters_name_the_records_where_they_are_now() -> None:
    cluster = FakeCluster()
    for topic in ("old", "new", "letters"):
        cluster.create(topic, 4 if topic == "new" else 2)

    def letter(task: bytes, origin: tuple[bytes, int, int], value: bytes) -> None:
        topic, partition, offset = origin
        ours = (
            ("streamplan.task", task),
            ("streamplan.source.topic", topic),
            ("streamplan.source.partition", b"%d" % partition),
            ("streamplan.source.offset", b"%d" % offset),
        )
        # A record may have headers of our names itself: the last are ours.
        cluster.produce("letters", b"k", value, partition=1, timestamp=5, headers=(("streamplan.task", b"x"), *ours))

    for value in (b"fine", b"bad", b"bad", b"worse"):
        cluster.produce("new", b"k", value, timestamp=4)  # a letter may have a timestamp of its own
    where = partition_for_key(b"k", 4)
    for offset in (3, 8):  # equal records
        letter(b"0_1", (b"old", 1, offset), b"bad")
    letter(b"0_1", (b"old", 1, 9), b"worse")
    letter(b"0_1", (b"old", 1, 9), b"worse")  # by another operation
    letter(b"1_0", (b"app-repartition", 0, 2), b"of the second sub-topology")
    letter(b"0_1", (b"old", 1, 77), b"whose record is gone")
    found = list(relocated_dead_letters(cluster, "letters", {"old": "new"}, 4))
    told = [dict(one.record.headers) for one in found]
    offsets = [(t["streamplan.source.topic"], int(t["streamplan.source.offset"] or b"")) for t in told]
    assert offsets == [(b"new", 1), (b"new", 2), (b"new", 3), (b"new", 3), (b"app-repartition", 2), (b"old", 77)]
    assert [t["streamplan.task"] for t in told[:4]] == [b"0_%d" % where] * 4
    assert [one.partition for one in found] == [where] * 4 + [1, 1]
    assert all(one.record.headers[0] == ("streamplan.task", b"x") for one in found)


def test_the_mark_of_a_redrive_goes_with_its_dead_letter() -> None:
    cluster = FakeCluster()
    for topic in ("old", "new", "letters"):
        cluster.create(topic, 4 if topic == "new" else 2)
    cluster.produce("new", b"k", b"fine")
    cluster.produce("new", b"k", b"bad")
    of_sink = (("streamplan.reason", b"why"), ("streamplan.task", b"0_1"))
    origin = (
        ("streamplan.source.topic", b"old"),
        ("streamplan.source.partition", b"1"),
        ("streamplan.source.offset", b"9"),
    )
    letter = cluster.produce("letters", b"k", b"bad", partition=1, headers=of_sink + origin)
    digest = record_digest(letter.key, letter.value)
    mark = mark_headers(letter.headers, LetterPlace(1, 0), digest, Redrive("ann", "then", "a run"))
    cluster.produce("letters", None, None, partition=1, headers=tuple(mark))  # type: ignore[arg-type]
    moved_letter, moved_mark = relocated_dead_letters(cluster, "letters", {"old": "new"}, 4)
    assert parse_origin(moved_mark.record.headers) == parse_origin(moved_letter.record.headers)
    assert parse_origin(moved_mark.record.headers) == Origin("new", partition_for_key(b"k", 4), 1)
    assert moved_mark.partition == moved_letter.partition
    assert is_mark(moved_mark.record.headers)
    assert not is_mark(moved_letter.record.headers)
    assert parse_mark(moved_mark.record.headers) == Redrive("ann", "then", "a run")
    assert "streamplan.redriven.letter" not in dict(moved_mark.record.headers)  # it has another offset now


def declared(**more: object) -> Pipeline:
    topology = Topology("app")
    topology.stream("orders-v2", value=ORDER).group_by("ProductType", name="q").count(store="s")
    data = TestData(("orders-v2",), lambda n: ("orders-v2", *order(n)), "Id")
    return Pipeline("app", topology, "", {"orders-v2": 4}, data, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("repartition_from", "fault"),
    [
        ({"orders-v3": "orders"}, "moves to 'orders-v3', which the topology does not read"),
        ({"orders-v2": "orders-v2"}, "from 'orders-v2', which the topology reads or writes still"),
        ({"orders-v2": "app-q-repartition"}, "from 'app-q-repartition', which the topology reads or writes still"),
        ({"orders-v2": "a topic"}, "the name 'a topic' contains ' '"),
    ],
)
def test_a_move_that_cannot_be_is_a_fault_of_the_declaration(repartition_from: dict[str, str], fault: str) -> None:
    with pytest.raises(Refused, match=fault):
        declared(repartition_from=repartition_from)


def test_without_a_declaration_it_says_what_to_declare() -> None:
    require_declared(declared(repartition_from={"orders-v2": "orders"}))
    with pytest.raises(
        Refused, match=r"topic_partitions=\{'orders-v2': 4\}, repartition_from=\{'orders-v2': 'orders'\}"
    ):
        require_declared(PIPELINE)


def test_topics_from_outside_that_are_not_moved_keep_their_count() -> None:
    refuse_other_counts(PIPELINE, {"orders": 2, "orders-aggregator-dead-letter": 9})
    with pytest.raises(Refused, match="orders has 3 partitions, not 2"):
        refuse_other_counts(PIPELINE, {"orders": 3})


def test_what_was_not_approved_is_not_moved() -> None:
    moved = TopicMove("orders", "orders-v2", 2, 4, 10)
    plan = RepartitionPlan("app", "app", (moved,), (TopicMove("c", "c", 2, 4, 3),), begun=False, done=False)
    plan.refuse_other(plan.written())
    assert "`orders` (2 partitions, at most 10 records)" in plan.text
    with pytest.raises(Refused, match=r"\['c', 4\] besides"):
        plan.refuse_other(RepartitionPlan("app", "app", (moved,), (), begun=False, done=False).written())


def test_what_belongs_to_an_application_alone() -> None:
    assert [spec.name for spec in PIPELINE.internal_topics()] == [
        "orders-aggregator-orders-products-quantities-repartition",
        "orders-aggregator-orders-products-quantities-changelog",
        "orders-aggregator-dead-letter",
    ]


def test_only_a_wrong_count_is_explained_by_keys_that_move() -> None:
    count, config = Difference("t", "partitions", "4", "2"), Difference("t", "retention.ms", "-1", "7")
    assert "orders_repartition is the safe way" in explain_differences("orders", [count])
    assert "kafka-configs" not in explain_differences("orders", [count])
    assert "repartition" not in explain_differences("orders", [config])
    assert "kafka-configs" in explain_differences("orders", [config])
