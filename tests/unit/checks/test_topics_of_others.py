"""A source topic that is left out of ``topic_partitions`` belongs to others: it is read, and nothing else."""

from __future__ import annotations

import pytest
from streamplan.checks.copartitioning import CopartitioningCheck
from streamplan.checks.framework.application import application_in, application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.topics import TopicsCheck
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import ObservedTopic, plan_topics, resolve_configs
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json

from tests.support.fake_cluster import IMPATIENT, FakeCluster, FakePartition, FakeTopic

VALUE = Json("Id string, Amount bigint")

RETENTION = {"cleanup.policy": "delete", "retention.ms": "604800000", "min.insync.replicas": "2"}


def counting() -> Pipeline:
    topology = Topology("app")
    topology.stream("theirs", value=VALUE).group_by("Id", name="by-id").count(store="totals")
    return Pipeline("counting", topology, "")


def joining(**own: int) -> Pipeline:
    topology = Topology("app")
    table = topology.table("names", value=VALUE)
    topology.stream("events", value=VALUE).join(table, {"Id": "Id"}).to("out")
    return Pipeline("joining", topology, "", own)


def test_nothing_is_known_of_the_counts_before_a_cluster_is_asked() -> None:
    pipeline = counting()
    assert (pipeline.is_resolved, pipeline.topics_of_others) == (False, ("theirs",))
    for ask in (pipeline.tasks, pipeline.topics, pipeline.internal_topics):
        with pytest.raises(Refused, match=r"the partition counts of counting: .*theirs, which others own"):
            ask()
    assert {spec.name: spec.partitions for spec in pipeline.declared_topics()} == dict.fromkeys(
        ("theirs", "app-by-id-repartition", "app-totals-changelog", "app-dead-letter"), 0
    )


def test_internal_topics_get_their_counts_from_the_topic_of_others() -> None:
    resolved = counting().resolved({"theirs": 5, "another": 1})
    assert resolved.is_resolved
    assert {spec.name: (spec.partitions, spec.owned) for spec in resolved.topics()} == {
        "theirs": (5, False),
        "app-by-id-repartition": (5, True),
        "app-totals-changelog": (5, True),
        "app-dead-letter": (5, True),
    }
    assert len(resolved.tasks()) == 10


def test_a_topic_of_others_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Refused, match=r"topic theirs: .*observed no such topic\. Its owner creates it"):
        counting().resolved({"orders": 2})


def test_topics_of_others_that_are_joined_need_equal_counts() -> None:
    with pytest.raises(Refused, match=r"Topics not co-partitioned: \[\{events=2, names=3\}\]"):
        joining().resolved({"events": 2, "names": 3})
    with pytest.raises(Refused, match=r"Topics not co-partitioned: \[\{events=2, names=3\}\]"):
        joining(events=2).resolved({"names": 3})
    assert joining(events=3).resolved({"names": 3}).partition_counts["out"] == 3


def test_a_topic_that_the_topology_writes_is_its_own_and_needs_a_count() -> None:
    topology = Topology("app")
    topology.stream("events", value=VALUE).to("between")
    topology.stream("between", value=VALUE).to("out")
    with pytest.raises(Refused, match="source topic between: expected a number of partitions"):
        Pipeline("two", topology, "")
    assert Pipeline("two", topology, "", {"between": 2}).topics_of_others == ("events",)


def test_nothing_is_ever_written_to_a_topic_of_others() -> None:
    topology = Topology("app")
    topology.stream("theirs", value=VALUE).to("out")
    data = TestData(("theirs",), lambda n: ("theirs", b"", b""), "Id")
    with pytest.raises(Refused, match="test data for 'theirs', an external topic"):
        Pipeline("sample", topology, "", test_data=data)
    with pytest.raises(Refused, match="repartition_from moves to 'theirs', an external topic"):
        Pipeline("sample", topology, "", repartition_from={"theirs": "old"})


def test_what_its_owner_chose_is_no_difference_and_it_is_never_created() -> None:
    specs = counting().resolved({"theirs": 4}).topics()
    absent = plan_topics(specs, {}, replication_factor=2)
    assert "theirs" not in {spec.name for spec in absent.create}
    assert [str(found) for found in absent.differences] == [
        "theirs: existence: expected a topic that its owner creates, observed no such topic"
    ]
    theirs = ObservedTopic("theirs", 4, 3, {**RETENTION, "cleanup.policy": "compact,delete"})
    assert not plan_topics(specs, {"theirs": theirs}, replication_factor=2).differences


def test_of_a_sink_only_the_count_is_compared() -> None:
    specs = {spec.name: spec for spec in joining(events=2, names=2).topics()}
    theirs = ObservedTopic("out", 2, 1, {"min.insync.replicas": "1", "cleanup.policy": "compact"})
    assert not plan_topics([specs["out"]], {"out": theirs}, replication_factor=3).differences
    other = ObservedTopic("out", 3, 1, {})
    (difference,) = plan_topics([specs["out"]], {"out": other}, replication_factor=3).differences
    assert (difference.point, difference.expected, difference.observed) == ("partitions", "2", "3")


# -- the checks


@pytest.fixture
def cluster() -> FakeCluster:
    """The topics of ``counting`` after a deployment on 3 partitions, with a record in each topic."""
    cluster = FakeCluster()
    for spec in counting().resolved({"theirs": 3}).topics():
        configs = resolve_configs(spec, 1) if spec.owned else RETENTION
        partitions = [FakePartition() for _ in range(spec.partitions)]
        cluster.existing[spec.name] = FakeTopic(partitions, dict(configs))
    return cluster


def wrong(check: TopicsCheck | CopartitioningCheck, cluster: FakeCluster, pipeline: Pipeline) -> list[Observation]:
    rows = []
    application = application_in(pipeline, cluster)
    found = iter(check.observe(application, cluster))
    while (row := next(found, None)) is not None:
        rows.append(row)
        if len(rows) > 50 or "records in the partition" in row.subject:
            break
    return [row for row in rows if not row.agrees]


def test_the_settings_of_others_are_not_judged(cluster: FakeCluster) -> None:
    assert wrong(TopicsCheck(deadline=IMPATIENT), cluster, counting()) == []
    assert wrong(CopartitioningCheck(), cluster, counting()) == []


def test_a_missing_topic_of_others_is_red_and_says_whose_it_is(cluster: FakeCluster) -> None:
    del cluster.existing["theirs"]
    (row,) = wrong(TopicsCheck(deadline=IMPATIENT), cluster, counting())
    assert (row.subject, row.observed, row.where) == ("topic theirs", "missing", "its owner creates it")


def test_a_count_that_its_owner_changed_is_told_with_the_remedy(cluster: FakeCluster) -> None:
    cluster.existing["theirs"].partitions.append(FakePartition())
    found = wrong(CopartitioningCheck(), cluster, counting())
    assert [(row.expected, row.observed) for row in found] == [(4, 3), (4, 3)]
    assert all("theirs=4" in row.where and "counting_reset" in row.where for row in found)


def test_joined_topics_of_others_are_judged(cluster: FakeCluster) -> None:
    for topic, partitions in {"events": 2, "names": 3}.items():
        cluster.existing[topic] = FakeTopic([FakePartition() for _ in range(partitions)], dict(RETENTION))
    changelog = application_of(joining()).subtopologies[0].changelogs[0]
    cluster.existing[changelog] = FakeTopic([FakePartition()], {"cleanup.policy": "compact"})
    (row,) = wrong(CopartitioningCheck(), cluster, joining())
    assert row.observed == "Topics not co-partitioned: [{events=2, names=3}]"
