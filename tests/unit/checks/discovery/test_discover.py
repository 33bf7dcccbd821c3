from __future__ import annotations

import pickle
import struct

import pytest
from streamplan import checks
from streamplan.checks import copartitioning, lag, not_applicable, skew, totals
from streamplan.checks.discovery.counts import CountOf
from streamplan.checks.discovery.discover import discover, own_topics
from streamplan.checks.framework.application import Application, SubtopologyTopics
from streamplan.checks.framework.check import Observation, Outcome, run_check
from streamplan.checks.recount.counting import count_source, read_changelog
from streamplan.errors import CouldNotLook, Refused
from streamplan.model.partitioner import partition_for_key
from streamplan.model.topics import TopicRole
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.json import Json

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

ORDER = Json("Id string, ProductType int")
NOON = 1_700_000_000_000


@pytest.fixture
def orders(cluster: FakeCluster) -> FakeApplication:
    """It has a dead-letter topic, too, of which nobody is told."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def topics(cluster: FakeCluster, *names: str, partitions: int = 2) -> None:
    for name in names:
        cluster.create(name, partitions, {"cleanup.policy": "compact"})


def reads(cluster: FakeCluster, group: str, *names: str) -> None:
    for name in names:
        cluster.committed[group, name] = {0: 0}


def names(application: Application, role: TopicRole) -> list[str]:
    return [spec.name for spec in application.with_role(role)]


def expected(application: Application, topic: str) -> int:
    return next(spec.partitions for spec in application.topics if spec.name == topic)


def wrong(application: Application, cluster: FakeCluster) -> list[Observation]:
    return [row for row in copartitioning.CHECK.observe(application, cluster) if not row.agrees]


def missing(application: Application, cluster: FakeCluster) -> list[str]:
    rows = checks.topics.TopicsCheck(deadline=IMPATIENT).observe(application, cluster)
    return [row.subject for row in rows if not row.agrees and row.observed == "missing"]


# -- which topics


def test_the_orders_application(cluster: FakeCluster, orders: FakeApplication) -> None:
    found = discover(cluster, orders.group)
    assert names(found, TopicRole.SOURCE) == ["orders"]
    assert names(found, TopicRole.REPARTITION) == [orders.repartition]
    assert names(found, TopicRole.CHANGELOG) == [orders.changelog]
    assert {tasks.sources: tasks.changelogs for tasks in found.subtopologies} == {
        ("orders",): (),
        (orders.repartition,): (orders.changelog,),
    }
    assert not found.declared
    assert not found.notes
    assert list(not_applicable(found)) == ["totals"]


def test_the_topics_of_a_longer_application_id_are_not_its_own(cluster: FakeCluster) -> None:
    own = ["my-app-a-repartition", "my-app-a-changelog"]
    others = ["my-app-v1-a-repartition", "my-app-v1-a-changelog", "my-app-v1-b-changelog"]
    topics(cluster, "orders", *own, *others)
    reads(cluster, "my-app", "orders", "my-app-a-repartition")
    reads(cluster, "my-app-v1", "orders", "my-app-v1-a-repartition")
    shorter, longer = discover(cluster, "my-app"), discover(cluster, "my-app-v1")
    assert {spec.name for spec in shorter.topics} == {"orders", *own}
    assert {spec.name for spec in longer.topics} == {"orders", *others}


def test_a_group_that_only_has_a_longer_name_takes_nothing(cluster: FakeCluster) -> None:
    """A plain consumer called ``my-app-orders``, beside the application ``my-app`` with topics that begin so."""
    own = ["my-app-orders-counts-repartition", "my-app-orders-counts-changelog"]
    topics(cluster, "orders", *own)
    reads(cluster, "my-app", "orders", own[0])
    reads(cluster, "my-app-orders", "orders")
    assert {spec.name for spec in discover(cluster, "my-app").topics} == {"orders", *own}


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("app-counts-changelog", True),
        ("app-counts-repartition", True),
        ("app-KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition", True),
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", True),
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic", True),
        ("app-by-product-subscription-registration-topic", True),
        ("app-by-product-subscription-response-topic", True),
        ("app-changelog", False),  # of a store without a name
        ("app-repartition", False),
        ("app-orders", False),
        ("application-counts-changelog", False),
        ("other-app-counts-changelog", False),
        ("app-topic", False),
    ],
)
def test_names_of_internal_topics(topic: str, internal: bool) -> None:
    assert own_topics("app", [topic], ["app"]) == ([topic] if internal else [])


def test_a_store_may_have_the_name_of_another_application(cluster: FakeCluster) -> None:
    topics(
        cluster, "orders", "my-app-v1-changelog"
    )  # the store v1: the application my-app-v1 has no store without name
    reads(cluster, "my-app", "orders")
    reads(cluster, "my-app-v1", "orders")
    assert names(discover(cluster, "my-app"), TopicRole.CHANGELOG) == ["my-app-v1-changelog"]


def test_a_source_that_is_named_like_an_internal_topic(cluster: FakeCluster) -> None:
    topics(cluster, "orders", "app-old-changelog", "app-new-changelog")
    reads(cluster, "app", "orders")
    found = discover(cluster, "app", sources=["app-old-changelog"])
    assert names(found, TopicRole.SOURCE) == ["app-old-changelog", "orders"]
    assert names(found, TopicRole.CHANGELOG) == ["app-new-changelog"]


def test_sources_may_be_told_where_positions_have_expired(cluster: FakeCluster) -> None:
    topics(cluster, "orders", "app-counts-changelog")
    assert "has no positions" in discover(cluster, "app").notes[-1]
    found = discover(cluster, "app", sources=["orders"])
    assert names(found, TopicRole.SOURCE) == ["orders"]
    assert not found.notes


def test_a_source_that_is_told_and_missing_is_the_topics_checks(cluster: FakeCluster, orders: FakeApplication) -> None:
    found = discover(cluster, orders.group, sources=["payments"])
    assert missing(found, cluster) == ["topic payments"]
    for check in (lag, skew):
        with pytest.raises(CouldNotLook, match="topic payments: expected exists"):
            list(check.CHECK.observe(found, cluster))
    assert not wrong(found, cluster)


def test_what_is_counted_is_read_also_before_the_first_commit(cluster: FakeCluster, orders: FakeApplication) -> None:
    del cluster.committed[orders.group, "orders"]
    assert not names(discover(cluster, orders.group), TopicRole.SOURCE)
    found = discover(cluster, orders.group, counts=[CountOf("orders", "ProductType", ORDER)])
    assert names(found, TopicRole.SOURCE) == ["orders"]


def test_an_unknown_application_is_told_with_those_near(cluster: FakeCluster, orders: FakeApplication) -> None:
    with pytest.raises(CouldNotLook, match=r"application orders-agregator: .*neither\. Is it orders-aggregator\?"):
        discover(cluster, "orders-agregator")
    with pytest.raises(CouldNotLook, match=r"Consumer groups here: orders-aggregator\."):
        discover(cluster, "zzz")
    with pytest.raises(CouldNotLook, match="no consumer group at all"):
        discover(FakeCluster(), "orders-aggregator")


def test_a_group_without_anything_is_not_green(cluster: FakeCluster) -> None:
    cluster.committed["app", "orders"] = {}
    with pytest.raises(CouldNotLook, match="a consumer group without either"):
        discover(cluster, "app")


def test_an_application_without_state_has_fewer_checks(cluster: FakeCluster) -> None:
    topics(cluster, "orders")
    reads(cluster, "app", "orders")
    assert list(not_applicable(discover(cluster, "app"))) == ["copartitioning", "repartition", "compaction", "totals"]


# -- which belong together


def test_pairs_by_name_and_the_ones_that_are_left(cluster: FakeCluster) -> None:
    topics(cluster, "orders", "app-a-repartition", "app-a-changelog", partitions=2)
    topics(cluster, "app-b-repartition", "app-b-changelog", partitions=3)
    topics(cluster, "app-by-user-repartition", "app-per-user-changelog", partitions=4)
    reads(cluster, "app", "orders", "app-a-repartition", "app-b-repartition", "app-by-user-repartition")
    found = discover(cluster, "app")
    assert {tasks.sources: tasks.changelogs for tasks in found.subtopologies} == {
        ("orders",): (),
        ("app-a-repartition",): ("app-a-changelog",),
        ("app-b-repartition",): ("app-b-changelog",),
        ("app-by-user-repartition",): ("app-per-user-changelog",),
    }
    assert not found.notes


def test_one_topic_that_is_read_makes_every_store(cluster: FakeCluster) -> None:
    topics(cluster, "orders", partitions=3)
    topics(cluster, "app-a-changelog", "app-b-changelog", partitions=2)
    reads(cluster, "app", "orders")
    found = discover(cluster, "app")
    assert found.subtopologies == (
        SubtopologyTopics("tasks that read orders", ("orders",), ("app-a-changelog", "app-b-changelog")),
    )
    assert expected(found, "app-a-changelog") == 3


def test_the_ones_that_are_left_are_strangers_where_counts_say_so(cluster: FakeCluster) -> None:
    """A table of 4 partitions beside a repartition topic of 2 that is only passed on."""
    topics(cluster, "users", "app-users-store-changelog", partitions=4)
    topics(cluster, "app-passed-repartition", partitions=2)
    reads(cluster, "app", "users", "app-passed-repartition")
    found = discover(cluster, "app")
    assert expected(found, "app-users-store-changelog") == 4
    assert found.subtopologies[-1].changelogs == ("app-users-store-changelog",)
    assert "app-users-store-changelog" in found.notes[0]


def test_a_changelog_that_cannot_be_paired_has_the_count_of_a_topic_that_is_read(cluster: FakeCluster) -> None:
    topics(cluster, "users", "orders", "app-a-changelog", partitions=2)
    topics(cluster, "app-b-changelog", partitions=3)
    reads(cluster, "app", "users", "orders")
    found = discover(cluster, "app")
    assert expected(found, "app-a-changelog") == 2
    cluster.produce("app-a-changelog", b"k", b"v")
    assert wrong(found, cluster) == [
        Observation("app-b-changelog: partitions (tasks that read orders or users)", 2, 3),
    ]


def test_a_foreign_key_join_is_paired_by_its_name(cluster: FakeCluster) -> None:
    own = ("app-j-subscription-registration-topic", "app-j-subscription-store-changelog")
    topics(cluster, "orders", "products", *own, "app-j-subscription-response-topic")
    reads(cluster, "app", "orders", "products", own[0], "app-j-subscription-response-topic")
    found = discover(cluster, "app")
    assert {tasks.sources: tasks.changelogs for tasks in found.subtopologies if tasks.changelogs} == {
        (own[0],): (own[1],)
    }
    assert len(names(found, TopicRole.REPARTITION)) == 2


def test_more_partitions_of_the_changelog_than_of_its_repartition_topic(
    cluster: FakeCluster, orders: FakeApplication
) -> None:
    changelog = cluster.existing[orders.changelog]
    changelog.partitions.append(type(changelog.partitions[0])())
    found = discover(cluster, orders.group)
    assert wrong(found, cluster)[0] == Observation(
        f"{orders.changelog}: partitions (tasks that read {orders.repartition})", 2, 3
    )


# -- the topology


JOINED = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> KSTREAM-KEY-SELECT-0000000001
    Processor: KSTREAM-KEY-SELECT-0000000001 (stores: [])
      --> by-user-repartition-filter
      <-- KSTREAM-SOURCE-0000000000
    Processor: by-user-repartition-filter (stores: [])
      --> by-user-repartition-sink
      <-- KSTREAM-KEY-SELECT-0000000001
    Sink: by-user-repartition-sink (topic: by-user-repartition)
      <-- by-user-repartition-filter

  Sub-topology: 1
    Source: by-user-repartition-source (topics: [by-user-repartition])
      --> KSTREAM-JOIN-0000000009
    Processor: KSTREAM-JOIN-0000000009 (stores: [users-store])
      --> KSTREAM-SINK-0000000010
      <-- by-user-repartition-source
    Source: KSTREAM-SOURCE-0000000005 (topics: [users])
      --> KTABLE-SOURCE-0000000006
    Sink: KSTREAM-SINK-0000000010 (topic: enriched)
      <-- KSTREAM-JOIN-0000000009
    Processor: KTABLE-SOURCE-0000000006 (stores: [users-store])
      --> none
      <-- KSTREAM-SOURCE-0000000005

  Sub-topology: 2 for global store (will not generate tasks)
    Source: KSTREAM-SOURCE-0000000011 (topics: [countries])
      --> KTABLE-SOURCE-0000000012
    Processor: KTABLE-SOURCE-0000000012 (stores: [countries-store])
      --> none
      <-- KSTREAM-SOURCE-0000000011
"""


@pytest.fixture
def joined(cluster: FakeCluster) -> FakeCluster:
    topics(cluster, "orders", "users", "countries", "enriched", "app-by-user-repartition", "app-users-store-changelog")
    reads(cluster, "app", "orders", "users", "app-by-user-repartition")
    return cluster


def test_the_topology_tells_what_belongs_together(joined: FakeCluster) -> None:
    found = discover(joined, "app", topology=JOINED)
    assert found.subtopologies == (
        SubtopologyTopics("sub-topology 0", ("orders",), (), ("app-by-user-repartition",), 0),
        SubtopologyTopics(
            "sub-topology 1", ("app-by-user-repartition", "users"), ("app-users-store-changelog",), ("enriched",), 1
        ),
    )
    assert found.groups == (frozenset({"app-by-user-repartition", "users"}),)
    assert {spec.name: spec.role for spec in found.topics} == {
        "orders": TopicRole.SOURCE,
        "users": TopicRole.SOURCE,
        "enriched": TopicRole.SINK,
        "app-by-user-repartition": TopicRole.REPARTITION,
        "app-users-store-changelog": TopicRole.CHANGELOG,
    }
    assert not found.notes


def test_joined_topics_that_differ_are_found_by_the_topology(joined: FakeCluster) -> None:
    topics(joined, "users", partitions=3)
    joined.produce("app-users-store-changelog", b"u", b"v")
    rows = wrong(discover(joined, "app", topology=JOINED), joined)
    assert [(row.subject, row.observed) for row in rows] == [
        ("app-users-store-changelog: partitions (sub-topology 1)", 2),
        ("topics that are joined", "Topics not co-partitioned: [{app-by-user-repartition=2, users=3}]"),
    ]


def test_a_repartition_topic_that_was_deleted_is_found_by_the_topology(joined: FakeCluster) -> None:
    del joined.existing["app-by-user-repartition"]
    del joined.committed["app", "app-by-user-repartition"]
    found = discover(joined, "app", topology=JOINED)
    assert missing(found, joined) == ["topic app-by-user-repartition"]


def test_merged_topics_need_not_agree(cluster: FakeCluster) -> None:
    topics(cluster, "a", "app-counts-changelog", partitions=3)
    topics(cluster, "b", partitions=2)
    reads(cluster, "app", "a", "b")
    merged = """\
  Sub-topology: 0
    Source: one (topics: [a])
      --> merge
    Source: other (topics: [b])
      --> merge
    Processor: merge (stores: [])
      --> count
      <-- one, other
    Processor: count (stores: [counts])
      --> none
      <-- merge
"""
    found = discover(cluster, "app", topology=merged)
    assert found.groups == ()
    assert expected(found, "app-counts-changelog") == 3  # as many tasks as the greater has partitions
    cluster.produce("app-counts-changelog", b"k", b"v")
    assert not wrong(found, cluster)


def test_a_pattern_reads_what_exists(cluster: FakeCluster) -> None:
    topics(cluster, "orders-de", "orders-fr", "other")
    reads(cluster, "app", "orders-de", "orders-fr")
    text = "Sub-topology: 0\n Source: s (topics: orders-.*)\n --> none\n"
    assert discover(cluster, "app", topology=text).subtopologies[0].sources == ("orders-de", "orders-fr")


def test_what_does_not_fit_the_topology_is_told(joined: FakeCluster) -> None:
    topics(joined, "app-old-changelog")
    del joined.existing["app-users-store-changelog"]
    notes = discover(joined, "app", topology=JOINED).notes
    assert [note.split(":")[0] for note in notes] == [
        "These stores have no changelog",
        "The given topology does not have these topics, so the checks leave them out",
    ]
    assert "users-store" in notes[0]
    assert "app-old-changelog" in notes[1]


@pytest.mark.parametrize("pipeline_text", [PIPELINE.topology.describe()])
def test_our_own_description_is_one(cluster: FakeCluster, orders: FakeApplication, pipeline_text: str) -> None:
    found = discover(cluster, orders.group, topology=pipeline_text)
    assert found.subtopologies == (
        SubtopologyTopics("sub-topology 0", ("orders",), (), (orders.repartition,), 0),
        SubtopologyTopics("sub-topology 1", (orders.repartition,), (orders.changelog,), (), 1),
    )


def test_lines_behind_a_topology_do_not_matter(joined: FakeCluster) -> None:
    told = discover(joined, "app", topology=JOINED + "Process finished with exit code 0\n")
    assert told == discover(joined, "app", topology=JOINED)


@pytest.mark.parametrize("text", ["", "hello", JOINED.replace("  Sub-topology: 1", "rebalanced\n  Sub-topology: 1")])
def test_a_text_that_is_no_topology_is_refused(joined: FakeCluster, text: str) -> None:
    with pytest.raises(Refused, match=r"Topology\.describe"):
        discover(joined, "app", topology=text)


# -- keys of stores


def window(key: bytes, start: int, number: int = 0) -> bytes:
    return key + struct.pack(">qi", start, number)


def session(key: bytes, start: int, end: int) -> bytes:
    return key + struct.pack(">qq", end, start)


KEYS = [b"%d" % n for n in range(40)]
STORED = {
    "app-windows-changelog": lambda n, key: window(key, NOON + 60_000 * n),
    "app-sessions-changelog": lambda n, key: session(key, NOON + 60_000 * n, NOON + 60_500 * n),
    "app-of-windows-changelog": lambda n, key: key + struct.pack(">q", NOON + 60_000 * n),
    "app-plain-changelog": lambda n, key: key,
    "app-KSTREAM-JOINTHIS-0000000004-store-changelog": lambda n, key: window(key, NOON + n, n),
    "app-KSTREAM-OUTERSHARED-0000000004-store-changelog": lambda n, key: struct.pack(">q?", NOON + n, n % 2) + key,
    "app-j-subscription-store-changelog": lambda n, key: struct.pack(">i", len(key)) + key + b"primary-%d" % n,
}


def stored(cluster: FakeCluster, topic: str, partitions: int = 3) -> Application:
    topics(cluster, "orders", topic, partitions=partitions)
    reads(cluster, "app", "orders")
    for n, key in enumerate(KEYS):
        cluster.produce(topic, STORED[topic](n, key), b"v", partition=partition_for_key(key, partitions))
    return discover(cluster, "app")


@pytest.mark.parametrize("topic", STORED)
def test_the_key_of_a_store_is_found(cluster: FakeCluster, topic: str) -> None:
    found = stored(cluster, topic)
    assert not wrong(found, cluster)
    # ... and it is not only that all are taken for right
    key = KEYS[0]
    other = (partition_for_key(key, 3) + 1) % 3
    cluster.produce(topic, STORED[topic](0, key), b"v", partition=other)
    rows = wrong(discover(cluster, "app"), cluster)
    assert [row.expected for row in rows][:2] == [41, f"partition {partition_for_key(key, 3)}"]
    assert sum(": key " in row.subject for row in rows) == 1


def test_a_windowed_store_is_one_also_where_its_policy_was_altered(cluster: FakeCluster) -> None:
    """Which one it should have is another check's."""
    stored(cluster, "app-windows-changelog")
    cluster.existing["app-windows-changelog"].configs["cleanup.policy"] = "delete"
    assert not wrong(discover(cluster, "app"), cluster)


@pytest.mark.parametrize("size", [4, 8])
def test_binary_keys_are_plain(cluster: FakeCluster, size: int) -> None:
    topic = "app-plain-changelog"
    topics(cluster, "orders", topic, partitions=2)
    reads(cluster, "app", "orders")
    for n in range(100):
        cluster.produce(topic, n.to_bytes(size, "big"), b"v")
    assert not wrong(discover(cluster, "app"), cluster)
    cluster.produce(
        topic, (7).to_bytes(size, "big"), b"v", partition=1 - partition_for_key((7).to_bytes(size, "big"), 2)
    )
    found = discover(cluster, "app", key_types={topic: "int" if size == 4 else "long"})
    assert [row.subject for row in wrong(found, cluster)][1:2] == [f"{topic}: key 7"]


def test_binary_keys_that_end_like_a_time_are_plain_by_where_they_lie(cluster: FakeCluster) -> None:
    topic = "app-plain-changelog"
    topics(cluster, "orders", topic, partitions=2)
    reads(cluster, "app", "orders")
    for n in range(100):
        cluster.produce(topic, b"customer" + n.to_bytes(8, "big"), b"v")
    found = discover(cluster, "app")
    assert not wrong(found, cluster)
    assert not found.with_role(TopicRole.CHANGELOG)[0].window_bytes


def test_superseded_records_at_the_start_are_passed(cluster: FakeCluster) -> None:
    topic = "app-windows-changelog"
    topics(cluster, "orders", topic, partitions=1)
    reads(cluster, "app", "orders")
    for n in range(1000):
        cluster.produce(topic, window(b"k", NOON), b"%d" % n)
    cluster.compact(topic, 0, 1000)
    assert discover(cluster, "app").with_role(TopicRole.CHANGELOG)[0].window_bytes == 12


def by_last_digit(key: bytes, partitions: int) -> int:
    return int(key[-1:]) % partitions


def test_a_partitioner_holds_for_the_changelog_too(cluster: FakeCluster) -> None:
    own = ["app-counts-repartition", "app-counts-changelog"]
    topics(cluster, "orders", *own)
    reads(cluster, "app", "orders", own[0])
    for key in KEYS:
        cluster.produce(own[0], key, b"v", partition=int(key) % 2)
        cluster.produce(own[1], window(key, NOON), b"v", partition=int(key) % 2)
    assert wrong(discover(cluster, "app"), cluster)
    found = discover(cluster, "app", partitioners={own[0]: by_last_digit})
    assert not wrong(found, cluster)
    pickle.loads(pickle.dumps(found))  # large topics are looked at by several processes


def test_a_partitioner_within_a_key_of_two_parts(cluster: FakeCluster) -> None:
    topic = "app-j-subscription-store-changelog"
    topics(cluster, "orders", topic)
    reads(cluster, "app", "orders")
    for key in KEYS:
        cluster.produce(topic, struct.pack(">i", len(key)) + key + b"primary", b"v", partition=int(key) % 2)
    found = discover(cluster, "app", partitioners={"orders": by_last_digit})
    assert not wrong(found, cluster)
    pickle.loads(pickle.dumps(found))


def test_a_partitioner_that_does_not_understand_a_key_is_no_verdict(
    cluster: FakeCluster, orders: FakeApplication
) -> None:
    cluster.produce(orders.repartition, b"Jackets", b"v", partition=0)
    found = discover(cluster, orders.group, partitioners={orders.repartition: by_last_digit})
    with pytest.raises(CouldNotLook, match=r"the partitioner of .*: expected a partition for the key b'Jackets'"):
        wrong(found, cluster)


def test_a_partitioner_of_a_strange_topic_is_refused(cluster: FakeCluster, orders: FakeApplication) -> None:
    with pytest.raises(Refused, match="topic order: expected one of orders-aggregator: orders or orders-aggregator-"):
        discover(cluster, orders.group, partitioners={"order": by_last_digit})


# -- counts


def test_a_count_finds_its_topics(cluster: FakeCluster, orders: FakeApplication) -> None:
    found = discover(cluster, orders.group, counts=[CountOf("orders", "ProductType", ORDER)])
    (aggregation,) = found.aggregations
    assert (aggregation.repartition, aggregation.changelog) == (orders.repartition, orders.changelog)
    assert aggregation.store == "orders-products-quantities"
    assert not not_applicable(found)
    result = run_check(found, totals.CHECK, cluster)
    assert result.outcome is Outcome.PASSED, result
    cluster.produce(orders.changelog, b"0", (11).to_bytes(8, "big"))
    result = run_check(found, totals.CHECK, cluster)
    assert "orders-products-quantities[0]: expected 10, observed 11" in result.reason


def test_a_count_among_several_needs_the_name_of_its_store(cluster: FakeCluster) -> None:
    topics(cluster, "orders", *(f"app-{store}-{end}" for store in "ab" for end in ("repartition", "changelog")))
    reads(cluster, "app", "orders", "app-a-repartition", "app-b-repartition")
    with pytest.raises(Refused, match=r"2 such stores\. Name the store: a or b\."):
        discover(cluster, "app", counts=[CountOf("orders")])
    (aggregation,) = discover(cluster, "app", counts=[CountOf("orders", store="b")]).aggregations
    assert aggregation.repartition == "app-b-repartition"


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (lambda: CountOf("orders", "ProductType"), "ProductType is not declared"),
        (lambda: CountOf("orders", "Amount", Json("Amount double")), "Amount double"),
        (lambda: CountOf("order"), "expected a topic that orders-aggregator reads: orders"),
        (lambda: CountOf("orders", store="totals"), "a store behind a repartition topic, called totals"),
    ],
)
def test_a_count_that_does_not_fit_is_refused(cluster: FakeCluster, orders: FakeApplication, count, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Refused, match=said):
        discover(cluster, orders.group, counts=[count()])


def test_a_count_by_a_number_has_its_bytes_as_keys_and_its_digits_in_rows(cluster: FakeCluster) -> None:
    topics(cluster, "sales", "app-by-shop-repartition", "app-by-shop-changelog", partitions=1)
    reads(cluster, "app", "sales", "app-by-shop-repartition")
    for shop, count in ((-7, 1), (-7, 2), (3, 1)):
        key = shop.to_bytes(8, "big", signed=True)
        cluster.produce("sales", b"any", b'{"shop": %d}' % shop)
        cluster.produce("app-by-shop-repartition", key, b"{}")
        cluster.produce("app-by-shop-changelog", key, count.to_bytes(8, "big"))
    count_of, types = CountOf("sales", "shop", Json("shop int")), {"app-by-shop-repartition": "long"}
    (aggregation,) = discover(cluster, "app", counts=[count_of], key_types=types).aggregations
    counted = count_source(cluster, aggregation, {}, {0: 3})
    assert {aggregation.label(key): count for key, count in counted.by_key.items()} == {
        "by-shop[-7]": 2,
        "by-shop[3]": 1,
    }
    changelog = read_changelog(cluster, aggregation.changelog, {}, {0: 3})
    assert {key: value for (_, key), value in changelog.values.items()} == counted.by_key


@pytest.mark.parametrize(("schema", "key_type"), [("shop bigint", "int"), ("shop string", "uuid")])
def test_a_count_by_a_field_that_does_not_become_such_keys_is_refused(
    cluster: FakeCluster, schema: str, key_type: str
) -> None:
    topics(cluster, "sales", "app-by-shop-repartition", "app-by-shop-changelog", partitions=1)
    reads(cluster, "app", "sales", "app-by-shop-repartition")
    count_of, types = CountOf("sales", "shop", Json(schema)), {"app-by-shop-repartition": key_type}
    with pytest.raises(Refused, match=f"app-by-shop-changelog has keys of type {key_type}, and shop is of type "):
        discover(cluster, "app", counts=[count_of], key_types=types)


# -- what an application leaves that no other one does


def time_first(key: bytes, time: int, number: int) -> bytes:
    """A key of ``PrefixedWindowKeySchemas.TimeFirstWindowKeySchema``."""
    return struct.pack(f">bq{len(key)}si", 0, time, key, number)


@pytest.mark.parametrize("topic", ["app-KSTREAM-JOIN-0000000007-Buffer-changelog", "app-mine-Buffer-changelog"])
def test_the_keys_of_the_buffer_of_a_stream_table_join_are_known(cluster: FakeCluster, topic: str) -> None:
    topics(cluster, "source", topic, partitions=3)
    reads(cluster, "app", "source")
    for n in range(60):
        key = b"user_%d" % n
        partition = partition_for_key(key, 3)
        cluster.produce("source", key, b"v", partition=partition)
        cluster.produce(topic, time_first(key, 1_767_268_800_000 + n, n), b"v", partition=partition)
    found = discover(cluster, "app")
    assert not found.unjudged
    assert not [row for row in copartitioning.CHECK.observe(found, cluster) if not row.agrees]
    key = b"user_1"
    cluster.produce(topic, time_first(key, 1_767_268_800_000, 99), b"v", partition=(partition_for_key(key, 3) + 1) % 3)
    (row, _) = [row for row in copartitioning.CHECK.observe(found, cluster) if not row.agrees]
    assert row.subject.startswith(topic)


@pytest.fixture
def own_keys(cluster: FakeCluster) -> FakeCluster:
    """A processor counts by the first letter of the value, in the partition of the record's key."""
    topics(cluster, "source", "app-letters-changelog")
    reads(cluster, "app", "source")
    for n in range(60):
        key = b"user_%d" % n
        record = cluster.produce("source", key, b"%d" % n)
        cluster.produce("app-letters-changelog", b"letter-%d" % (n % 9), b"v", partition=record.partition)
    return cluster


def test_a_store_with_keys_of_its_own_is_not_judged(own_keys: FakeCluster) -> None:
    found = discover(own_keys, "app")
    result = run_check(found, copartitioning.CHECK, own_keys)
    assert result.outcome is Outcome.PASSED
    (row,) = result.not_judged
    assert row.subject.startswith("app-letters-changelog")
    assert "--unjudged-store" in row.where
    assert "1 not judged: app-letters-changelog" in result.reason


def test_a_store_can_be_declared_to_have_keys_of_its_own(own_keys: FakeCluster) -> None:
    found = discover(own_keys, "app", unjudged_stores=["letters"])
    (row,) = run_check(found, copartitioning.CHECK, own_keys).not_judged
    assert row.where.startswith("--unjudged-store says")
    with pytest.raises(Refused, match="letters"):
        discover(own_keys, "app", unjudged_stores=["leters"])


def test_records_keys_in_wrong_partitions_are_judged_whatever_their_number(own_keys: FakeCluster) -> None:
    for n in range(60):
        own_keys.produce("app-letters-changelog", b"user_%d" % n, b"v", partition=n % 2)
    found = discover(own_keys, "app")
    assert not found.unjudged
    assert run_check(found, copartitioning.CHECK, own_keys).outcome is Outcome.FAILED


COUNTED = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> by
    Processor: by (stores: [])
      --> by-product-repartition-filter
      <-- KSTREAM-SOURCE-0000000000
    Processor: by-product-repartition-filter (stores: [])
      --> by-product-repartition-sink
      <-- by
    Sink: by-product-repartition-sink (topic: by-product-repartition)
      <-- by-product-repartition-filter

  Sub-topology: 1
    Source: by-product-repartition-source (topics: [by-product-repartition])
      --> {node}
    Processor: {node} (stores: [totals])
      --> none
      <-- by-product-repartition-source
{more}
"""
TABLE = """\
    Source: KSTREAM-SOURCE-0000000009 (topics: [table])
      --> KTABLE-SOURCE-0000000010
    Processor: KTABLE-SOURCE-0000000010 (stores: [totals])
      --> none
      <-- KSTREAM-SOURCE-0000000009
"""


def left_by_counting(cluster: FakeCluster) -> str:
    """Its repartition topic."""
    repartition = "app-by-product-repartition"
    topics(cluster, "orders", "table", repartition, "app-totals-changelog")
    reads(cluster, "app", "orders", repartition)
    for topic in cluster.existing.values():
        topic.configs["message.timestamp.type"] = "CreateTime"
    for n in range(20):
        cluster.produce("orders", b"order_%d" % n, b"v")
        cluster.produce(repartition, b"%d" % (n % 2), b"v")
    for n in range(2):
        cluster.produce("app-totals-changelog", b"%d" % n, (10).to_bytes(8, "big"))
    return repartition


@pytest.mark.parametrize(
    ("node", "more", "outcome", "unjudged"),
    [
        ("KSTREAM-AGGREGATE-0000000003", "", Outcome.FAILED, 0),
        ("my-count", "", Outcome.FAILED, 0),
        ("KSTREAM-JOIN-0000000011", TABLE, Outcome.FAILED, 0),
        ("KSTREAM-LEFTJOIN-0000000011", TABLE, Outcome.PASSED, 0),
        ("j-outer-this-join", "", Outcome.PASSED, 0),
        ("my-join", TABLE, Outcome.PASSED, 1),
        (None, "", Outcome.FAILED, 0),
    ],
)
def test_null_keys_in_a_repartition_topic_are_wrong_unless_a_left_join_may_follow(
    cluster: FakeCluster, node: str | None, more: str, outcome: Outcome, unjudged: int
) -> None:
    repartition = left_by_counting(cluster)
    cluster.produce(repartition, None, b"v", partition=1)
    topology = None if node is None else COUNTED.format(node=node, more=more)
    result = run_check(discover(cluster, "app", topology=topology), copartitioning.CHECK, cluster)
    assert (result.outcome, len(result.not_judged)) == (outcome, unjudged), result


@pytest.mark.parametrize("with_topology", [True, False])
@pytest.mark.parametrize("store", ["totals", None])
def test_a_changelog_that_is_gone_is_red_in_topics_alone(
    cluster: FakeCluster, store: str | None, *, with_topology: bool
) -> None:
    left_by_counting(cluster)
    del cluster.existing["app-totals-changelog"]
    topology = COUNTED.format(node="KSTREAM-AGGREGATE-0000000003", more="") if with_topology else None
    counts = [CountOf("orders", store=store)] if store else []
    found = discover(cluster, "app", topology=topology, counts=counts)
    if with_topology or store:
        results = [run_check(found, check, cluster) for check in (topics_check(), copartitioning.CHECK, totals.CHECK)]
        assert [result.outcome for result in results] == [Outcome.FAILED, *[Outcome.COULD_NOT_LOOK] * 2]
        assert "app-totals-changelog: expected exists, observed missing" in results[0].reason
    if with_topology:
        declared = discover(cluster, "app", topology=topology, unjudged_stores=["totals"])
        assert run_check(declared, topics_check(), cluster).outcome is Outcome.PASSED


def topics_check() -> checks.topics.TopicsCheck:
    return checks.topics.TopicsCheck(deadline=IMPATIENT)
