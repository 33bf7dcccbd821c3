"""A topic that another team made, with a plain client: read as it is, and never created, altered or written to."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType
from streamplan.checks.compaction import CompactionCheck
from streamplan.checks.framework.application import application_in
from streamplan.checks.topics import TopicsCheck
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.task_ownership import TaskOwnership, stop_application
from streamplan.kafka.topics import apply_topics, delete_topics, observe_topics, resolve_pipeline
from streamplan.maintenance.reset import Resetter
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER
from streamplan.serdes.json import Json
from streamplan.settings import Settings

from tests.support.brokers import NewTopicFactory, await_topics

_numbers = itertools.count()

WEEK = {"cleanup.policy": "compact,delete", "retention.ms": "604800000", "min.insync.replicas": "2"}


def counting(topic: str, **more: str) -> Pipeline:
    name = f"others-{os.getpid()}-{next(_numbers)}"
    topology = Topology(name)
    topology.stream(topic, value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
    return Pipeline(name, topology, "", **more)  # type: ignore[arg-type]


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


@pytest.fixture
def theirs(new_topic: NewTopicFactory) -> str:
    return new_topic("theirs", partitions=3, configs=WEEK)


@pytest.fixture
def pipeline(brokers: Brokers, theirs: str) -> Iterator[Pipeline]:
    made = counting(theirs)
    yield made
    delete_topics(brokers, [spec.name for spec in made.declared_topics() if spec.owned])


def settings_of(admin: AdminClient, topic: str) -> Mapping[str, str]:
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(120).items()}


def write(bootstrap_servers: str, topic: str, *records: tuple[int, bytes, bytes, int]) -> None:
    """Partition, key, value and time of each record."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for partition, key, value, timestamp in records:
        producer.produce(topic, value, key, partition, timestamp=timestamp)
    assert producer.flush(120) == 0


def test_it_is_left_as_it_is(
    brokers: Brokers, bootstrap_servers: str, admin: AdminClient, pipeline: Pipeline, theirs: str, tmp_path: Path
) -> None:
    before = settings_of(admin, theirs)
    write(bootstrap_servers, theirs, (0, b"k", b"{}", 1))
    shown: list[str] = []
    plan = apply_topics(brokers, pipeline, report=shown.append)
    assert theirs not in {spec.name for spec in plan.create}
    assert f"= {theirs} (source, 3 partitions): others own it" in shown[0]
    internal = [spec.name for spec in plan.create]
    assert {topic.partitions for topic in observe_topics(brokers, internal).values()} == {3}
    cluster = KafkaCluster(brokers)
    application = application_in(pipeline, cluster)
    assert [row for row in TopicsCheck().observe(application, cluster) if not row.agrees] == []
    judged = [spec.name for spec in application.topics if CompactionCheck().applies_to(application) is None]
    assert theirs in judged  # it is known, and the check passes over it
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})
    reset = Resetter(pipeline, brokers, settings, shown.append)
    planned = reset.observe()
    assert (theirs in planned.kept, theirs in planned.topics) == (True, False)
    reset.apply(planned.written())
    assert settings_of(admin, theirs) == before
    assert {number: found.high_watermark for number, found in cluster.offsets(theirs).items()} == {0: 1, 1: 0, 2: 0}


def test_one_that_does_not_exist_is_refused_and_nothing_is_created(brokers: Brokers) -> None:
    pipeline = counting(f"nobody-made-this-{os.getpid()}")
    with pytest.raises(Refused, match=r"observed no such topic\. Its owner creates it"):
        apply_topics(brokers, pipeline)
    assert observe_topics(brokers, [spec.name for spec in pipeline.declared_topics()]) == {}


def test_a_count_that_its_owner_changed_is_told_before_anything_starts(
    brokers: Brokers, bootstrap_servers: str, admin: AdminClient, pipeline: Pipeline, theirs: str, tmp_path: Path
) -> None:
    apply_topics(brokers, pipeline)
    admin.create_partitions([NewPartitions(theirs, 4)])[theirs].result(120)
    deadline = time.monotonic() + 120
    while resolve_pipeline(pipeline, brokers).partition_counts[theirs] != 4 and time.monotonic() < deadline:
        time.sleep(0.2)
    await_topics(bootstrap_servers, theirs)
    with pytest.raises(Refused, match=rf"partitions: expected 4, observed 3.*{theirs}=4.*{pipeline.name}_reset makes"):
        apply_topics(brokers, pipeline)
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})
    reset = Resetter(pipeline, brokers, settings)
    reset.apply(reset.observe().written())
    changed = resolve_pipeline(pipeline, brokers)
    assert {spec.partitions for spec in changed.topics()} == {4}
    assert len(apply_topics(brokers, pipeline).agree) == 4


# -- the start moment


def positions(brokers: Brokers, pipeline: Pipeline, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    cluster = KafkaCluster(brokers)
    group = pipeline.topology.application_id
    return dict(cluster.positions(group, topic)), dict(cluster.starts(group, topic))


def claim(brokers: Brokers, pipeline: Pipeline) -> None:
    resolved = resolve_pipeline(pipeline, brokers)
    with TaskOwnership(resolved, brokers) as ownership:
        ownership.claim({group.id: False for group in resolved.topology.subtopologies})


@pytest.mark.parametrize(
    ("moment", "begins"),
    [
        ("earliest", {0: 1, 1: 0, 2: 0}),  # the first record of partition 0 was deleted
        ("latest", {0: 3, 1: 1, 2: 0}),
        ("2026-01-02T00:00:00Z", {0: 2, 1: 1, 2: 0}),
        ("by_duration:P36500D", {0: 1, 1: 0, 2: 0}),
    ],
)
def test_an_application_begins_at_its_start_moment_and_says_so_for_ever(
    brokers: Brokers, bootstrap_servers: str, new_topic: NewTopicFactory, moment: str, begins: dict[int, int]
) -> None:
    topic = new_topic("theirs", partitions=3)
    day = 86_400_000
    first = 1_767_225_600_000  # 2026-01-01
    records = [(0, first), (0, first + 1), (0, first + day), (1, first)]
    write(bootstrap_servers, topic, *((partition, b"k", b"{}", at) for partition, at in records))
    from streamplan.kafka.topics import delete_records

    delete_records(brokers, topic, {0: 1})
    pipeline = counting(topic, auto_offset_reset=moment)
    apply_topics(brokers, pipeline)
    try:
        claim(brokers, pipeline)
        assert positions(brokers, pipeline, topic) == (begins, begins)
        write(bootstrap_servers, topic, (0, b"k", b"{}", first + 2 * day))
        claim(brokers, pipeline)  # the next start goes on, and moves nothing
        assert positions(brokers, pipeline, topic) == (begins, begins)
        assert stop_application(resolve_pipeline(pipeline, brokers), brokers) is not None
        assert positions(brokers, pipeline, topic) == (begins, begins)
    finally:
        delete_topics(brokers, [spec.name for spec in pipeline.declared_topics() if spec.owned])


def test_tables_are_read_from_their_beginning(
    brokers: Brokers, bootstrap_servers: str, new_topic: NewTopicFactory
) -> None:
    names, events = new_topic("names"), new_topic("events")
    write(bootstrap_servers, names, (0, b"k", b'{"name": "x"}', 1_700_000_000_000))
    write(bootstrap_servers, events, (0, b"k", b'{"id": "x"}', 1_700_000_000_000))
    name = f"others-{os.getpid()}-{next(_numbers)}"
    topology = Topology(name)
    table = topology.table(names, value=Json("name string"))
    topology.stream(events, value=Json("id string")).join(table, {"id": "id"}).to(f"{name}-out")
    pipeline = Pipeline(name, topology, "", auto_offset_reset="latest")
    apply_topics(brokers, pipeline)
    try:
        claim(brokers, pipeline)
        assert positions(brokers, pipeline, events)[0] == {0: 1, 1: 0}
        assert positions(brokers, pipeline, names)[0] == {0: 0, 1: 0}
    finally:
        delete_topics(brokers, [spec.name for spec in pipeline.declared_topics() if spec.owned])
