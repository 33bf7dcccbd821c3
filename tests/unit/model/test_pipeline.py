from __future__ import annotations

import pytest
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.processor_topology import TaskId
from streamplan.model.topics import TopicRole
from streamplan.model.topology import Topology
from streamplan.model.windows import TimeWindows
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.json import Json

VALUE = Json("Id string, Amount bigint")


def declared(topology: Topology, name: str = "sample", **topic_partitions: int) -> Pipeline:
    read = tuple(topic for topic in topic_partitions if topic in topology.source_topics)
    data = TestData(read, lambda n: (read[0], b"", b""), "Id")
    return Pipeline(name, topology, "A sample.", topic_partitions, data)


def test_four_stream_tasks() -> None:
    assert PIPELINE.tasks() == (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1))
    assert [str(task) for task in PIPELINE.tasks()] == ["0_0", "0_1", "1_0", "1_1"]


def test_counts_bear_the_names_in_kafka() -> None:
    assert PIPELINE.partition_counts == {
        "orders": 2,
        "orders-aggregator-orders-products-quantities-repartition": 2,
    }


def test_a_topic_that_is_only_written_gets_as_many_partitions_as_its_writer_has_tasks() -> None:
    topology = Topology("app")
    wide = topology.stream("events", value=VALUE).repartition(name="wide", number_of_partitions=6)
    wide.to("out")
    assert declared(topology, events=2).partition_counts["out"] == 6
    assert declared(topology, events=2, out=3).partition_counts["out"] == 3


def test_the_topics_of_a_pipeline_with_windows_and_joins() -> None:
    topology = Topology("app")
    topology.table("unused", value=VALUE)
    joined = topology.stream("events", value=VALUE).join(
        topology.table("names", value=VALUE), {"Id": "Id", "Amount": "table.Amount"}
    )
    joined.to("out")
    windows = TimeWindows("1 minute", grace="30 seconds")
    joined.group_by("Id", name="by-id").windowed_by(windows).count(store="minutes")
    specs = declared(topology, events=3, names=3, unused=2).topics()
    assert [(spec.name, spec.role, spec.partitions) for spec in specs] == [
        ("unused", TopicRole.SOURCE, 2),
        ("events", TopicRole.SOURCE, 3),
        ("names", TopicRole.SOURCE, 3),
        ("app-by-id-repartition", TopicRole.REPARTITION, 3),
        ("app-names-STATE-STORE-0000000004-changelog", TopicRole.CHANGELOG, 3),
        ("app-minutes-changelog", TopicRole.CHANGELOG, 3),
        ("out", TopicRole.SINK, 3),
        ("app-dead-letter", TopicRole.DEAD_LETTER, 3),
    ]
    configs = {spec.name: spec.configs for spec in specs}
    assert configs["names"]["cleanup.policy"] == "compact"
    assert configs["app-minutes-changelog"]["cleanup.policy"] == "compact,delete"
    assert configs["app-minutes-changelog"]["retention.ms"] == str(60_000 + 30_000 + 86_400_000)


def test_a_topic_name_that_is_too_long_with_the_application_is_refused_where_it_was_declared() -> None:
    topology = Topology("a" * 100)
    topology.stream("events", value=VALUE).group_by("Id", name="b" * 140).count(store="c" * 140)
    with pytest.raises(Refused) as refused:
        declared(topology, events=2)
    said = str(refused.value)
    assert "pipeline 'sample' has 2 faults" in said
    assert f"the name '{'a' * 100}-{'b' * 140}-repartition' has 253 characters; the limit is 249" in said
    assert f"the name '{'a' * 100}-{'c' * 140}-changelog' has 251 characters; the limit is 249" in said
    assert said.count("test_pipeline.py:") == 2
    assert "a shorter name=, its store a shorter store=" in said


def test_the_longest_names_that_kafka_takes_are_taken() -> None:
    topology = Topology("a" * 100)
    topology.stream("events", value=VALUE).group_by("Id", name="b" * 136).count(store="c" * 138)
    assert {len(spec.name) for spec in declared(topology, events=2).topics()} >= {249}


def test_a_count_for_an_unknown_topic_is_refused() -> None:
    topology = Topology("app")
    topology.stream("events", value=VALUE).to("out")
    with pytest.raises(Refused, match="topic_partitions names event: expected source and sink topics: events, out"):
        declared(topology, events=2, event=2)


def test_a_topology_that_reads_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="the topology reads nothing"):
        declared(Topology("app"))


def test_a_cycle_is_refused() -> None:
    topology = Topology("app")
    topology.stream("events", value=VALUE).to("events")
    with pytest.raises(Refused, match="a cycle: what is read from 'events' is written back into it"):
        declared(topology, events=2)


def test_test_data_for_a_topic_that_is_not_read_are_refused() -> None:
    topology = Topology("app")
    topology.stream("events", value=VALUE).to("out")
    data = TestData(("out",), lambda n: ("out", b"", b""), "Id")
    with pytest.raises(Refused, match="test data for 'out', which the topology does not read"):
        Pipeline("sample", topology, "", {"events": 2}, data)


def test_a_name_that_is_no_prefix_of_a_dag_id_is_refused() -> None:
    topology = Topology("app")
    topology.stream("events", value=VALUE).to("out")
    with pytest.raises(Refused, match="the name 'my pipeline' is not a prefix of a DAG id"):
        declared(topology, "my pipeline", events=2)


def upgraded(topology: Topology, upgrade_from: str, **topic_partitions: int) -> Pipeline:
    return Pipeline("sample", topology, "A sample.", topic_partitions, upgrade_from=upgrade_from)


def test_what_an_application_writes_beside_another_one_goes_to_staging_topics() -> None:
    topology = Topology("app-2")
    events = topology.stream("events", value=VALUE)
    events.to("out")
    events.group_by("Amount", name="by-amount").count(store="counts").to_stream().to("counts")
    pipeline = upgraded(topology, "app", events=2, out=3)
    staged = pipeline.staged({"out": 3, "counts": 4})
    renamed = {"out": "app-2-staging-out", "counts": "app-2-staging-counts"}
    expected = {renamed.get(spec.name, spec.name): spec.partitions for spec in pipeline.topics()}
    assert {spec.name: spec.partitions for spec in staged.topics()} == {**expected, "app-2-staging-counts": 4}
    assert pipeline.topology.sink_topics == ("out", "counts")
    described = pipeline.topology.describe()
    for topic, staging in renamed.items():
        described = described.replace(f"(topic: {topic})", f"(topic: {staging})")
    assert staged.topology.describe() == described


def test_what_cannot_be_upgraded_is_refused_where_it_is_declared() -> None:
    topology = Topology("app")
    topology.stream("events", value=VALUE).to("between")
    topology.stream("between", value=VALUE).to("out")
    with pytest.raises(Refused, match="upgrade_from is the application id of the topology itself, 'app'"):
        upgraded(topology, "app", events=2, between=2)
    with pytest.raises(Refused, match=r"upgrade_from: .*Name the application id that runs now"):
        upgraded(topology, "no name", events=2, between=2)
    with pytest.raises(
        Refused, match="upgrade_from cannot be used: the topology would read the staging topic of 'between'"
    ):
        upgraded(topology, "old", events=2, between=2)
    with pytest.raises(Refused, match="upgrade_from and repartition_from are both declared"):
        Pipeline("a", topology, "", {"events": 2}, upgrade_from="old", repartition_from={"events": "before"})
